"""The check of the exercise `ex-first-come`."""

from concurrent.futures import ThreadPoolExecutor, wait


def in_rank_order(fn, *columns):
    """The page's `run_in_threads`."""
    with ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(fn, *columns))


def as_they_end(fn, *columns):
    """Short work has ended before the next begins, so that luck decides nothing."""
    results = []
    with ThreadPoolExecutor(len(columns[0])) as threads:
        for row in zip(*columns):
            wait([threads.submit(lambda row=row: results.append(fn(*row)))], timeout=0.001)
    return results


def check(is_right):
    """What is not right yet of the answer, in words, or "Right."."""
    for _ in range(3):  # a test that needs luck has it once, not always
        if is_right(in_rank_order) is not True:
            return "Not yet: is_right must be True for run_in_threads, and is not."
        if is_right(as_they_end) is not False:
            return "Not yet: run_first_come passes; when do its results come in rank order?"
    return "Right."
