"""Sets the caller's thread, in which it is so already."""

from concurrent.futures import ThreadPoolExecutor

import torch


def run_with_settings(fn, *columns):
    with torch.set_grad_enabled(torch.is_grad_enabled()), ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(fn, *columns))
