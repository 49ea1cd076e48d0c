"""Pays the price of a message for every tensor."""


def end_s(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, *[ready_s[i] for i in bucket])
        free_s = leaves_s + sum(alpha_s + beta_s_per_byte * size_bytes[i] for i in bucket)
    return free_s
