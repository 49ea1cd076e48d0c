def elements_instead_of_bytes(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """`numel` counts elements."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(tensors))):
        bucket.append(i)
        if sum(tensors[j].numel() for j in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def closed_before_the_cap(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """A tensor that would reach beyond the cap opens a new bucket."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(tensors))):
        if bucket and sum(tensors[j].nbytes for j in [*bucket, i]) > cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
        bucket.append(i)
    return buckets + [bucket] * bool(bucket)


def the_last_bucket_is_lost(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """What has not reached its cap is not returned."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(tensors))):
        bucket.append(i)
        if sum(tensors[j].nbytes for j in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets


def an_empty_bucket_at_the_end(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """Appended whether or not there is something in it."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(tensors))):
        bucket.append(i)
        if sum(tensors[j].nbytes for j in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket]


def lists_of_tensors(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The tensors instead of their places."""
    buckets, bucket, cap = [], [], first_bytes
    for x in reversed(tensors):
        bucket.append(x)
        if sum(y.nbytes for y in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def the_first_cap_for_all(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The cap never changes."""
    buckets, bucket = [], []
    for i in reversed(range(len(tensors))):
        bucket.append(i)
        if sum(tensors[j].nbytes for j in bucket) >= first_bytes:
            buckets.append(bucket)
            bucket = []
    return buckets + [bucket] * bool(bucket)


def forwards(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """From the first tensor on."""
    buckets, bucket, cap = [], [], first_bytes
    for i in range(len(tensors)):
        bucket.append(i)
        if sum(tensors[j].nbytes for j in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def counted_from_the_end(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """Places in the reversed list."""
    buckets, bucket, cap, size = [], [], first_bytes, 0
    for i, x in enumerate(reversed(tensors)):
        bucket.append(i)
        size += x.nbytes
        if size >= cap:
            buckets.append(bucket)
            bucket, cap, size = [], cap_bytes, 0
    return buckets + [bucket] * bool(bucket)


def more_than_the_cap(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """`>` for "has reached"."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(tensors))):
        bucket.append(i)
        if sum(tensors[j].nbytes for j in bucket) > cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def the_size_is_not_set_back(tensors, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The size of all buckets so far is compared with the cap."""
    buckets, bucket, cap, size = [], [], first_bytes, 0
    for i in reversed(range(len(tensors))):
        bucket.append(i)
        size += tensors[i].nbytes
        if size >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)
