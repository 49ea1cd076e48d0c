def all_at_the_end(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Sends when backward is over, without overlap."""
    return max(ready_s) + len(buckets) * alpha_s + beta_s_per_byte * sum(size_bytes)


def alpha_for_each_tensor(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Pays the price of a message for every tensor."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, *[ready_s[i] for i in bucket])
        free_s = leaves_s + sum(alpha_s + beta_s_per_byte * size_bytes[i] for i in bucket)
    return free_s


def alpha_once(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Pays the price of a message once for all buckets."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, *[ready_s[i] for i in bucket])
        free_s = leaves_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s + alpha_s


def as_they_are_full(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Sends the buckets in the order in which they are full."""
    free_s = 0.0
    for bucket in sorted(buckets, key=lambda bucket: max(ready_s[i] for i in bucket)):
        leaves_s = max(free_s, *[ready_s[i] for i in bucket])
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s


def ends_of_the_bucket(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Looks at the first and the last gradient of a bucket only."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, ready_s[bucket[0]], ready_s[bucket[-1]])
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s


def first_listed(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Takes the gradient that is listed first for the one that comes last."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, ready_s[bucket[0]])
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s


def last_listed(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Takes the gradient that is listed last for the one that comes last."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, ready_s[bucket[-1]])
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s


def leaves_with_the_first(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """A bucket leaves with its first gradient, before it is full."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, min(ready_s[i] for i in bucket))
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s


def link_never_busy(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Forgets that the bucket before may still be on its way."""
    return max(max(ready_s[i] for i in bucket) + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
               for bucket in buckets)


def lowest_place(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """Takes the gradient of the lowest place for the one that comes last."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, ready_s[min(bucket)])
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s


def mean_of_ready(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte):
    """A bucket leaves at the mean of the times of its gradients."""
    free_s = 0.0
    for bucket in buckets:
        leaves_s = max(free_s, sum(ready_s[i] for i in bucket) / len(bucket))
        free_s = leaves_s + alpha_s + beta_s_per_byte * sum(size_bytes[i] for i in bucket)
    return free_s
