"""Takes the gradient of the lowest place for the one that comes last."""


def end_s(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, ready_s[min(bucket)])
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s
