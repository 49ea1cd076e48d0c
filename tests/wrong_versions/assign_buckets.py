def closed_before_the_cap(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """A tensor that would reach beyond the cap opens a new bucket."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(sizes_bytes))):
        if bucket and sum(sizes_bytes[j] for j in [*bucket, i]) > cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
        bucket.append(i)
    return buckets + [bucket] * bool(bucket)


def the_last_bucket_is_lost(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """What has not reached its cap is not returned."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        if sum(sizes_bytes[j] for j in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets


def an_empty_bucket_at_the_end(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """Appended whether or not there is something in it."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        if sum(sizes_bytes[j] for j in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket]


def lists_of_sizes(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The sizes of the tensors instead of their indices."""
    buckets, bucket, cap = [], [], first_bytes
    for size in reversed(sizes_bytes):
        bucket.append(size)
        if sum(bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def sizes_of_buckets(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The number of bytes of each bucket."""
    filled = []
    for size in reversed(sizes_bytes):
        if not filled or filled[-1] >= (first_bytes if len(filled) == 1 else cap_bytes):
            filled.append(0)
        filled[-1] += size
    return filled


def tensors_are_counted(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The number of tensors is compared with the cap."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        if len(bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def the_first_cap_for_all(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The cap never changes."""
    buckets, bucket = [], []
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        if sum(sizes_bytes[j] for j in bucket) >= first_bytes:
            buckets.append(bucket)
            bucket = []
    return buckets + [bucket] * bool(bucket)


def the_first_cap_is_not_used(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The first bucket has the cap of the others."""
    buckets, bucket = [], []
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        if sum(sizes_bytes[j] for j in bucket) >= cap_bytes:
            buckets.append(bucket)
            bucket = []
    return buckets + [bucket] * bool(bucket)


def forwards(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """From the first tensor to the last."""
    buckets, bucket, cap = [], [], first_bytes
    for i in range(len(sizes_bytes)):
        bucket.append(i)
        if sum(sizes_bytes[j] for j in bucket) >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def counted_from_the_end(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """Indices into the reversed list."""
    buckets, bucket, cap, size = [], [], first_bytes, 0
    for i, one in enumerate(reversed(sizes_bytes)):
        bucket.append(i)
        size += one
        if size >= cap:
            buckets.append(bucket)
            bucket, cap, size = [], cap_bytes, 0
    return buckets + [bucket] * bool(bucket)


def more_than_the_cap(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """`>` instead of `>=`."""
    buckets, bucket, cap = [], [], first_bytes
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        if sum(sizes_bytes[j] for j in bucket) > cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def the_size_is_not_set_back(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The size of all buckets so far is compared with the cap."""
    buckets, bucket, cap, size = [], [], first_bytes, 0
    for i in reversed(range(len(sizes_bytes))):
        bucket.append(i)
        size += sizes_bytes[i]
        if size >= cap:
            buckets.append(bucket)
            bucket, cap = [], cap_bytes
    return buckets + [bucket] * bool(bucket)


def the_list_is_emptied(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """It takes the sizes out of the caller's list."""
    buckets, bucket, cap, size = [], [], first_bytes, 0
    while sizes_bytes:
        size += sizes_bytes.pop()
        bucket.append(len(sizes_bytes))
        if size >= cap:
            buckets.append(bucket)
            bucket, cap, size = [], cap_bytes, 0
    return buckets + [bucket] * bool(bucket)
