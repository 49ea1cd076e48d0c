"""Has the settings, and no threads."""


def run_with_settings(fn, *columns):
    return list(map(fn, *columns))
