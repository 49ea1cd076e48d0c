"""What the gradients and parameters of k ranks say, beside those of one worker: each mistake by its name.

In float64, what is the same differs by 1e-15 or so, and what is not by far more. What it is then follows from the
gradients that each rank's own backward pass gave: a sum that nobody divided is twice theirs, and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from textwrap import fill

import torch
from torch import Tensor

from d2lpar.processes.recording import Record, Step, Values

TOLERANCE = 1e-9  # relative, in float64


class Diagnosis:
    """What `diagnose` has found: `faults`, and `notes` on what is as expected, by name; `ok` if there is no fault.

    Its text, as `print` shows it, says both in sentences.
    """

    def __init__(self, about: str) -> None:
        self.about, self.faults, self.notes = about, {}, {}

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def __str__(self) -> str:
        lines = [f"{'no fault found' if self.ok else 'not right'}: {self.about}"]
        lines += [f"FAULT, {name}: {words}" for name, words in self.faults.items()]
        lines += [f"note, {name}: {words}" for name, words in self.notes.items()]
        return "\n".join(fill(line, 88, subsequent_indent="    ", break_on_hyphens=False) for line in lines)


def compare(alone: Record, ranks: Sequence[Record], sizes: Sequence[int], found: Diagnosis) -> None:
    """Write down what differs, up to the first step with a fault; what comes after may be its consequence."""
    _compare_starts(alone, ranks, found)
    counts = [len(record.steps) for record in ranks]
    if counts != [len(alone.steps)] * len(ranks):
        found.faults["other steps"] = f"one worker makes {len(alone.steps)} steps, and the ranks make {counts}"
    if found.ok and _right_by_averaged_parameters(alone.steps, [record.steps for record in ranks]):
        found.notes["parameters averaged"] = (
            "each rank steps with the gradient of its own shard, and the parameters are averaged: on equal shards and "
            "with plain SGD, as here, that is the same as to average the gradients. With Adam or clipping it is not")
        return
    right = False
    for t, (one, *many) in enumerate(zip(alone.steps, *(record.steps for record in ranks))):
        if not found.ok and t > 0:
            return
        if not all(_values_are_finite(step) for step in (one, *many)):
            bad = ["one worker"] * (not _values_are_finite(one))
            bad += [f"rank {r}" for r, step in enumerate(many) if not _are_finite(step.own)]
            found.faults["NaN"] = (f"a number is infinite or NaN in step {t + 1}, "
                                   f"first in the backward pass of {' and '.join(bad) or 'nobody: look at the sum'}")
            return
        later = [record.steps[t:] for record in ranks]
        shared = _compare_exchange(one, many, later, found)
        comparable = not any(_far(step.before.get(name), x) for step in many for name, x in one.before.items())
        right = comparable and _compare_gradients(one, many, shared, sizes, found)
        if found.ok:
            _compare_updates(one, many, right, found, f"{t + 1} of {len(alone.steps)}")
    if found.ok and alone.losses and right:
        _compare_losses(alone, ranks, found)


def _compare_starts(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> None:
    """Replicas begin alike, and as one worker does."""
    first = [alone.steps[0].before, *(record.steps[0].before for record in ranks if record.steps)]
    off = [name for name in first[0] if any(_far(other.get(name), first[0][name]) for other in first[1:])]
    if off:
        found.faults["different start"] = (f"{_names(off, first[0])} {_are(off)} not the same on all ranks before the "
                                           "first step; broadcast rank 0's")
    buffers = [{name: x.double() for name, x in record.buffers.items()} for record in (alone, *ranks)]
    off = [name for name, x in buffers[0].items() if any(_far(other[name], x) for other in buffers if name in other)]
    if off:
        found.faults["different buffers"] = (f"{_names(off, ())} {_are(off)} not the same on all ranks at the first "
                                             "forward pass; broadcast rank 0's buffers too")


def _compare_exchange(one: Step, many: Sequence[Step], later: Sequence[Sequence[Step]], found: Diagnosis) -> list[str]:
    """The names of the parameters that all ranks have the same gradient of, after saying what is with the others."""
    size = _norm(one.gradients)
    reached = [name for name in one.gradients if all(name in step.gradients for step in many)]
    missing = [name for name in one.gradients if name not in reached]
    if missing:
        found.faults["missing gradient"] = f"{_names(missing, one.before)} {_has(missing)} none on some rank"
    idle = [name for name in one.trainable if not any(_norm({0: s.gradients[name]}) for s in (one, *many)
                                                      if name in s.gradients)]
    if not any(step.gradients for step in (one, *many)):
        if any(not torch.equal(x, step.after[name]) for step in (one, *many) for name, x in step.before.items()):
            found.faults["no gradient"] = "a step has moved parameters without a gradient: it cannot be compared"
    elif idle:
        found.notes.setdefault("not reached", f"no rank has a gradient of {_names(idle, one.before)}, and one worker "
                                              "has none either: no loss depends on it here")
    unlike = [name for name in reached
              if any(_far(step.gradients[name], many[0].gradients[name], size) for step in many)]
    own = [name for name in unlike
           if not any(_far(step.gradients[name], step.own.get(name), size) for step in many)]
    others, new = [name for name in unlike if name not in own], sorted(many[0].replaced)
    if own and _parameters_are_averaged(later):
        found.faults["parameters averaged"] = (
            "each rank steps with the gradient of its own shard, and the parameters are averaged: that is not the "
            "same with Adam or clipping, nor if it comes before the step. Average the gradients, before the step")
    elif own and len(own) == len(reached):
        why = f" ({_names(new, one.before)} {_are(new)} new: replaced after the wrapping?)" if new else ""
        found.faults["not synchronised"] = f"each rank steps with the gradient of its own shard; nobody averages{why}"
    elif own:
        why = f" ({'replaced' if new else 'unfrozen'} after the wrapping, or left out of a loop of your own?)"
        found.faults["not exchanged"] = (f"of {_names(own, one.before)}, each rank has its own shard's gradient{why}; "
                                         "wrap the network when it is complete and all that will train asks for a "
                                         "gradient")
    if others:
        found.faults["different gradients"] = (f"the ranks differ in the gradient of {_names(others, one.before)}: "
                                               "a sum that only one rank has, or one that came too late?")
    return [name for name in reached if name not in unlike]


def _compare_gradients(one: Step, many: Sequence[Step], shared: Sequence[str], sizes: Sequence[int],
                      found: Diagnosis) -> bool:
    """Whether what was shared is the gradient of the whole minibatch; says, if not, which one of the shards' it is."""
    k, size = len(many), _norm(one.gradients)
    off = [name for name in shared if _far(many[0].gradients[name], one.gradients[name], size)]
    if not off:
        return True
    right, ours = _flat(one.gradients, off), _flat(many[0].gradients, off)
    by = f"off by {((ours - right).norm() / right.norm()).item():.2g} of its size, on shards of {shards(sizes)}"
    factor = (ours @ right / (right @ right)).item()
    own = torch.stack([_flat({name: step.own.get(name, torch.zeros_like(one.gradients[name])) for name in off}, off)
                       for step in many], 1)
    weights = torch.linalg.lstsq(own, ours[:, None], driver="gelsd").solution[:, 0]
    explained = (own @ weights - ours).norm() <= 1e-6 * ours.norm()
    alike = bool(explained and (weights - weights.mean()).abs().max() <= 1e-6 * weights.abs().max())
    if (ours - factor * right).norm() <= 1e-6 * ours.norm():
        name = "summed" if _near(factor, k) else "divided twice" if _near(factor, 1 / k) else "scaled"
        why = {"summed": "the gradients of the ranks are added up, and nobody divides by their number, or somebody "
                         "by a fixed one: use get_world_size()",
               "divided twice": "the loss is divided by the whole batch, and then the average divides by the number "
                                "of ranks again; with DDP, take the mean over the shard, or multiply by the world size",
               "scaled": "who else divides or multiplies? If you clip, look without it: clipping hides a factor"}[name]
        found.faults[name] = f"the gradient is {factor:.7g} times one worker's: {why}"
    elif alike and len(set(sizes)) > 1:
        found.notes["mean of means"] = (f"right on equal shards, but all shards count alike, also smaller ones: {by}. "
                                        "If yours can be unequal, sum, and divide by the number of all examples")
    elif alike:
        found.faults["not a mean over examples"] = (f"the shards' gradients are averaged, but the whole's is another, "
                                                    f"{by}: does an example's loss depend on the others, or is it "
                                                    "divided by something that differs between shards?")
    elif explained and (weights > 0).all():
        found.faults["clipped before the sum"] = (
            f"each shard's gradient is scaled by a number of its own, {', '.join(f'{k * w:.2g}' for w in weights)}, "
            f"before they are averaged: {by}. Average first, then clip")
    else:
        found.faults["another gradient"] = f"{_names(off, one.before)}: {by}; not a combination that this check knows"
    return False


def _compare_updates(one: Step, many: Sequence[Step], comparable: bool, found: Diagnosis, seen: str) -> None:
    """From the same gradients come the same parameters, on all ranks."""
    off = [name for name in one.after if any(_far(step.after[name], many[0].after[name]) for step in many)]
    if off:
        found.faults["drift"] = (f"{_names(off, one.before)} {_are(off)} no more the same on all ranks after a step, "
                                 "though the gradients were: another rate or optimizer on some rank?")
    elif not all(torch.equal(step.after[name], many[0].after[name]) for step in many for name in one.after):
        found.notes["last bits"] = "the replicas are the same up to rounding only: ranks add up in different orders"
    if not off and comparable:
        ours, theirs = (torch.cat([(step.after[name] - step.before[name]).flatten() for name in one.after])
                        for step in (many[0], one))
        factor = (ours @ theirs / (theirs @ theirs)).item() if theirs.any() else 1.0
        if (ours - theirs).norm() > 1e-6 * theirs.norm():
            if (ours - factor * theirs).norm() <= 1e-6 * ours.norm():
                found.notes["another rate"] = (f"the gradient is one worker's and the step is {factor:.4g} times as "
                                               "long: is the rate multiplied by the number of ranks? So nothing "
                                               f"after step {seen} was compared with one worker: try it with one "
                                               "rate for both, too")
            else:
                found.faults["another update"] = "the gradient is one worker's, and the step is not"


def _compare_losses(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> None:
    """The losses that the ranks return are one worker's, or have it as their mean."""
    assert alone.losses is not None
    if any(record.losses is None or len(record.losses) != len(alone.losses) for record in ranks):
        return
    means = torch.tensor([record.losses for record in ranks]).double().mean(0)
    if (means - torch.tensor(alone.losses).double()).abs().max() > 1e-6 * max(map(abs, alone.losses)):
        found.notes["reported loss"] = (f"one worker reports {alone.losses[0]:.4g} first, and the mean over the ranks "
                                        f"is {means[0]:.4g}, though the gradient is the same")


def note_batchnorm(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> None:
    """How far BatchNorm that sees shards only takes the first gradient from one worker's."""
    one, ours = alone.steps[0].gradients, ranks[0].steps[0].gradients
    right = _flat(one, [*one])
    off = ((_flat(ours, [*one]) - right).norm() / right.norm()).item()
    if off > TOLERANCE:
        found.notes["BatchNorm"] = (f"sees its shard only, so the first gradient is off by {off:.2g} of its size, as "
                                    "expected; all else was compared with BatchNorm synchronised")


def _right_by_averaged_parameters(one: Sequence[Step], many: Sequence[Sequence[Step]]) -> bool:
    """Whether parameters are averaged, and each step leads from those of one worker to ones with its as their mean."""
    def differs(alone: Step, steps: Sequence[Step]) -> bool:
        means = {name: torch.stack([step.after[name] for step in steps]).mean(0) for name in alone.after}
        return any(_far(means[name], x) or any(_far(step.before[name], alone.before[name]) for step in steps)
                   for name, x in alone.after.items())

    return _parameters_are_averaged(many) and not any(map(differs, one, zip(*many)))


def moves(record: Record) -> bool:
    """Whether a step leaves a parameter elsewhere than where the first step found it."""
    first = record.steps[0].before
    return any(not torch.equal(x, first[name]) for step in record.steps for name, x in step.after.items())


def _parameters_are_averaged(later: Sequence[Sequence[Step]]) -> bool:
    """Whether replicas that a step has left apart are the same again before the next."""
    def same(values: Sequence[Values]) -> bool:
        return not any(_far(other[name], values[0][name]) for other in values for name in values[0])

    return any(not same([steps[t].after for steps in later]) and same([steps[t + 1].before for steps in later])
               for t in range(len(later[0]) - 1))


def same_steps(ours: Record, theirs: Record) -> bool:
    """Whether two records agree in all gradients; those of a network that `train` itself makes anew need not."""
    if any(_far(ours.steps[0].before.get(name), x) for name, x in theirs.steps[0].before.items()):
        return True
    return len(ours.steps) == len(theirs.steps) and not any(
        _far(a.gradients.get(name), x, _norm(b.gradients))
        for a, b in zip(ours.steps, theirs.steps) if _values_are_finite(b) for name, x in b.gradients.items())


def _values_are_finite(step: Step) -> bool:
    """Whether no gradient and no parameter is infinite or NaN."""
    return all(_are_finite(values) for values in (step.before, step.gradients, step.after))


def _are_finite(values: Values) -> bool:
    """Whether no number is infinite or NaN."""
    return all(bool(x.isfinite().all()) for x in values.values())


def _far(ours: Tensor | None, theirs: Tensor | None, size: float = 0.0) -> bool:
    """Whether two tensors differ by more than rounding, also of sums as large as `size` in which they cancel."""
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return True
    return not (ours - theirs).norm().item() <= TOLERANCE * max(theirs.norm().item(), 1e-3 * size, 1e-300)


def _norm(values: dict) -> float:
    """The length of all tensors together."""
    return sum(x.norm().item() ** 2 for x in values.values()) ** 0.5


def _flat(values: Values, order: Sequence[str]) -> Tensor:
    """The tensors one after another, in float64."""
    return torch.cat([values[name].flatten().double() for name in order])


def _near(a: float, b: float) -> bool:
    """Whether two factors are the same, up to rounding."""
    return abs(a - b) <= 1e-6 * abs(b)


def _names(some: Sequence[str], of: Collection[str]) -> str:
    """A few names for a sentence."""
    if len(some) == len(of) > 1:
        return f"all {len(of)} parameters"
    return ", ".join(some[:3]) + f" and {len(some) - 3} more" * (len(some) > 3)


def _are(some: Sequence[str]) -> str:
    """Is or are."""
    return "are" if len(some) > 1 else "is"


def _has(some: Sequence[str]) -> str:
    """Has or have."""
    return "have" if len(some) > 1 else "has"


def shards(sizes: Sequence[int]) -> str:
    """Sizes, as in 8 + 8."""
    return " + ".join(map(str, sizes))
