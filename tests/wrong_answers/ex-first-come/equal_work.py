"""The page's: who begins first ends first."""


def is_right(run):
    return run(pow, [2, 3, 4], [5, 2, 1]) == [32, 9, 4]
