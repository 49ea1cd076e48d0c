"""Sends when backward is over, without overlap."""


def end_s(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    return max(ready_s) + len(buckets) * alpha_s + beta_s_per_byte * sum(size_bytes)
