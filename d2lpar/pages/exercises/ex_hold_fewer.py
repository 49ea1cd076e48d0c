"""The check of the exercise `ex-hold-fewer`."""

from d2lpar.ways import first_slots, most_held


def check(order):
    """What is not right yet of the answer, in words, or "Right."."""
    for k in (1, 2, 4, 5):
        for num_micro in (1, 2, 4, 9):
            case = f"with {k} rank{'s' * (k > 1)} and {num_micro} micro-batch{'es' * (num_micro > 1)}"
            orders = [[tuple(turn) for turn in order(rank, k, num_micro)] for rank in range(k)]
            every = sorted((what, i) for what in "BF" for i in range(num_micro))
            for rank, turns in enumerate(orders):
                if sorted(turns, key=str) != sorted(every, key=str):
                    return (f'Not yet: {case}, rank {rank} must do ("F", i) and ("B", i) once for each micro-batch,\n'
                            f"  and does {turns}.")
            try:
                starts = first_slots(orders)
            except ValueError as error:
                return f"Not yet: {case}, {error}."
            for rank, turns in enumerate(orders):
                if (held := most_held(turns)) > k - rank:
                    return (f"Not yet: {case}, rank {rank} holds {held} at once,\n"
                            f"  and may hold {k - rank}.")
            if (slots := max(begun[-1] for begun in starts) + 2) > (least := 3 * (num_micro + k - 1)):
                return f"Not yet: {case}, the step takes {slots} slots, and GPipe's order takes {least}."
    return "Right."
