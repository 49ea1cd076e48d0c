"""The check of the exercise `ex-even`."""


def check(even_batches):
    """What is not right yet of the answer, in words, or "Right."."""
    for n, b in [(60_000, 512), (3558, 32), (3, 32), (64, 32), (63, 32), (65, 32),
                 (1, 1), (7, 1), (10, 4), (11, 4), (100, 7), (1_281_167, 1024)]:
        sizes = even_batches(n, b)
        case = f"Not yet: {n} examples, batch size {b}:"
        if sizes is None:
            return "Not yet: even_batches returns nothing."
        sizes = [getattr(size, "item", lambda size=size: size)() for size in sizes]
        if any(type(size) is not int or size < 1 for size in sizes):
            return f"{case} sizes are whole numbers, at least 1; you return {sizes[:5]}."
        if sum(sizes) != n:
            return f"{case} your minibatches hold {sum(sizes)} examples."
        if n >= b and min(sizes) < b:
            return f"{case} one minibatch has only {min(sizes)}."
        most = max(1, n // b)
        if len(sizes) != most:
            return f"{case} {most} minibatches are possible, and you make {len(sizes)}."
        if max(sizes) - min(sizes) > 1:
            return f"{case} {min(sizes)} and {max(sizes)} differ by more than one."
    return "Right."
