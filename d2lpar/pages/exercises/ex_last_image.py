"""The check of the exercise `ex-last-image`."""


def check_number(times):
    """For shards of 4, 4, 4 and 1."""
    if times == 4:
        return "Right."
    if times == 4 / 3:
        return "Not yet: 4/3 would be right for shards of 4, 3, 3 and 3, but scatter cuts differently."
    if times == 1:
        return "Not yet: all images count the same only if all shards have the same size."
    return f"Not yet: {times}. How many images share the first shard's mean, and how many share the last one's?"
