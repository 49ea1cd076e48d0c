"""The check of the exercise `ex-hang`."""


def check(where_they_part):
    """What is not right yet of the answer, in words, or "Right."."""
    step = [("all_reduce", 900), ("all_reduce", 84)]
    start, mean, end = ("broadcast", 984), ("all_reduce", 1), ("barrier", 0)
    cases = [
        ("all alike", [[start, *step]] * 3, None),
        ("an all_reduce on rank 0 only", [[start, *step, mean], [start, *step, end],
                                          [start, *step, end]],
         (3, {mean: [0], end: [1, 2]})),
        ("rank 1 has stopped early", [[start, *step], [start, step[0]], [start, *step]],
         (2, {step[1]: [0, 2], None: [1]})),
        ("rank 2 has one call more", [[start]] * 2 + [[start, mean]],
         (1, {None: [0, 1], mean: [2]})),
        ("rank 1 has them in a different order", [[start, *step], [start, *step[::-1]]],
         (1, {step[0]: [0], step[1]: [1]})),
        ("two places", [[start, mean, end], [start, end, end], [start, mean, mean]],
         (1, {mean: [0, 2], end: [1]})),
        ("a sum that meets a broadcast of its size", [[start, ("all_reduce", 9)], [start, ("broadcast", 9)]],
         (1, {("all_reduce", 9): [0], ("broadcast", 9): [1]})),
        ("the last of nine ranks is elsewhere", [[start, mean]] * 8 + [[start, end]],
         (1, {mean: list(range(8)), end: [8]})),
        ("nobody came", [[], [], []], None),
        ("one rank", [[start, mean]], None),
        ("every rank elsewhere", [[start], [mean], [end], []],
         (0, {start: [0], mean: [1], end: [2], None: [3]})),
        ("the same to rank 2", [[mean] * 3, [mean] * 3, [mean] * 2, [mean] * 3],
         (2, {mean: [0, 1, 3], None: [2]})),
    ]
    for name, logs, right in cases:
        answer = where_they_part([list(log) for log in logs])
        if answer is not None:
            pair = isinstance(answer, tuple) and len(answer) == 2
            place, parties = answer if pair else (None, None)
            if type(place) is not int or not isinstance(parties, dict) or any(
                    type(ranks) is not list or any(type(r) is not int for r in ranks)
                    for ranks in parties.values()):
                return (f"Not yet: {name}: the answer must be None, or a pair of a "
                        "whole number and a dictionary of lists of ranks; you give\n"
                        f"  {answer}")
            answer = place, {call: sorted(ranks) for call, ranks in parties.items()}
        if answer != right:
            return f"Not yet: {name}:\n  {right}\n  is right, you give\n  {answer}"
    return "Right."
