"""What the gradients and parameters of k ranks say, compared with those of a single device.

In float64, equal quantities differ by about 1e-15, and unequal ones by far more. Which mistake it is then follows from
the gradients that each rank's own backward passes gave. `Evidence` contains everything that a rule may ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from d2lpar.diagnosis.recording import Record, Step, Values


class Rounding(NamedTuple):
    """The largest relative differences at which two things still count as the same, and what a fit needs."""

    values: float = 1e-9  # of parameters and buffers
    gradients: float = 1e-9
    sums: float = 1e-6  # of gradients, or multiples of one
    factors: float = 1e-4
    per_unknown: int = 2  # numbers, so that a fit is no accident


FLOAT64 = Rounding()
SKETCHES = Rounding(values=1e-6, gradients=1e-4, sums=1e-3, factors=2e-3, per_unknown=4)  # of tensors in float32
TOLERANCE = FLOAT64.values
_rounding = [FLOAT64]
CLIP_EPS = 1e-6  # what clip_grad_norm_ adds to the norm


class Evidence:
    """One step of k ranks compared with the same step of a single device, and what follows from the comparison."""

    def __init__(self, t: int, alone: Record, ranks: Sequence[Record], k: int, labels: Sequence[Sequence[Tensor]],
                 repeatable: bool) -> None:
        self.t, self.k, self._labels = t, k, labels
        one, many = alone.steps[t], [record.steps[t] for record in ranks]
        self.unused = sorted(one.trainable - {name for name, x in one.gradients.items() if x.any()})
        # a generator's step may leave anything in the discriminator
        left = frozenset.intersection(*(thrown_away(record.steps, t) for record in (alone, *ranks)))
        self._is_part = bool(left)
        self.one, *self.many = one, *many = [_without(left, step) for step in (one, *many)]
        self.wrapped, self.no_sync, self.replaced = ranks[0].wrapped, ranks[0].no_sync, many[0].replaced
        self.hooked, self.group_size = ranks[0].hooked, ranks[0].group_size
        self.parameters_averaged = parameters_are_averaged(ranks, t)
        self._next = [record.steps[t + 1].before if t + 1 < len(record.steps) else record.end for record in ranks]
        gradients, self.size = [step.gradients for step in many], norm(one.gradients)

        self.missing = [name for name in one.gradients if any(name not in grads for grads in gradients)]
        self.names = [name for name, x in one.gradients.items()
                      if name not in self.missing and all(grads[name].shape == x.shape for grads in gradients)]
        self.moved_without_gradient = not any([one.gradients, *gradients]) and any(
            moved(step.before, step.after) for step in (one, *many))
        self.apart = differing(step.before for step in many)
        ended = t and not differing(record.steps[t - 1].after for record in (alone, *ranks))
        self.strayed = differing(step.before for step in (one, *many)) if ended and repeatable else []
        self.unlike = [name for name in differing(gradients, self.size) if name in self.names]
        self.wrong = [name for name in differing([one.gradients, gradients[0]], self.size) if name in self.names]
        self.comparable = repeatable and not differing(step.before for step in (one, *many))
        self.right = self.comparable and not self.wrong and not self.unlike
        self._known = {key for step in alone.steps for key in step.examples}
        # buffers that follow the shards; those of BatchNorm are not used in training
        self.buffers_differ = [name for name in differing((step.buffers for step in (one, *many)), nan_is_equal=True)
                               if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))]

        # as vectors: what the ranks took and what a single device took, before PyTorch clipped it, and what their own
        # backward passes gave
        self._taken, self._right = self._flat(many[0].unclipped), self._flat(one.unclipped)
        self._of_one, self._shards = self._flat(one.own), torch.stack([self._flat(step.own) for step in many], 1)
        if len(many) < k:
            self._shards.fill_(torch.nan)  # the others made no step, so theirs is not known
        self._mean = self._shards.mean(1)
        self._sums = rounding_of_sums(many)
        none = [str(r) for r in range(len(many)) if not self._shards[:, r].any()]
        self.without_own = ", ".join(none) if self._of_one.any() and len(none) < k else ""
        self.factor = factor(self._taken, self._right)  # the multiple of the single-device gradient, if it is one
        self.times = f"{self.factor:.7g} times" if self.factor else "no fixed multiple of"
        self.loss = factor(self._mean, self._of_one)  # how many times too large the ranks' own gradients are
        taken, right = self._flat(gradients[0]), self._flat(one.gradients)
        off = ((taken - right).norm() / right.norm()).item()
        self.off = f"the gradient is off by {100 * off:.2g}%"

        self.stale = ", ".join(str(r) for r, step in enumerate(many) if step.stale != one.stale)

        # if parts of the parameters are stepped on different ranks and then sent, a step ends where the next begins
        self.drifted = differing(step.after for step in many)
        self._planned = [step.rates for step in alone.steps if step.held == one.held]  # of this optimizer
        self._made = sum(step.held == one.held for step in alone.steps[:t])
        then = alone.steps[t + 1].before if t + 1 < len(alone.steps) else alone.end
        self.is_sent = is_sent = bool(self.drifted) and not differing(self._next)
        self.ends_right = self.comparable and not differing([then, *self._next])
        after = self._next[0] if is_sent and self.right else many[0].after
        if is_sent and self.ends_right:
            self.drifted = []
        self.other_step, self.step_factor, self.stuck = False, None, []
        if self.right:
            before, end = one.before, then if is_sent else one.after
            ours = flat(after, end) - flat(many[0].before, end)
            theirs = flat(end, end) - flat(before, end)
            self.other_step = bool((ours - theirs).norm() > 1e-6 * theirs.norm())
            self.step_factor = factor(ours, theirs)  # how many times as long the step is
            self.stuck = [name for name, x in end.items() if name in before and name in after
                          and (x - before[name]).norm() > 1e-6 * theirs.norm()
                          and torch.equal(after[name], many[0].before[name])]
            if self.stuck and is_sent:
                self.drifted = []

    def __getitem__(self, key: str) -> object:
        """The value that a rule's text names; of a long list of names, only the first few."""
        value = getattr(self, key)
        return some_names(value, len(self.one.before)) if isinstance(value, list) else value

    def line(self, what: str) -> str:
        """Where in the script that happened last on rank 0 before this step, in brackets; "" if unknown."""
        found = next((step.lines[what] for step in self.many if what in step.lines), "")
        return f" [{found}]" if found else ""

    def _flat(self, values: Values, names: list[str] | None = None) -> Tensor:
        return flat(values, {name: self.one.gradients[name] for name in (self.names if names is None else names)})

    # what went through the network

    @cached_property
    def examples(self) -> str:
        """How the examples of all ranks differ from the single device's, if only known ones were seen; "" if not."""
        ours, theirs = (Counter(key for step in steps for key in step.examples) for steps in (self.many, [self.one]))
        if not ours or len(self.many) < self.k or ours.keys() == theirs.keys() or not ours.keys() <= self._known:
            return ""
        if len({tuple(sorted(step.examples)) for step in self.many}) == 1:
            return "the same"
        if ours.keys() < theirs.keys():
            return "fewer"
        return "more" if ours.keys() > theirs.keys() else "others"

    @property
    def examples_seen(self) -> str:
        """How many of the minibatch's examples the ranks saw."""
        ours, theirs = {key for step in self.many for key in step.examples}, set(self.one.examples)
        return f"{len(ours & theirs)} of the {len(theirs)} examples of the minibatch"

    @property
    def times_examples(self) -> str:
        """How many times as many examples the ranks saw."""
        ours, theirs = sum(len(set(step.examples)) for step in self.many), len(set(self.one.examples))
        return f"{ours / theirs:.3g} times as many" if theirs else "more"

    @cached_property
    def micro_batches(self) -> str:
        """The sizes of the micro-batches, where a rank or the single device has some of different sizes."""
        sizes = next((step.micro_batches for step in (*self.many, self.one) if len(set(step.micro_batches)) > 1), [])
        return " + ".join(map(str, sizes))

    # the exchange: who has whose gradient

    @cached_property
    def own(self) -> list[str]:
        """The parameters for which each rank used its own gradient, or a multiple of it."""
        names = self.unlike
        first = self.many[0].gradients
        for step in self.many:
            own = step.own
            if any(name not in own for name in self.unlike):
                return []
            times = factor(self._flat(step.gradients, self.unlike), self._flat(own, self.unlike)) or 1.0
            kept = {name: torch.where(step.gradients[name] == first[name], step.gradients[name], times * own[name])
                    for name in names}  # of a tensor that was partly exchanged, only the elements that differ
            names = [name for name in names if not far(step.gradients[name], kept[name], self.size)]
        return names

    @cached_property
    def all_own(self) -> bool:
        """Whether `own` is everything that any rank could have exchanged."""
        is_beside = self.wrapped and self._is_part and self.many[0].wrapped.isdisjoint(self.own)  # outside DDP
        others = [{name: step.own[name] for name in self.names if name in step.own and name not in self.own}
                  for step in self.many]  # such as a bias before BatchNorm, whose gradient is zero
        return bool(self.own) and not differing(others, self.size) and not is_beside

    @cached_property
    def exchanges_inside(self) -> bool:
        """Whether the optimizer's step() reduces all gradients, and the parameters are the same on all ranks then."""
        is_reduced = len({step.reduced for step in self.many}) == 1 and all(
            step.reduced >= step.size > 0 for step in self.many)
        is_same = self.is_sent or not differing(step.after for step in self.many)
        return len(self.many) == self.k and is_reduced and is_same and not self.apart and not self.strayed

    @cached_property
    def bypassed(self) -> list[str]:
        """The parameters whose gradients no rank exchanged, if no forward pass went through their wrappers."""
        passed_by = frozenset.intersection(*(step.bypassed for step in self.many))
        return self.own if self.own and passed_by.issuperset(self.own) else []

    @cached_property
    def held_back(self) -> list[str]:
        """Parameters that got no gradient, and that DDP still waits for."""
        exchanging = all(step.exchanging and step.wrapped.issuperset(self.own) for step in self.many)
        waiting = self.unused or sorted(self.many[0].lost)
        return waiting if exchanging and self.own and not self.bypassed and not self.hooked else []

    @property
    def cure_of_unused(self) -> str:
        """What to do about `held_back`."""
        if self.many[0].lost and self.replaced:
            return ("Some were replaced after wrapping, and it waits for the old ones: replace them first, and then "
                    "wrap the network. find_unused_parameters=True would not help")
        return ("Pass find_unused_parameters=True to DDP, use these parameters in the loss, or freeze or tie them "
                "before wrapping")

    @cached_property
    def hook_keeps(self) -> bool:
        """Whether DDP's communication hook leaves each rank its own gradient."""
        return self.hooked and self.all_own and all(step.exchanging for step in self.many)

    @property
    def bypassed_names(self) -> str:
        """The parameters that were not exchanged; "" if none was."""
        return "" if self.all_own else some_names(self.own)

    @property
    def talks(self) -> str:
        """The line on which the script itself exchanged something before this step, in a sentence; "" if none."""
        found = [line for step in self.many for what, line in step.lines.items()
                 if what.startswith(("dist.all_reduce", "dist.all_gather", "dist.reduce"))]
        return (f". The script exchanges something at {found[0]}: if that is meant to be the average, wait for it to "
                f"finish, and write the result into p.grad") if found else ""

    @cached_property
    def parameters_of(self) -> str:
        """The rank whose parameters all ranks have when the next step begins."""
        ranks = [] if differing(self._next) else enumerate(self.many)
        return next((str(r) for r, step in ranks if not differing([step.after, self._next[0]])), "")

    @cached_property
    def unsent(self) -> str:
        """Which of several backward passes each rank kept for itself, if others were sent."""
        passes = [step.passes for step in self.many]
        number = len(passes[0])
        if number < 2 or not self.unlike or any(len(p) != number or any(set(self.unlike) - own.keys() for own in p)
                                                for p in passes):
            return ""
        own = torch.stack([torch.stack([self._flat(grads, self.unlike) for grads in p]) for p in passes])
        change = torch.stack([self._flat(step.gradients, self.unlike) for step in self.many]) - own.sum(1)
        exchange = (own.mean(0) - own).transpose(0, 1).flatten(1).T  # what exchanging each pass would change
        if not are_enough(exchange):
            return ""
        sent = torch.linalg.lstsq(exchange, change.flatten()[:, None], driver="gelsd").solution[:, 0]
        if (exchange @ sent - change.flatten()).norm() > _rounding[-1].sums * own.norm() or (
                sent - sent.round()).abs().max() > 10 * _rounding[-1].sums:
            return ""
        kept = [f"pass {i + 1} of {number}" for i in range(number) if sent[i].round() == 0]
        return ", ".join(kept) if len(kept) < number else ""

    @cached_property
    def sum_on(self) -> str:
        """The ranks whose gradient is the sum or the mean, if it is on some only."""
        total = torch.stack([self._flat(step.own, self.unlike) for step in self.many]).sum(0)
        on = [str(r) for r, step in enumerate(self.many) if factor(self._flat(step.gradients, self.unlike), total)]
        return ", ".join(on) if len(on) < len(self.many) else ""

    @cached_property
    def scaled_after(self) -> str:
        """The numbers by which the ranks multiplied one and the same gradient, if they did."""
        first = self._flat(self.many[0].gradients, self.unlike)
        times = [factor(self._flat(step.gradients, self.unlike), first) for step in self.many]
        return "" if None in times else ", ".join(f"{x:.4g}" for x in times if x)

    @cached_property
    def loss_scales(self) -> str:
        """The factors of the ranks' GradScalers, if they are not the same."""
        scales = [step.scale for step in self.many]
        return "" if len(set(scales)) == 1 else ", ".join(f"{x:g} on rank {r}" for r, x in enumerate(scales))

    # the gradient: the same on all ranks, but not the single device's

    @cached_property
    def exchange(self) -> float | None:
        """The gradient before clipping, in means of the ranks' own gradients: 1 if averaged, k if summed."""
        ours, theirs = factor(self._taken, self._mean), factor(self._right, self._of_one)
        if self._bits:  # rounded, so look for the nearest possible value
            rough = factor(self._taken, self._mean, 1e-2) or 0.0
            return next((x for x in (1.0, float(self.k), 1 / self.k) if abs(rough - x) < 1e-2 * x), None)
        if ours is None or theirs is None or near(theirs, 1):
            return ours
        exact = next((x for x in (1.0, float(self.k), 1 / self.k) if near(ours / theirs, x)), None)
        if exact is not None:
            return exact
        taken, right, own = (x.norm().item() for x in (self._taken, self._right, self._of_one))
        if abs(taken / right - 1) < 1e-2:  # both were clipped to one norm, which hides the factor all but for CLIP_EPS
            bound = right * (own + CLIP_EPS) / own
            return CLIP_EPS * taken / (bound - taken) / self._mean.norm().item() if bound > taken else None
        return ours  # only the single device was clipped

    @cached_property
    def fixed_divisor(self) -> float | None:
        """The integer by which the sum is divided, if it is neither 1 nor k; None if a wrapper averages."""
        ours, theirs = factor(self._taken, self._mean), factor(self._right, self._of_one)
        if self.wrapped or not ours or not near(self.loss, 1):
            return None
        divisor = self.k / ours
        if theirs and not near(theirs, 1):  # the single device divides by it, too
            divisor = 1 / theirs if near(ours, self.k * theirs) else 0.0
        is_whole = round(divisor) > 1 and abs(divisor - round(divisor)) <= 1e-6 * divisor
        return round(divisor) if is_whole and not any(near(divisor, x) for x in (self.k, self.k ** 2)) else None

    @cached_property
    def only_rank(self) -> int | None:
        """The rank whose gradient all ranks used."""
        weights = solve(self._shards, self._taken, self.k, self._sums)
        if weights is None or self.without_own:
            return None
        big = (weights.abs() > self._sums).nonzero().flatten().tolist()
        return big[0] if len(big) == 1 else None

    @cached_property
    def extreme(self) -> str:
        """Whether the largest or the smallest of the ranks' values was taken, element by element."""
        for which, values in (("largest", self._shards.amax(1)), ("smallest", self._shards.amin(1))):
            if not far(self._taken, values, self.size) and far(self._taken, self._mean, self.size):
                return which
        return ""

    @cached_property
    def along_parameters(self) -> float | None:
        """The factor f, if every wrong gradient is the right one plus f times the parameter itself."""
        if sum(self.one.before[name].numel() for name in self.wrong) == 1:
            return None  # two scalars are always proportional
        factors = [factor(self.many[0].unclipped[name] - self.one.unclipped[name], self.one.before[name])
                   for name in self.wrong]
        return factors[0] if factors and factors[0] and all(near(x, factors[0]) for x in factors) else None

    @cached_property
    def in_part(self) -> str:
        """By what factors the gradients of some parameters are too large, if the other gradients are right."""
        if not 0 < len(self.wrong) < len(self.names):
            return ""
        factors = {name: factor(self.many[0].unclipped[name], self.one.unclipped[name]) for name in self.wrong}
        if None in factors.values() or any(
                self.one.gradients[name].numel() < 2 and not near(factors[name], self.k) and not near(
                    factors[name], 1 / self.k) for name in self.wrong):
            return ""
        groups: dict[str, list[str]] = {}
        for name, times in factors.items():
            groups.setdefault(f"{times:.6g}", []).append(name)
        if len(groups) > 2:
            return ""
        return "; ".join(f"{times} times the single-device gradient for {some_names(names)}"
                         for times, names in groups.items())

    @cached_property
    def shares(self) -> str:
        """What a single device weights the shards by: "examples", "tokens" or "others"; "" if nothing known."""
        def are(counts: list[int]) -> bool:
            weights = torch.tensor(counts).double() / sum(counts)
            return len(set(counts)) > 1 and bool((self._shards @ weights - self._of_one).norm()
                                                 <= 1e-6 * self._of_one.norm())

        if not near(self.exchange, 1):
            return ""
        for shards in self._labels:
            if are([len(y) for y in shards]):
                return "examples"
            whole = torch.cat([y.flatten() for y in shards])
            if whole.numel() > sum(map(len, shards)) and not whole.is_floating_point() and any(
                    are([int((y != label).sum()) for y in shards]) for label in whole.unique()[:50]):
                return "tokens"
        weights = solve(self._shards, self._of_one, self.k)
        return "others" if weights is not None and (weights > 0).all() and near(weights.mean().item(), 1) else ""

    @cached_property
    def scaled_by_rank(self) -> str:
        """By what factor each rank's own gradient is too large, if nothing else is wrong."""
        weights = solve(self._shards, self._of_one, self.k)
        if weights is None or not (weights > 1e-6).all() or not near(self.exchange, 1) or self.shares:
            return ""
        return ", ".join(f"{1 / w:.4g} on rank {r}" for r, w in enumerate(weights.tolist()))

    @cached_property
    def clips_differ(self) -> str:
        """How much longer the clipped gradient is than the single device's, if it was the same before clipping."""
        if far(self._taken, self._right):
            return ""
        times = factor(self._flat(self.many[0].gradients), self._flat(self.one.gradients))
        return f"{times:.6g} times that on a single device" if times and not near(times, 1) else ""

    @cached_property
    def _bits(self) -> str:
        """The first of bfloat16, float16 and float32 that represents the gradient used exactly, or ""."""
        kinds = "bfloat16", "float16", "float32"
        return next((kind for kind in kinds if torch.equal(self._taken.to(getattr(torch, kind)).double(), self._taken)),
                    "")

    @cached_property
    def fewer_bits(self) -> str:
        """That dtype, if the gradient used is the single-device gradient rounded to it."""
        off = (self._taken - self._right).norm() / self._right.norm()
        return "as in float32" if off <= 1e-6 else self._bits if off <= 1e-2 else ""

    @cached_property
    def scales(self) -> str:
        """The numbers by which the ranks' own gradients were scaled before the mean, if each has its own."""
        weights = positive(solve(self._shards, self._taken, self.k, self._sums))
        if weights is None or near(weights.max().item(), weights.min().item()):
            return ""
        return "by " + ", ".join(f"{w:.2g}" for w in weights.tolist())

    @cached_property
    def _pass_weights(self) -> Tensor | None:
        passes = [[self._flat(own) for own in step.passes] for step in self.many]
        if sum(map(len, passes)) <= self.k or len(self.many) < self.k:
            return None
        if len(set(map(len, passes))) == 1:  # first with the same weights on all ranks, which needs fewer numbers
            means = torch.stack([torch.stack(own, 1) for own in passes]).mean(0)
            weights = solve(means, self._taken, 1, self._sums)
            if weights is not None:
                return weights.repeat(self.k)
        return solve(torch.stack([own for rank in passes for own in rank], 1), self._taken, self.k, self._sums)

    @cached_property
    def pass_scales(self) -> str:
        """As `scales`, for each backward pass of each rank."""
        weights = positive(self._pass_weights)
        if weights is None or near(weights.max().item(), weights.min().item()):
            return ""
        return ", ".join(f"{w:.2g}" for w in weights.tolist())

    @property
    def equal_passes(self) -> bool:
        """Whether each backward pass of each rank counts the same."""
        weights = positive(self._pass_weights)
        return weights is not None and near(weights.max().item(), weights.min().item())

    @property
    def pass_sums(self) -> bool:
        """Whether each pass counts k times as much as the next, on all ranks."""
        if self._pass_weights is None or len(self._pass_weights) % self.k:
            return False
        weights = self._pass_weights.view(self.k, -1)
        return all(near(x, self.k * y) for row in weights.tolist() for x, y in zip(row, row[1:]))

    # the update

    @cached_property
    def rates_differ(self) -> str:
        """The rates of the ranks, if they are not the same."""
        rates = [step.rates for step in self.many]
        return "" if all(rate == rates[0] for rate in rates) else " and ".join(
            f"{', '.join(f'{lr:.3g}' for lr in rate)} on rank {r}" for r, rate in enumerate(rates))

    @cached_property
    def off_schedule(self) -> str:
        """The ranks' rate and a single device's, if they differ because a scheduler is ahead or behind.

        A warm-up to k times the rate of a single device does not count: a single device's rate is constant then, or the
        ranks' rate is not the one that calling the scheduler k times per step would give.
        """
        ours, theirs, planned = self.many[0].rates, self.one.rates, self._planned
        if not self.right or ours == theirs or len(set(map(tuple, planned))) == 1:
            return ""
        ahead = planned[self.k * self._made] if self.k * self._made < len(planned) else ours
        is_ahead = all(map(near, ours, ahead))
        return " instead of ".join(", ".join(f"{lr:.3g}" for lr in rates) for rates in (ours, theirs)) * is_ahead

    @cached_property
    def others_differ(self) -> bool:
        """Whether what the optimizer trains outside the network differs between ranks."""
        first, *others = [step.others for step in self.many]
        return any(len(own) != len(first) or any(map(far, own, first)) for own in others)


# between records


def parameters_are_averaged(ranks: Sequence[Record], t: int = 0) -> bool:
    """Whether replicas that differ after a step from t on are the same again before the next step, or at the end."""
    left = zip(*([step.after for step in record.steps[t:]] for record in ranks))
    found = zip(*([*(step.before for step in record.steps[t + 1:]), record.end] for record in ranks))
    return any(differing(ours) and not differing(theirs) for ours, theirs in zip(left, found))


def right_by_averaged_parameters(alone: Record, ranks: Sequence[Record]) -> bool:
    """Whether parameters are averaged: before each step they are the single device's, and after it their mean is."""
    for step, *many in zip(alone.steps, *(record.steps for record in ranks)):
        if differing(other.before for other in (step, *many)):
            return False
        means = {name: torch.stack([other.after[name] for other in many]).mean(0) for name in step.after}
        if differing([step.after, means]):
            return False
    return parameters_are_averaged(ranks) and not differing(record.end for record in (alone, *ranks))


def moves(record: Record) -> bool:
    """Whether any step leaves a parameter with a different value from the one before the first step."""
    return any(moved(record.steps[0].before, step.after) for step in record.steps)


def has_only_zero_gradients(record: Record) -> bool:
    """Whether there are gradients, and every one of them is exactly zero."""
    gradients = [x for step in record.steps for x in step.gradients.values()]
    return bool(gradients) and not any(x.any() for x in gradients)


def thrown_away(steps: Sequence[Step], t: int) -> frozenset[str]:
    """Parameters whose gradients are used neither in step t nor in the next step of their own optimizer."""
    found = set()
    for name, x in steps[t].gradients.items():
        if name not in steps[t].held and any(name in step.held for step in steps):
            then = next((step.gradients.get(name) for step in steps[t + 1:] if name in step.held), None)
            if then is None or not torch.equal(then, x):
                found.add(name)
    return frozenset(found)


def _without(names: frozenset[str], step: Step) -> Step:
    gradients, unclipped = ({name: x for name, x in values.items() if name not in names}
                            for values in (step.gradients, step.unclipped))
    return step._replace(gradients=gradients, unclipped=unclipped)


def same_steps(ours: Record, theirs: Record) -> bool:
    """Whether all gradients of two records agree; always true if `train` makes a network of its own."""
    if differing([theirs.steps[0].before, ours.steps[0].before]):
        return True
    return len(ours.steps) == len(theirs.steps) and not any(
        differing([b.gradients, a.gradients], norm(b.gradients))
        for a, b in zip(ours.steps, theirs.steps) if are_finite(b.gradients))


# between tensors


@contextmanager
def rounding(tolerances: Rounding) -> Iterator[None]:
    """Compare with these tolerances instead of those for float64."""
    _rounding.append(tolerances)
    try:
        yield
    finally:
        _rounding.pop()


def moved(before: Values, after: Values) -> bool:
    """Whether any parameter has changed, even by a single bit."""
    return any(name in before and not torch.equal(x, before[name]) for name, x in after.items())


def differing(values: Iterable[dict], size: float = 0.0, nan_is_equal: bool = False) -> list:
    """The names of the tensors that differ between these, or are missing from some; `size` as for `far`."""
    first, *others = values
    return [name for name in dict.fromkeys(name for each in (first, *others) for name in each)
            if any(far(other.get(name), first.get(name), size, nan_is_equal) for other in others)]


def far(ours: Tensor | None, theirs: Tensor | None, size: float = 0.0, nan_is_equal: bool = False) -> bool:
    """Whether two tensors differ by more than rounding, even in sums of terms as large as `size` that cancel.

    Infinity is the same as infinity, as in the mask of an attention layer; NaN only where a buffer may hold it.
    """
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return True
    same = ours == theirs
    if nan_is_equal:
        same |= ours.isnan() & theirs.isnan()
    off = torch.where(same, 0.0, ours - theirs).norm().item()
    reference = torch.where(theirs.isfinite(), theirs, 0.0).norm().item()
    tolerance = _rounding[-1].gradients if size else _rounding[-1].values
    return not off <= tolerance * max(reference, 1e-3 * size, 1e-300)


def are_finite(values: Values) -> bool:
    """Whether no number is infinite or NaN."""
    return all(bool(x.isfinite().all()) for x in values.values())


def factor(ours: Tensor, theirs: Tensor, tolerance: float | None = None) -> float | None:
    """The factor f with ours = f * theirs; None if there is none, or if it is zero."""
    ours, theirs = ours.flatten(), theirs.flatten()
    times = (ours @ theirs / (theirs @ theirs)).item() if theirs.any() else 0.0
    tolerance = tolerance or _rounding[-1].sums
    return times if times and (ours - times * theirs).norm() <= tolerance * ours.norm() else None


def are_enough(columns: Tensor) -> bool:
    """Whether there are enough numbers to fit a weight for each column. A row of zeros does not count."""
    return int(columns.any(1).sum()) >= _rounding[-1].per_unknown * columns.shape[1]


def rounding_of_sums(many: Sequence[Step]) -> float:
    """How far a sum of these steps' gradients may be off, relative to it, where its dtype rounds each addition."""
    additions = max(len(step.passes) for step in many) + 1  # the exchange is another one
    return max(_rounding[-1].sums, max(step.eps for step in many) * additions ** 0.5)


def solve(columns: Tensor, whole: Tensor, k: int, tolerance: float | None = None) -> Tensor | None:
    """The weights, times k, with which `columns` add up to `whole`; None if they do not, or if too few rows tell.

    They are all the same unless other weights fit much better: rounding alone can make other weights fit a little
    better.
    """
    if not are_enough(columns) or not whole.any() or not columns.isfinite().all():
        return None
    weights = torch.linalg.lstsq(columns, whole[:, None], driver="gelsd").solution[:, 0]
    total = columns.sum(1)
    same = torch.full_like(weights, (total @ whole / (total @ total)).item() if total.any() else 0.0)
    off, off_same = ((columns @ these - whole).norm() for these in (weights, same))
    if off_same < 10 * off:
        weights, off = same, off_same
    return k * weights if off <= (tolerance or _rounding[-1].sums) * whole.norm() else None


def positive(weights: Tensor | None) -> Tensor | None:
    """The weights that are not zero up to rounding, if all of these are positive and there are several."""
    if weights is None:
        return None
    kept = weights[weights.abs() > _rounding[-1].sums * weights.abs().max()]
    return kept if len(kept) > 1 and (kept > 0).all() else None


def norm(values: Values) -> float:
    """The norm of all tensors together."""
    return sum(x.norm().item() ** 2 for x in values.values()) ** 0.5


def flat(values: Values, like: Values) -> Tensor:
    """The tensors one after another, in the order of others, with zeros for those that are missing."""
    return torch.cat([torch.zeros(0), *(values.get(name, torch.zeros_like(x)).flatten() for name, x in like.items())])


def near(a: float | None, b: float) -> bool:
    """Whether two factors are the same, up to rounding."""
    return a is not None and abs(a - b) <= _rounding[-1].factors * abs(b)


def some_names(names: Sequence[str], of: int = 0) -> str:
    """A few names for a sentence."""
    if len(names) == of > 1:
        return f"all {of} parameters"
    return ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)

