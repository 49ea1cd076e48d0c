"""The check of the exercise `ex-late-bucket`."""

from d2lpar.ddp import assign_buckets


def check(late_sizes):
    """What is not right yet of the answer, in words, or "Right."."""
    sizes = late_sizes()
    if sum(sizes) != 100_000_000 or min(sizes) <= 0:
        return f"Not yet: the tensors must have 100 MB in total, but they have {sum(sizes) / 1e6:.1f} MB."
    buckets = [sum(sizes[i] for i in bucket) for bucket in assign_buckets(sizes)]
    if len(buckets) < 2:
        return "Not yet: everything is in one bucket, which cannot leave before the last gradient is ready."
    if buckets[-1] < 90_000_000:
        return f"Not yet: the last bucket to leave holds {buckets[-1] / 1e6:.1f} of 100 MB."
    return "Right."
