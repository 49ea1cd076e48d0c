"""The check of the exercise `ex-means`."""

import torch

from d2lpar.one_step.yardstick import distance


def check(combine):
    """What is not right yet of the answer, in words, or "Right."."""
    for sizes in ([6, 6], [9, 3], [2, 9, 1], [12, 0], [0, 5, 0, 8], [3, 1, 4, 1, 5, 9]):
        gradients = torch.randn(sum(sizes), 2, 3, dtype=torch.float64)
        if len(sizes) == 3:
            gradients[0, 0, 0] = torch.nan  # of a shard that has examples
        means, told = [part.mean(0) for part in gradients.split(sizes)], list(sizes)
        given = [mean.clone() for mean in means]
        answer, right = torch.as_tensor(combine(given, told)), gradients.mean(0)
        if answer.shape != right.shape:
            return "Not yet: combine must give one tensor of the shape of each mean."
        if told != sizes or not all(map(torch.equal, *(
                [mean.nan_to_num(7) for mean in them] for them in (given, means)))):
            return "Not yet: combine must leave the means and the sizes as they are."
        if not torch.equal(answer.isnan(), right.isnan()):
            return f"Not yet: for shards of {sizes} nan is not where it has to be."
        off = distance([answer.nan_to_num(0)], [right.nan_to_num(0)])
        if not off < 1e-12:
            return (f"Not yet: for shards of {sizes} you are {off:.2g} off, relatively."
                    + " Were numbers rounded to float32?" * (off < 1e-6))
    return "Right."
