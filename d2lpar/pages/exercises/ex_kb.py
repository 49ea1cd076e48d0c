"""The check of the exercise `ex-kb`."""

import torch

from d2lpar.base.devices import try_devices
from d2lpar.one_step.scratch import split_batch


def check(epoch_plan):
    """What is not right yet of the answer, in words, or "Right."."""
    for num_examples, b, k in ((3500, 256, 1), (3500, 256, 4), (2048, 256, 2),
                               (100, 8, 3), (30, 16, 3), (9, 16, 2)):
        batches = torch.zeros(num_examples, 1).split(k * b)
        shards, _ = split_batch(batches[0], batches[0], try_devices(k))
        answer = epoch_plan(num_examples, b, k)
        if answer is None:
            return "Not yet: epoch_plan returns nothing."
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            return ("Not yet: return two numbers, updates and examples; "
                    f"you return {answer!r}.")
        updates, busiest = answer
        if updates != len(batches):
            return (f"Not yet: {num_examples} examples in batches of {k * b} "
                    f"are {len(batches)} updates, you say {updates}.")
        if busiest != len(shards[0]):
            return (f"Not yet: of a batch of {len(batches[0])}, the busiest of {k} "
                    f"devices gets {len(shards[0])} examples, you say {busiest}.")
    return "Right."
