"""Unchanged: a new thread begins with the defaults."""

from concurrent.futures import ThreadPoolExecutor


def run_with_settings(fn, *columns):
    with ThreadPoolExecutor(len(columns[0])) as threads:
        return list(threads.map(fn, *columns))
