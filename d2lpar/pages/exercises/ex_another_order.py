"""The check of the exercise `ex-another-order`."""


def check(order_on):
    """What is not right yet of the answer, in words, or "Right."."""
    for sizes in ({"conv": 9, "bias": 3, "head": 9}, {"a": 1, "b": 2, "c": 3}, {"a": 5, "b": 2, "c": 7, "d": 2, "e": 9},
                  {"W": 4, "b": 4}, {"W": 4}):
        for k in (2, 3, 5):
            orders = [order_on(rank, dict(sizes)) for rank in range(k)]
            for rank, names in enumerate(orders):
                if not isinstance(names, list) or sorted(map(str, names)) != sorted(sizes):
                    return f"Not yet: of {sizes}, rank {rank} must sum each once, in a list; you give\n  {names}"
            for turn, names in enumerate(zip(*orders)):
                if len({sizes[name] for name in names}) > 1:
                    return f"Not yet: of {sizes}, turn {turn} has two sizes, and is seen:\n  {names}"
            if len(set(sizes.values())) < len(sizes) and len(set(map(tuple, orders))) == 1:
                return f"Not yet: of {sizes}, all ranks have one order: all is right."
    return "Right."
