def all_right(k):
    """Shards of different sizes, but every device has the same accuracy."""
    return [1] * (k + 1)


def equal_shards(k):
    """Shards of one size: the mean of the means is the mean."""
    return [1] * k + [0] * k


def fewer_images_than_devices(k):
    """A device without an image makes the mean NaN."""
    return [1, 0, 1][:k - 1]


def only_for_two(k):
    """Three images are unequal for two devices only."""
    return [1, 1, 0]
