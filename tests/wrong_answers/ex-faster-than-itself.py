def a_little_slower(i):
    """Less than one and a half times."""
    return 60.0 if i < 5 else 50.0


def every_second_call(i):
    """Fools the race in turn, and not the one in a row."""
    return 80.0 if i % 2 == 0 else 50.0


def no_time_at_all(i):
    """A call takes more than no time, even on a fast machine."""
    return 0.0 if i >= 5 else 1.0


def one_slow_call(i):
    """A median does not notice one slow call."""
    return 500.0 if i == 0 else 50.0


def slower_later(i):
    """Then the second case is the slower one."""
    return 50.0 if i < 5 else 80.0


def steadily_faster(i):
    """In turn the neighbours differ too much."""
    return 80.0 * 0.9**i
