"""Forgets that the bucket before may still be on its way."""


def end_s(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    return max(max(ready_s[i] for i in bucket) + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
               for bucket in buckets)
