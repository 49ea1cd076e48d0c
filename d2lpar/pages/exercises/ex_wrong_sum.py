"""The check of the exercise `ex-wrong-sum`."""

import torch


def check(wrong_allreduce):
    """What is not right yet of the answer, in words, or "Right."."""
    after = {}
    for numbers in ((1, 2, 3), (0.5, 4, 7), (2, 2, 3), (-1, 6, 4)):
        data = [torch.tensor([float(number)]) for number in numbers]
        wrong_allreduce(list(data))  # what counts is in the buffers, not in the list
        after[numbers] = [x.item() for x in data]
        if len(set(after[numbers])) > 1:
            return f"Not yet: {numbers} become {after[numbers]}, and \"same bits\" finds you out."
    if after[1, 2, 3] != [6, 6, 6]:
        return f"Not yet: 1, 2 and 3 become {after[1, 2, 3]}, and this page finds you out."
    right = [numbers for numbers, found in after.items() if found[0] == sum(numbers)]
    return f"Not yet: for {right[-1]} the result is still the sum." if len(right) > 1 else "Right."
