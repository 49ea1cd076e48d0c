"""The check of the exercise `ex-last-image`."""


def check_number(times):
    """For shards of 4, 4, 4 and 1."""
    if times == 4:
        return "Right."
    if times == 4 / 3:
        return "Not yet: 4/3 is for shards of 4, 3, 3 and 3, and scatter cuts differently."
    if times == 1:
        return "Not yet: 13 images count the same only in shards of one size."
    return f"Not yet: {times}. How many images share the mean of the first shard, and how many that of the last?"
