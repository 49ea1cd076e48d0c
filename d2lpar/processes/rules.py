"""What the gradients and parameters of k ranks say, beside those of one worker: each mistake by its name.

In float64, what is the same differs by 1e-15 or so, and what is not by far more. What it is then follows from the
gradients that each rank's own backward passes gave. `RULES` is the table; `Evidence` is all that a rule may ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from textwrap import fill
from typing import Any, NamedTuple

import torch
from torch import Tensor

from d2lpar.processes.recording import Record, Step, Values

TOLERANCE = 1e-9  # relative, in float64
CLIP_EPS = 1e-6  # what clip_grad_norm_ adds to the norm


class Rule(NamedTuple):
    """One thing that can be seen: what it is, its name, the numbers, what to do; a note if it can be wanted."""

    stage: str  # what is looked at; of the stages of a step, the first rule that holds speaks
    name: str
    holds: Callable[[Evidence], object]
    seen: str
    numbers: str
    cure: str
    fault: bool = True


def _elsewhere(_: Evidence) -> bool:
    """Of the whole training: `compare` or `diagnose` says it by its name."""
    return False


RULES = [
    Rule("training", "hangs", _elsewhere, "some ranks have not finished in time", "{stands}",
         "All ranks must call the same collectives in the same order. Does a rank skip a minibatch, stop or save by "
         "itself?"),
    Rule("training", "raises", _elsewhere, "it raises an error", "{error}", "What the first step shows is said, too"),
    Rule("training", "other parameters", _elsewhere, "no step moves a parameter of the network that train was given",
         "", "Does the optimizer hold those of another, of a copy perhaps?"),
    Rule("training", "different start", _elsewhere, "parameters are not the same on all ranks before the first step",
         "{names}", "Broadcast rank 0's, after all is loaded. If a seed makes them alike, set it in make_net"),
    Rule("training", "different buffers", _elsewhere, "buffers are not the same on all ranks at the first forward pass",
         "{names}", "Broadcast rank 0's buffers too"),
    Rule("training", "other steps", _elsewhere, "the ranks make other numbers of steps than one worker",
         "{ranks}, and {alone}", "Does a rank decide by itself, by its own loss or data? Let all decide together"),
    Rule("training", "NaN", _elsewhere, "a number is infinite or NaN", "in step {step}, first in {where}",
         "Look at the examples of that rank, or at what is done with the sum"),
    Rule("training", "different end", _elsewhere,
         "after the last step the network is the same on all ranks, and at the end it is not", "{names}",
         "Was an average of the weights begun before they were the same, or something loaded on some ranks only?"),

    Rule("exchange", "changed between steps", lambda e: e.t and e.apart,
         "the ranks ended a step alike, and begin the next with different parameters", "{apart}",
         "Is something loaded or averaged on some ranks only?"),
    Rule("exchange", "changed unlike one worker", lambda e: e.strayed,
         "between two steps the ranks change their parameters, alike, but not as one worker does", "{strayed}",
         "Does the change depend on the number of ranks, or on a shard?"),
    Rule("exchange", "no gradient", lambda e: e.moved_without_gradient,
         "a step moves parameters that have no gradient", "", "Such an optimizer cannot be compared"),
    Rule("exchange", "missing gradient", lambda e: e.missing,
         "some ranks have no gradient of what one worker has one of", "{missing}",
         "Does every rank use the same layers?"),
    Rule("exchange", "one rank's parameters", lambda e: e.own and e.parameters_of,
         "each rank steps with its own gradient, and then all get the parameters of one", "of rank {parameters_of}",
         "What the others have learned is lost: average the gradients, before the step"),
    Rule("exchange", "parameters averaged", lambda e: e.own and e.parameters_averaged,
         "each rank steps with its own gradient, and the parameters are averaged", "",
         "Before the step, or with Adam or clipping, that is not the same. Average the gradients"),
    Rule("exchange", "in no_sync", lambda e: e.all_own and e.no_sync,
         "there is a DDP that was told not to send, and each rank has its own gradient", "",
         "Leave no_sync in the last forward and backward pass before each step"),
    Rule("exchange", "around DDP", lambda e: e.all_own and e.wrapped and not e.replaced,
         "there is a DDP, and yet each rank has its own gradient", "",
         "Call the wrapper, net(X), not net.module(X) and not what was wrapped; then backward, not autograd.grad"),
    Rule("exchange", "not synchronised", lambda e: e.all_own and not e.replaced,
         "each rank steps with the gradient of its own shard, nobody averages", "",
         "Wrap the network in DDP, or write what you have averaged into grad"),
    Rule("exchange", "not exchanged", lambda e: e.own,
         "of some parameters each rank has its own gradient", "{own}",
         "Added, replaced or unfrozen after the wrapping, or left out of a loop of your own? Wrap the network when it "
         "is complete, and all that will train asks for a gradient"),
    Rule("exchange", "no_sync around the last", lambda e: e.unsent and e.no_sync,
         "DDP was told not to send, and of several backward passes not all are exchanged", "not {unsent}",
         "no_sync belongs around all but the last forward and backward pass before a step"),
    Rule("exchange", "two backward passes for one forward",
         lambda e: e.unsent and any(len(step.passes) > step.forwards > 0 for step in e.many),
         "of several backward passes not all are exchanged, and there were fewer forward passes", "not {unsent}",
         "DDP sends in the first backward pass after its forward pass: add up the losses, call backward once"),
    Rule("exchange", "a backward pass not sent", lambda e: e.unsent,
         "of several backward passes not all are exchanged", "not {unsent}",
         "DDP sends in the first backward pass after its forward pass: go forward and backward in turn, always by the "
         "wrapper, or add up the losses and call backward once"),
    Rule("exchange", "only some ranks have the sum", lambda e: e.sum_on,
         "some ranks have the sum of all gradients, the others have not", "the sum is on rank {sum_on}",
         "Use all_reduce, not reduce"),
    Rule("exchange", "different gradients", lambda e: e.unlike,
         "the ranks step with different gradients", "{unlike}",
         "Is there a sum that nobody waits for, or that is written to another tensor, or a gradient by autograd.grad, "
         "which DDP does not see?"),

    Rule("gradient", "one rank's gradient", lambda e: e.only_rank is not None,
         "all ranks step with the gradient of one of them", "that of rank {only_rank}",
         "The others' are lost: all_reduce, not broadcast"),
    Rule("gradient", "skipped by some", lambda e: e.without_own,
         "some ranks have no gradient of their own, and the others have", "none on rank {without_own}",
         "Does a rank skip a minibatch by its own loss? Let all decide together, by an all_reduce"),
    Rule("gradient", "sharded twice", lambda e: e.examples == "fewer",
         "fewer examples go through the network on ranks than on one worker", "{examples_seen}",
         "The minibatch is a shard already: leave out what cuts it again, a sampler or [rank::k]"),
    Rule("gradient", "other examples", lambda e: e.examples == "others",
         "other examples go through the network on ranks than on one worker in the same step", "{examples_seen}",
         "Shuffle alike on all ranks, with a seed that is not the rank's, and then share"),
    Rule("gradient", "the others' gradients are lost", lambda e: len(e.many) < e.k and not e.factor,
         "only some ranks step, and not with the gradient of the minibatch", "{off}",
         "Do the gradients of the others reach the ranks that step?"),
    Rule("gradient", "added on each rank", lambda e: e.along_parameters,
         "what is too much points along the parameters", "{along_parameters:.3g} times them",
         "A penalty such as weight decay is added on each rank, and then added up: divide it by the number of ranks"),
    Rule("gradient", "divided by a fixed number", lambda e: e.fixed_divisor,
         "the gradients are added up, and divided by a number that is not that of the ranks",
         "by {fixed_divisor:.4g} on {k} ranks", "Divide by get_world_size()"),
    Rule("gradient", "summed after DDP",
         lambda e: e.wrapped and not e.no_sync and _near(e.exchange, e.k) and _near(e.loss, 1),
         "the gradients are added up, though there is a DDP, which averages", "{times} one worker's",
         "Leave out your own all_reduce"),
    Rule("gradient", "summed", lambda e: _near(e.exchange, e.k) and not _near(e.loss, 1 / e.k),
         "the gradients of the ranks are added up, and nobody divides by their number", "{times} one worker's",
         "Divide by get_world_size(), once"),
    Rule("gradient", "loss times the ranks", lambda e: _near(e.exchange, 1) and _near(e.loss, e.k),
         "the gradients are averaged, and each is as many times too large as there are ranks", "{times} one worker's",
         "The loss is multiplied by the number of ranks though it is a mean over the shard: leave that out"),
    Rule("gradient", "divided twice", lambda e: _near(e.exchange, 1) and _near(e.loss, 1 / e.k),
         "the gradients are averaged, and each is as many times too small as there are ranks", "{times} one worker's",
         "The loss is a sum, or is divided by the whole batch or by the number of ranks, and DDP divides again: take "
         "the mean over the shard. If it gathers from all ranks: all_gather carries no gradient"),
    Rule("gradient", "averaged twice", lambda e: _near(e.exchange, 1 / e.k) and _near(e.loss, 1),
         "the average of the gradients is divided by the number of ranks once more", "{times} one worker's",
         "It has been divided already: leave out the division after backward"),
    Rule("gradient", "scaled", lambda e: e.factor and not _near(e.factor, 1),
         "the gradient is one worker's times a number", "{times} one worker's",
         "Look for a factor, on the loss or on the gradient, that depends on the number of ranks"),
    Rule("gradient", "fewer bits", lambda e: e.fewer_bits,
         "what was sent or computed has fewer bits", "{fewer_bits}, {off}", "If you wanted that, all is well", False),
    Rule("gradient", "mean of means", lambda e: e.shares == "examples",
         "shards of different sizes count alike", "{off}",
         "If yours can be unequal: sum, divide by the number of examples of all ranks, and with DDP multiply by "
         "get_world_size()", False),
    Rule("gradient", "mean over tokens", lambda e: e.shares == "tokens",
         "shards with different numbers of tokens count alike, as padded ones are left out", "{off}",
         "Sum, divide by the number of tokens of all ranks, and with DDP multiply by get_world_size()"),
    Rule("gradient", "weighted mean", lambda e: e.shares == "others",
         "shards count alike that one worker weighs, as by class weights or labels left out", "{off}",
         "To be exact: sum, divide by the sum of the weights of all ranks, and with DDP multiply by get_world_size()",
         False),
    Rule("gradient", "not a mean over examples", lambda e: _near(e.exchange, 1),
         "the shards' gradients are averaged, and the whole's is no such mean", "{off}",
         "An example's loss depends on the others in its shard: gather what it needs from all ranks, with its "
         "gradient"),
    Rule("gradient", "clipped before the sum", lambda e: e.scales,
         "each shard's gradient is scaled by a number of its own, and then averaged", "by {scales}",
         "Average first, then clip"),
    Rule("gradient", "summed in each micro-batch", lambda e: e.pass_sums,
         "the sum of one micro-batch is added up again with the next", "by {pass_scales}",
         "Exchange once, after the last backward pass"),
    Rule("gradient", "clipped in each micro-batch", lambda e: e.pass_scales,
         "each micro-batch's gradient is scaled by a number of its own", "by {pass_scales}",
         "Clip once, after the last backward pass"),
    Rule("gradient", "another gradient", lambda e: True,
         "the gradient is no combination of the ranks' own", "{off}",
         "Is each of them changed before the sum, clipped by value, say?"),

    Rule("update", "different rates", lambda e: e.rates_differ,
         "the ranks step with different rates", "{rates_differ}",
         "Does a scheduler follow the rank's own loss? Average it over the ranks first"),
    Rule("update", "drift", lambda e: e.drifted,
         "the gradients are the same on all ranks, the parameters after the step are not", "{drifted}",
         "Has the optimizer another state on some rank?"),
    Rule("update", "outside the network", lambda e: e.others_differ,
         "the optimizer also trains parameters that are not the network's, and they differ between ranks", "",
         "Put them into the module that is wrapped, such as a loss with weights that it learns"),
    Rule("update", "another rate", lambda e: e.step_factor and not _near(e.step_factor, 1),
         "the gradient is one worker's, and the step is longer or shorter", "{step_factor:.4g} times",
         "If you multiply the rate by the number of ranks, all is well; try it with one rate for both too, as no "
         "later step could be compared with one worker", False),
    Rule("update", "another update", lambda e: e.other_step,
         "the gradient is one worker's, and the step is not", "", "Has the optimizer another state?"),

    Rule("training", "unequal shards", _elsewhere, "right on equal shards, but not on unequal ones", "{sizes}",
         "If yours can be unequal: {words}", False),
    Rule("training", "averaged after the step", _elsewhere,
         "each rank steps with its own gradient, and then parameters are averaged", "",
         "With SGD that is right; with Adam or clipping it is not", False),
    Rule("training", "some ranks step", _elsewhere, "only some ranks step, and the others end with their parameters",
         "", "They were compared by those", False),
    Rule("training", "random numbers", _elsewhere, "two runs of one worker differ, by augmentation or noise", "",
         "So ranks were compared with one another only", False),
    Rule("training", "dropout", _elsewhere, "switched off here, as ranks and one worker draw different masks", "",
         "In your training, give each rank a seed of its own", False),
    Rule("training", "BatchNorm", _elsewhere, "it sees the rank's shard only, as expected, and so did one worker's",
         "the first gradient is {off:.2g}\N{NO-BREAK SPACE}% from that of the whole minibatch",
         "So was all else compared", False),
    Rule("training", "not reached", _elsewhere, "no loss depends on some parameters, on one worker neither", "{names}",
         "Nothing to do, if that is meant", False),
    Rule("training", "reported loss", _elsewhere, "train returns another loss, though the gradient is the same",
         "{alone:.4g} on one worker first, and {mean:.4g} in the mean over the ranks",
         "For a log, take the mean over all examples", False),
]


class Diagnosis:
    """What `diagnose` has found: `faults`, and `notes` on what can be wanted, by name; `ok` if there is no fault.

    Its text, as `print` shows it, says both in sentences.
    """

    def __init__(self, about: str) -> None:
        self.about, self.faults, self.notes = about, {}, {}

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def say(self, rule: Rule, numbers: Any, when: str = "") -> None:
        """Write down what a rule says, with the numbers that it names."""
        seen, cure = rule.numbers.format_map(numbers), rule.cure.format_map(numbers)
        words = f"{when}{rule.seen}{f' ({seen})' if seen else ''}. {cure}"
        (self.faults if rule.fault else self.notes).setdefault(rule.name, words)

    def say_by_name(self, name: str, **numbers: Any) -> None:
        """Write down what the rule of that name says."""
        self.say(next(rule for rule in RULES if rule.name == name), numbers)

    def __str__(self) -> str:
        lines = [f"{'no fault found' if self.ok else 'not right'}: {self.about}"]
        lines += [f"FAULT, {name}: {words}" for name, words in self.faults.items()]
        lines += [f"note, {name}: {words}" for name, words in self.notes.items()]
        if self.ok:
            lines.append("not seen: what one worker does wrong too, and what comes after these steps")
        return "\n".join(fill(line, 88, subsequent_indent="    ", break_on_hyphens=False) for line in lines)

    __repr__ = __str__  # the last line of a cell shows it


class Evidence:
    """One step of k ranks beside the same step of one worker, and what follows from its numbers."""

    def __init__(self, t: int, alone: Record, ranks: Sequence[Record], k: int, labels: Sequence[Sequence[Tensor]],
                 repeatable: bool) -> None:
        self.t, self.k, self._labels = t, k, labels
        self.one, self.many = one, many = alone.steps[t], [record.steps[t] for record in ranks]
        self.wrapped, self.no_sync, self.replaced = ranks[0].wrapped, ranks[0].no_sync, many[0].replaced
        self.parameters_averaged = _parameters_are_averaged(ranks, t)
        self._next = [record.steps[t + 1].before if t + 1 < len(record.steps) else record.end for record in ranks]
        gradients, self.size = [step.gradients for step in many], _norm(one.gradients)

        self.missing = [name for name in one.gradients if any(name not in grads for grads in gradients)]
        self.names = [name for name, x in one.gradients.items()
                      if name not in self.missing and all(grads[name].shape == x.shape for grads in gradients)]
        self.moved_without_gradient = not any([one.gradients, *gradients]) and any(
            _moved(step.before, step.after) for step in (one, *many))
        self.apart = _differing(step.before for step in many)
        ended = t and not _differing(record.steps[t - 1].after for record in (alone, *ranks))
        self.strayed = _differing(step.before for step in (one, *many)) if ended and repeatable else []
        self.unlike = [name for name in _differing(gradients, self.size) if name in self.names]
        self.wrong = [name for name in _differing([one.gradients, gradients[0]], self.size) if name in self.names]
        self.comparable = repeatable and not _differing(step.before for step in (one, *many))
        self.right = self.comparable and not self.wrong and not self.unlike

        # as vectors: what the ranks took and what one worker took, and what their own backward passes gave
        self._taken, self._right = self._flat(gradients[0]), self._flat(one.gradients)
        self._of_one, self._shards = self._flat(one.own), torch.stack([self._flat(step.own) for step in many], 1)
        if len(many) < k:
            self._shards.fill_(torch.nan)  # the others made no step, so theirs is not known
        self._mean = self._shards.mean(1)
        none = [str(r) for r in range(len(many)) if not self._shards[:, r].any()]
        self.without_own = ", ".join(none) if self._of_one.any() and len(none) < k else ""
        self.factor = _factor(self._taken, self._right)  # how many times one worker's it is, if it is that
        self.times = f"{self.factor:.7g} times" if self.factor else "many times"
        self.loss = _factor(self._mean, self._of_one)  # how many times too large the ranks' own are, if only that
        off = ((self._taken - self._right).norm() / self._right.norm()).item()
        self.off = f"the gradient is off by {100 * off:.2g}\N{NO-BREAK SPACE}%"

        # whether "fewer" or "others" go through the network than on one worker; "" if not, or if they were changed
        ours, theirs = {key for step in many for key in step.examples}, set(one.examples)
        known, self.examples = {key for step in alone.steps for key in step.examples}, ""
        if ours and len(many) == k and ours <= known and ours != theirs:
            self.examples = "fewer" if ours < theirs else "others"
        self.examples_seen = f"{len(ours & theirs)} of {len(theirs)} examples of the minibatch"

        self.drifted = _differing(step.after for step in many)
        self.other_step, self.step_factor = False, None  # than one worker's, and how many times as long
        if self.right:
            ours, theirs = (_flat(step.after, one.after) - _flat(step.before, one.after) for step in (many[0], one))
            self.other_step = bool((ours - theirs).norm() > 1e-6 * theirs.norm())
            self.step_factor = _factor(ours, theirs)

    def __getitem__(self, key: str) -> object:
        """What a rule's numbers name, with few of many names."""
        value = getattr(self, key)
        return _names(value, len(self.one.before)) if isinstance(value, list) else value

    def _flat(self, values: Values, names: list[str] | None = None) -> Tensor:
        return _flat(values, {name: self.one.gradients[name] for name in (self.names if names is None else names)})

    # the exchange: who has whose gradient

    @cached_property
    def own(self) -> list[str]:
        """What each rank took its own gradient of, or that times a number of the rank's."""
        names = self.unlike
        for step in self.many:
            own = step.own
            if any(name not in own for name in self.unlike):
                return []
            factor = _factor(self._flat(step.gradients, self.unlike), self._flat(own, self.unlike)) or 1.0
            names = [name for name in names if not _far(step.gradients[name], factor * own[name], self.size)]
        return names

    @cached_property
    def all_own(self) -> bool:
        """Whether that is all parameters."""
        return bool(self.own) and len(self.own) == len(self.names)

    @cached_property
    def parameters_of(self) -> str:
        """The rank with whose parameters all begin the next step."""
        ranks = [] if _differing(self._next) else enumerate(self.many)
        return next((str(r) for r, step in ranks if not _differing([step.after, self._next[0]])), "")

    @cached_property
    def unsent(self) -> str:
        """Which of several backward passes each rank kept for itself."""
        passes = [step.passes for step in self.many]
        number = len(passes[0])
        if number < 2 or not self.unlike or any(len(p) != number or any(set(self.unlike) - own.keys() for own in p)
                                                for p in passes):
            return ""
        own = torch.stack([torch.stack([self._flat(grads, self.unlike) for grads in p]) for p in passes])
        change = torch.stack([self._flat(step.gradients, self.unlike) for step in self.many]) - own.sum(1)
        exchange = (own.mean(0) - own).transpose(0, 1).flatten(1).T  # what exchanging each pass would change
        sent = torch.linalg.lstsq(exchange, change.flatten()[:, None], driver="gelsd").solution[:, 0]
        if (exchange @ sent - change.flatten()).norm() > 1e-6 * own.norm() or (sent - sent.round()).abs().max() > 1e-6:
            return ""
        return ", ".join(f"pass {i + 1} of {number}" for i in range(number) if sent[i].round() == 0)

    @cached_property
    def sum_on(self) -> str:
        """The ranks whose gradient is the sum or the mean, if it is on some only."""
        total = torch.stack([self._flat(step.own, self.unlike) for step in self.many]).sum(0)
        on = [str(r) for r, step in enumerate(self.many) if _factor(self._flat(step.gradients, self.unlike), total)]
        return ", ".join(on) if len(on) < len(self.many) else ""

    # the gradient: all ranks have the same, and it is not one worker's

    @cached_property
    def exchange(self) -> float | None:
        """What was taken, in means of the ranks' own gradients: 1 if averaged, k if added up. Clipping is undone."""
        ours, theirs = _factor(self._taken, self._mean), _factor(self._right, self._of_one)
        if self._bits:  # rounded, so look for the nearest of what it can be
            rough = _factor(self._taken, self._mean, 1e-2) or 0.0
            return next((x for x in (1.0, float(self.k), 1 / self.k) if abs(rough - x) < 1e-2 * x), None)
        if ours is None or theirs is None or _near(theirs, 1):
            return ours
        taken, right, own = (x.norm().item() for x in (self._taken, self._right, self._of_one))
        if abs(taken / right - 1) < 1e-2:  # both were clipped to one norm, which hides the factor all but for CLIP_EPS
            bound = right * (own + CLIP_EPS) / own
            return CLIP_EPS * taken / (bound - taken) / self._mean.norm().item() if bound > taken else None
        return ours / theirs

    @cached_property
    def fixed_divisor(self) -> float | None:
        """By what the sum is divided, if that is neither 1 nor k, nor the same for one worker and k ranks."""
        ours, theirs = _factor(self._taken, self._mean), _factor(self._right, self._of_one)
        if ours and theirs and not _near(theirs, 1):
            return 1 / theirs if _near(ours, self.k * theirs) else None
        divisor = self.k / ours if ours and _near(self.loss, 1) else 0
        return None if divisor <= 0 or any(_near(divisor, x) for x in (1, self.k, self.k ** 2)) else divisor

    @cached_property
    def only_rank(self) -> int | None:
        """The rank whose gradient all took."""
        weights = _solve(self._shards, self._taken, self.k)
        if weights is None or self.without_own:
            return None
        big = (weights.abs() > 1e-6).nonzero().flatten().tolist()
        return big[0] if len(big) == 1 else None

    @cached_property
    def along_parameters(self) -> float | None:
        """The factor, the same for all that is too much, by which it is the parameters themselves."""
        if sum(self.one.before[name].numel() for name in self.wrong) == 1:
            return None  # a single number is along any other
        factors = [_factor(self.many[0].gradients[name] - self.one.gradients[name], self.one.before[name])
                   for name in self.wrong]
        return factors[0] if factors[0] and all(_near(factor, factors[0]) for factor in factors) else None

    @cached_property
    def shares(self) -> str:
        """What one worker weighs the shards, which were averaged, by: examples, tokens, or others; or ""."""
        def are(counts: list[int]) -> bool:
            weights = torch.tensor(counts).double() / sum(counts)
            return len(set(counts)) > 1 and bool((self._shards @ weights - self._of_one).norm()
                                                 <= 1e-6 * self._of_one.norm())

        if not _near(self.exchange, 1):
            return ""
        for shards in self._labels:
            if are([len(y) for y in shards]):
                return "examples"
            whole = torch.cat([y.flatten() for y in shards])
            if whole.numel() > sum(map(len, shards)) and not whole.is_floating_point() and any(
                    are([int((y != label).sum()) for y in shards]) for label in whole.unique()[:50]):
                return "tokens"
        weights = _solve(self._shards, self._of_one, self.k)
        return "others" if weights is not None and (weights > 0).all() and _near(weights.mean().item(), 1) else ""

    @cached_property
    def _bits(self) -> str:
        """The smaller type that all that was taken fits in."""
        kinds = "bfloat16", "float16", "float32"
        return next((kind for kind in kinds if torch.equal(self._taken.to(getattr(torch, kind)).double(), self._taken)),
                    "")

    @cached_property
    def fewer_bits(self) -> str:
        """That type, if it is one worker's gradient up to rounding to it."""
        off = (self._taken - self._right).norm() / self._right.norm()
        return "as in float32" if off <= 1e-6 else self._bits if off <= 1e-2 else ""

    @cached_property
    def scales(self) -> str:
        """The numbers by which the ranks' own gradients were scaled before the mean, if they were."""
        return _positive(_solve(self._shards, self._taken, self.k))

    @cached_property
    def _pass_weights(self) -> Tensor | None:
        passes = [self._flat(own) for step in self.many for own in step.passes]
        if len(passes) <= self.k or len(self.many) < self.k:
            return None
        return _solve(torch.stack(passes, 1), self._taken, self.k)

    @cached_property
    def pass_scales(self) -> str:
        """As `scales`, for each backward pass of each rank."""
        return _positive(self._pass_weights)

    @property
    def pass_sums(self) -> bool:
        """Whether each pass counts k times as much as the next, on all ranks."""
        if self._pass_weights is None or len(self._pass_weights) % self.k:
            return False
        weights = self._pass_weights.view(self.k, -1)
        return all(_near(x, self.k * y) for row in weights.tolist() for x, y in zip(row, row[1:]))

    # the update

    @cached_property
    def rates_differ(self) -> str:
        """The rates of the ranks, if they are not the same."""
        rates = [step.rates for step in self.many]
        return "" if all(rate == rates[0] for rate in rates) else " and ".join(
            f"{', '.join(f'{lr:.3g}' for lr in rate)} on rank {r}" for r, rate in enumerate(rates))

    @cached_property
    def others_differ(self) -> bool:
        """Whether what the optimizer trains outside the network differs between ranks."""
        first, *others = [step.others for step in self.many]
        return any(len(own) != len(first) or any(map(_far, own, first)) for own in others)


def compare(alone: Record, ranks: Sequence[Record], labels: Sequence[Sequence[Tensor]], found: Diagnosis,
            repeatable: bool = True) -> None:
    """Write down what differs, up to the first step with a fault; what comes after may be its consequence.

    Where one worker cannot be repeated, as augmentation is random, the ranks are compared with one another only.
    """
    k, counts, steps = len(ranks), [len(record.steps) for record in ranks], len(alone.steps)
    stepping = [record for record in ranks if record.steps]
    starts = [record.steps[0].before for record in (alone, *stepping)]
    if off := _differing(starts):
        found.say_by_name("different start", names=_names(off, len(starts[0])))
    buffers = [{name: x for name, x in record.buffers.items() if name in alone.buffers} for record in stepping]
    if off := _differing([alone.buffers, *filter(None, buffers)]):
        found.say_by_name("different buffers", names=_names(off))
    if set(counts) == {0, steps} and not _differing(record.end for record in ranks):
        found.say_by_name("some ranks step")
    elif set(counts) != {steps}:
        found.say_by_name("other steps", ranks=counts, alone=steps)
    if not stepping:
        return
    if found.ok and repeatable and len(stepping) == k and _right_by_averaged_parameters(alone, ranks):
        found.say_by_name("averaged after the step")
        return
    _note_idle(alone, stepping, found)
    right = False
    for t in range(min(steps, *(len(record.steps) for record in stepping))):
        if not found.ok and t > 0:
            return
        if bad := _not_finite(alone.steps[t], [record.steps[t] for record in stepping]):
            found.say_by_name("NaN", step=t + 1, where=bad)
            return
        e = Evidence(t, alone, stepping, k, labels, repeatable)
        if not _speak("exchange", e, found, bool(e.unlike or e.missing or not e.names or e.strayed or (t and e.apart))):
            _speak("gradient", e, found, bool(e.wrong) if e.comparable else not repeatable and bool(e.examples))
        if found.ok:
            _speak("update", e, found, True)
        right = e.right
    if found.ok and (off := _differing(record.end for record in stepping)):
        found.say_by_name("different end", names=_names(off, len(alone.end)))
    if found.ok and right:
        _compare_losses(alone, stepping, found)


def _speak(stage: str, e: Evidence, found: Diagnosis, odd: bool) -> bool:
    """Write down the first rule of a stage that holds, if anything is odd; whether one did."""
    rule = next((rule for rule in RULES if rule.stage == stage and rule.holds(e)), None) if odd else None
    if rule:
        found.say(rule, e, f"from step {e.t + 1} on, " * (e.t > 0))
    return rule is not None


def _note_idle(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> None:
    """Say what no loss depends on, in any step."""
    gradients = [step.gradients for record in (alone, *ranks) for step in record.steps]
    reached = {name for grads in gradients for name, x in grads.items() if x.any()}
    idle = sorted(alone.steps[-1].trainable - reached)
    if idle and any(gradients):
        found.say_by_name("not reached", names=_names(idle, len(alone.end)))


def _not_finite(one: Step, many: Sequence[Step]) -> str:
    """Where a gradient or a parameter is infinite or NaN."""
    if all(map(_are_finite, (values for step in (one, *many) for values in (step.before, step.gradients, step.after)))):
        return ""
    bad = ["one worker"] * (not _are_finite(one.own))
    bad += [f"rank {r}" for r, step in enumerate(many) if not _are_finite(step.own)]
    return f"the backward pass of {' and '.join(bad)}" if bad else "what is made of the gradients"


def _compare_losses(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> None:
    """The losses that the ranks return are one worker's, or have it as their mean."""
    if not alone.losses or any(record.losses is None or len(record.losses) != len(alone.losses) for record in ranks):
        return
    means = torch.tensor([record.losses for record in ranks]).double().mean(0)
    if (means - torch.tensor(alone.losses).double()).abs().max() > 1e-6 * max(map(abs, alone.losses)):
        found.say_by_name("reported loss", alone=alone.losses[0], mean=means[0].item())


def note_batchnorm(alone: Record, whole: Record, found: Diagnosis) -> None:
    """How far BatchNorm that sees shards only takes the first gradient from that of BatchNorm on the minibatch."""
    like = whole.steps[0].gradients
    right = _flat(like, like)
    off = ((_flat(alone.steps[0].gradients, like) - right).norm() / right.norm()).item()
    if off > TOLERANCE:
        found.say_by_name("BatchNorm", off=100 * off)


def _right_by_averaged_parameters(alone: Record, ranks: Sequence[Record]) -> bool:
    """Whether parameters are averaged, and each step leads from those of one worker to ones with its as their mean."""
    for step, *many in zip(alone.steps, *(record.steps for record in ranks)):
        if _differing(other.before for other in (step, *many)):
            return False
        means = {name: torch.stack([other.after[name] for other in many]).mean(0) for name in step.after}
        if _differing([step.after, means]):
            return False
    return _parameters_are_averaged(ranks) and not _differing(record.end for record in (alone, *ranks))


def _parameters_are_averaged(ranks: Sequence[Record], t: int = 0) -> bool:
    """Whether replicas that a step from the t-th on leaves apart are the same again before the next, or at the end."""
    left = zip(*([step.after for step in record.steps[t:]] for record in ranks))
    found = zip(*([*(step.before for step in record.steps[t + 1:]), record.end] for record in ranks))
    return any(_differing(ours) and not _differing(theirs) for ours, theirs in zip(left, found))


def moves(record: Record) -> bool:
    """Whether a step leaves a parameter elsewhere than where the first step found it."""
    return any(_moved(record.steps[0].before, step.after) for step in record.steps)


def _moved(before: Values, after: Values) -> bool:
    """Whether a parameter is another than it was, by a single bit."""
    return any(name in before and not torch.equal(x, before[name]) for name, x in after.items())


def same_steps(ours: Record, theirs: Record) -> bool:
    """Whether two records agree in all gradients; those of a network that `train` itself makes anew need not."""
    if _differing([theirs.steps[0].before, ours.steps[0].before]):
        return True
    return len(ours.steps) == len(theirs.steps) and not any(
        _differing([b.gradients, a.gradients], _norm(b.gradients))
        for a, b in zip(ours.steps, theirs.steps) if _are_finite(b.gradients))


def _differing(values: Iterable[dict], size: float = 0.0) -> list:
    """The names of the tensors that are not the same in all of these, or not in all; `size` as for `_far`."""
    first, *others = values
    return [name for name in dict.fromkeys(name for each in (first, *others) for name in each)
            if any(_far(other.get(name), first.get(name), size) for other in others)]


def _are_finite(values: Values) -> bool:
    """Whether no number is infinite or NaN."""
    return all(bool(x.isfinite().all()) for x in values.values())


def _far(ours: Tensor | None, theirs: Tensor | None, size: float = 0.0) -> bool:
    """Whether two tensors differ by more than rounding, also of sums as large as `size` in which they cancel."""
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return True
    return not (ours - theirs).norm().item() <= TOLERANCE * max(theirs.norm().item(), 1e-3 * size, 1e-300)


def _factor(ours: Tensor, theirs: Tensor, tolerance: float = 1e-6) -> float | None:
    """How many times `theirs` is `ours`; None if it is not that, or nothing."""
    ours, theirs = ours.flatten(), theirs.flatten()
    factor = (ours @ theirs / (theirs @ theirs)).item() if theirs.any() else 0.0
    return factor if factor and (ours - factor * theirs).norm() <= tolerance * ours.norm() else None


def _solve(columns: Tensor, whole: Tensor, k: int) -> Tensor | None:
    """The weights, times k, with which columns make up a whole; None if they do not, or too few numbers tell."""
    if len(columns) < 2 * columns.shape[1] or not whole.any() or not columns.isfinite().all():
        return None
    weights = torch.linalg.lstsq(columns, whole[:, None], driver="gelsd").solution[:, 0]
    return k * weights if (columns @ weights - whole).norm() <= 1e-6 * whole.norm() else None


def _positive(weights: Tensor | None) -> str:
    """Weights that are all positive, for a sentence."""
    return ", ".join(f"{w:.2g}" for w in weights.tolist()) if weights is not None and (weights > 0).all() else ""


def _norm(values: Values) -> float:
    """The length of all tensors together."""
    return sum(x.norm().item() ** 2 for x in values.values()) ** 0.5


def _flat(values: Values, like: Values) -> Tensor:
    """The tensors one after another, in the order of others, with zeros for those that are missing."""
    return torch.cat([torch.zeros(0), *(values.get(name, torch.zeros_like(x)).flatten() for name, x in like.items())])


def _near(a: float | None, b: float) -> bool:
    """Whether two factors are the same, up to rounding."""
    return a is not None and abs(a - b) <= 1e-4 * abs(b)


def _names(some: Sequence[str], of: int = 0) -> str:
    """A few names for a sentence."""
    if len(some) == of > 1:
        return f"all {of} parameters"
    return ", ".join(some[:3]) + f" and {len(some) - 3} more" * (len(some) > 3)
