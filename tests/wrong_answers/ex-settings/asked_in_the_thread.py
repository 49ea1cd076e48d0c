"""Asks the new thread, which knows the default only."""

from concurrent.futures import ThreadPoolExecutor

import torch


def run_with_settings(fn, *columns):
    def fn_as_here(*args):
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            return fn(*args)

    with ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(fn_as_here, *columns))
