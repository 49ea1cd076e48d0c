def from_the_first_tensor(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """Buckets are filled in the order of the layers."""
    filled = []
    for size in sizes_bytes:
        cap = first_bytes if len(filled) == 1 else cap_bytes
        if not filled or filled[-1] >= cap:
            filled.append(0)
        filled[-1] += size
    return filled


def closed_before_the_cap(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """A tensor that would not fit opens a new bucket."""
    filled = [0]
    for size in reversed(sizes_bytes):
        cap = first_bytes if len(filled) == 1 else cap_bytes
        if filled[-1] and filled[-1] + size > cap:
            filled.append(0)
        filled[-1] += size
    return filled


def the_last_bucket_is_lost(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """A bucket counts only once it is full."""
    filled, bucket = [], 0
    for size in reversed(sizes_bytes):
        bucket += size
        if bucket >= (cap_bytes if filled else first_bytes):
            filled.append(bucket)
            bucket = 0
    return filled


def one_cap_for_all(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """The first bucket has the cap of the others."""
    filled = []
    for size in reversed(sizes_bytes):
        if not filled or filled[-1] >= cap_bytes:
            filled.append(0)
        filled[-1] += size
    return filled


def an_empty_bucket(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """A bucket that is exactly full is closed at once, even at the end."""
    filled = [0]
    for size in reversed(sizes_bytes):
        filled[-1] += size
        if filled[-1] >= (first_bytes if len(filled) == 1 else cap_bytes):
            filled.append(0)
    return filled


def above_the_cap(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """A bucket that is exactly full stays open."""
    filled = []
    for size in reversed(sizes_bytes):
        if not filled or filled[-1] > (first_bytes if len(filled) == 1 else cap_bytes):
            filled.append(0)
        filled[-1] += size
    return filled


def the_list_is_emptied(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """It takes the sizes out of the caller's list."""
    filled = []
    while sizes_bytes:
        cap = first_bytes if len(filled) == 1 else cap_bytes
        if not filled or filled[-1] >= cap:
            filled.append(0)
        filled[-1] += sizes_bytes.pop()
    return filled
