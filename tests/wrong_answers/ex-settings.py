from concurrent.futures import ThreadPoolExecutor

import torch


def a_loop(fn, *columns):
    """Has the settings, and no threads."""
    return list(map(fn, *columns))


def around_the_pool(fn, *columns):
    """Sets the caller's thread, in which it is so already."""
    with torch.set_grad_enabled(torch.is_grad_enabled()), ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(fn, *columns))


def asked_in_the_thread(fn, *columns):
    """Asks the new thread, which knows the default only."""
    def fn_as_here(*args):
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            return fn(*args)

    with ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(fn_as_here, *columns))


def never(fn, *columns):
    """Right under no_grad, and only there."""
    with ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(torch.no_grad()(fn), *columns))


def the_page_s(fn, *columns):
    """Unchanged: a new thread begins with the defaults."""
    with ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(fn, *columns))
