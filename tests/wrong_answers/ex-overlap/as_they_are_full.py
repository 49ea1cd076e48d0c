"""Sends the buckets in the order in which they are full."""


def end_s(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    free_s = 0.0
    for bucket in sorted(buckets, key=lambda bucket: max(ready_s[i] for i in bucket)):
        leaves_s = max(free_s, *[ready_s[i] for i in bucket])
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s
