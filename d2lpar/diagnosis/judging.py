"""Interpret the records of watched ranks, with those rules of `diagnose` that need no single device.

The exchange is judged by what it should give: the mean of the ranks' own gradients stands in for the gradient of a
single device. The loss has the right scale if the total weight of all examples in it does not depend on the number of
ranks. To find out, `scale_fault` compares a run on k ranks with a run on one.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from d2lpar.diagnosis.compare import Diagnosis, Subject, find_rule
from d2lpar.diagnosis.coverage import cover
from d2lpar.diagnosis.evidence import (
    SKETCHES,
    Evidence,
    are_enough,
    are_finite,
    differing,
    factor,
    flat,
    moved,
    near,
    norm,
    rounding,
    rounding_of_sums,
    some_names,
)
from d2lpar.diagnosis.feed import check_epochs
from d2lpar.diagnosis.loss_weights import LossTerm
from d2lpar.diagnosis.parts import put_together, scaled_apart
from d2lpar.diagnosis.recording import Record, Step, Values
from d2lpar.diagnosis.rules import RULES

# gradient rules that need no single device, except those about its scale
OF_THE_EXCHANGE = {"old gradients on some ranks", "one rank's gradient", "skipped by some",
                   "clipped before the average", "summed in each micro-batch", "clipped in each micro-batch"}
STATES = ["judged", "in part", "not judged"]
OF_BATCHNORM = "running_mean", "running_var", "num_batches_tracked"
OF_AN_UPDATE = {"different learning rates", "drift", "outside the network"}
UNDER = re.compile(r"\b(line \d+)(?:(?!\bline \d).)*?, (under [^`;]*`[^`]*` in line \d+)")
UNCHECKED = ["mistakes that a single device makes as well", "losses that compare examples or count tokens",
             "how metrics are combined", "anything after the steps that were watched"]


class Ran(NamedTuple):
    """A watched run: the records of each rank, and how it ended."""

    k: int
    records: list[list[tuple[str, dict[str, Any]]]]
    stands: str = ""  # where the ranks stood, if they waited for one another
    crashed: bool = False  # a rank ended with an error
    output: str = ""  # the last lines of what it printed
    lines: Sequence[str] = ()  # which each rank reached last
    files: dict[str, list[str]] = {}  # noqa: RUF012, that are not as they were
    checkpoint: dict[str, bytes] = {}  # noqa: RUF012, the files that the script had written by its first checkpoint

    def of(self, kind: str) -> list[list[dict[str, Any]]]:
        """The records of a kind, by rank."""
        return [[data for which, data in rank if which == kind] for rank in self.records]

    @property
    def steps(self) -> list[list[dict[str, Any]]]:
        """The steps of each rank."""
        return self.of("step")


class Scale(NamedTuple):
    """The factors by which the exchange and the loss multiply the gradient."""

    exchange: float | None  # in means of the ranks' own gradients: 1 if averaged, k if summed; None if sharded
    weights: dict[int, float]  # that all examples together have in each term of the loss, on average over the ranks
    is_sum: bool  # every term is a sum over the shard, undivided
    line: str  # of the backward pass
    exchange_line: str  # of the script's own all_reduce, if it has one
    wrapped: bool
    hooked: bool
    is_constant: bool = True  # over the steps that were watched

    @property
    def is_clear(self) -> bool:
        """Whether this is a mean of means."""
        return (self.exchange is None or near(self.exchange, 1)) and bool(self.weights) and all(
            near(weight, 1) for weight in self.weights.values())


def judge(ran: Ran, found: Diagnosis) -> Scale | None:
    """Add a finding for everything that is wrong or notable in a run, and return the scale of its first good step."""
    if not any(ran.of("group")) and not ran.crashed and len(ran.records) > 1:
        found.say_by_name("no group")
        return None
    ran = ran._replace(records=put_together(ran.records))
    found.in_parts = any(data.get("parts") for rank in ran.steps for data in rank)
    if any(data["asked"] for rank in ran.of("end") for data in rank):
        found.unchecked.append("what only GPUs show, such as NCCL and float16 autocast")
    with rounding(SKETCHES):
        _judge_data(ran, found)
        scale = _judge_steps(ran, found)
        _judge_moves(ran, found)
        if "different start" in found.faults:  # a rank that has loaded a checkpoint may be in a different epoch
            for name in ("repeated examples", "missing examples"):
                found.move_back(name)
        _judge_end(ran, found)
        _judge_evaluation(ran, found)
        _judge_files(ran, found)
        _judge_seeds(ran, found)
    cover(ran, _comparable([list(map(_without_trials, rank)) for rank in ran.steps]), found)
    return scale


def scale_fault(scale: Scale, k: int, alone: Scale | None, found: Diagnosis) -> None:
    """Say which factor depends on the number of ranks, by a run on k and a run on a single device."""
    with rounding(SKETCHES):
        x, y = scale.exchange, alone.exchange if alone else None
        place = (not scale.hooked and not near(x or 1, 1) and scale.exchange_line) or scale.line
        line = f" [{place}]" if place else ""
        if scale.is_sum and (x is None or near(x, 1)):
            found.say_by_name("divided twice", line, k=k, times=f"{1 / k:.4g} times")
            return
        if alone is None or (x is None) != (y is None) or not scale.weights.keys() & alone.weights.keys():
            if near(x, k) and not scale.weights:
                found.say_by_name("sum of gradients", line)
            elif near(x, k) and all(near(weight, 1) for weight in scale.weights.values()):
                found.say_by_name("summed after DDP" if scale.wrapped else "summed", line, times=f"{k} times")
            elif off := [(x or 1) * weight for weight in scale.weights.values() if not near((x or 1) * weight, 1)]:
                found.say_by_name("weight of the examples", line, weight=" and ".join(f"{value:.4g}" for value in off))
            return
        exchange = (x or 1) / (y or 1)  # the exchange's factor on k ranks, relative to a single device
        times = {place: exchange * scale.weights[place] / alone.weights[place]
                 for place in scale.weights.keys() & alone.weights.keys() if alone.weights[place]}
        off = {place: value for place, value in times.items() if not near(value, 1)}
        if not off:
            return
        first = next(iter(off.values()))
        numbers: dict[str, Any] = {"k": k, "times": f"{first:.4g} times", "off": f"{first:.4g} times"}
        if len(off) < len(times):
            name = ("one term times the world size" if near(first, k) else "one term divided by the world size"
                    if near(first, 1 / k) else "")
        elif near(exchange, k) and near(first, k) and not near(y, 1):
            name, numbers["fixed_divisor"] = "divided by a fixed number", f"{1 / (y or 1):.4g}"
        elif near(exchange, k) and near(first, k):
            name = "summed in the hook" if scale.hooked else "summed after DDP" if scale.wrapped else "summed"
        elif near(exchange, 1 / k) and near(first, 1 / k):
            name = "averaged twice"
        else:
            name = "loss multiplied by world size" if near(first, k) else "divided twice" if near(first, 1 / k) else ""
        if name or (scale.is_constant and alone.is_constant):  # otherwise it may depend on the examples
            found.say_by_name(name or "scaled", line, **numbers)


# data


def _judge_data(ran: Ran, found: Diagnosis) -> None:
    loaders = [{data["number"]: data for data in rank} for rank in ran.of("loader")]
    passes = [{(data["number"], data["epoch"]): data for data in rank} for rank in ran.of("pass")]
    if len(ran.records) < 2:
        return
    judged: list[Subject] = []  # for each loader that training draws from
    for number in dict.fromkeys(number for rank in loaders for number in rank):
        of_ranks = [rank.get(number) for rank in loaders]
        mine = [[rank.get((number, epoch)) for rank in passes] for epoch in range(4)]
        is_trained = any(data["trained"] for epoch in mine for data in epoch if data)
        if None in of_ranks:  # of some ranks only
            judged += [_by_values(ran, "only some ranks draw from the loader")] * is_trained
            continue
        first: dict = of_ranks[0]  # type: ignore
        epochs = [[data for data in epoch if data] for epoch in mine if None not in epoch]
        known = set(found.faults)
        is_open = bool(ran.stands or ran.crashed) and not epochs  # an epoch that not all ranks have finished
        if is_open or is_trained:
            judged.append(_judge_training_data(ran, of_ranks, epochs, found))
        elif first["distributed"] and not first["drops"] and (first["examples"] or 0) % ran.k:
            found.add("padded", f"the sampler repeats some of {first['examples']:,} examples so that all {ran.k} ranks "
                      "have equally many", "A metric may count them twice", fault=False)
        for name in set(found.faults) - known:
            if first["line"]:
                found.place(name, first["line"])
    if judged:
        least = max(judged, key=lambda subject: STATES.index(subject.state))
        found.cover("data", *least, needed=True)
    elif any(ran.steps):
        found.cover("data", *_by_values(ran, "no DataLoader was used in training"))


def _by_values(ran: Ran, why: str) -> Subject:
    """What is known of the data if only the minibatches that reach the network can be compared."""
    if any(ran.steps) and all(data["step"].examples for rank in ran.steps for data in rank if data["step"].forwards):
        return Subject("in part", f"{why}: only the values of the minibatches were compared")
    return Subject("not judged", f"{why}, and the minibatches hold no tensor with a row for each example")


def _judge_training_data(ran: Ran, of_ranks: list, epochs: list[list[dict]], found: Diagnosis) -> Subject:
    first, k = of_ranks[0], ran.k
    at_ends = [data["at_ends"] for data in of_ranks]  # digests of the first and the last example
    common = set.intersection(*(set(digests or ()) for digests in at_ends))
    unlike = [i for i in sorted(common) if len({digests[i] for digests in at_ends}) > 1]
    is_one_set = not unlike and (bool(common) or not any(at_ends))
    batches = [data["batches"] for data in of_ranks]
    if len(set(batches)) > 1 and None not in batches and not any(ran.of("join")) and (
            ran.stands or ran.crashed or len({data["steps"] for data in epochs[0]}) > 1):
        counts = ", ".join(f"{n} on rank {r}" for r, n in enumerate(batches))
        found.add("different numbers of batches", counts, "The rank with more batches waits until the timeout. Drop "
                  "or repeat examples so that all ranks have the same number")
    whole = [epoch for epoch in epochs if all(data["is_whole"] and data["indices"] for data in epoch)]
    if unlike:
        if not first["distributed"] and not (whole and _draw_different_parts(whole[0])):
            return _by_values(ran, "each rank has a data set of its own")
        found.say_by_name("different data sets", i=unlike[0])
    if epochs and all(data["is_whole"] and not data["indices"] for data in epochs[0]):
        _judge_stream(ran, epochs[0], found)
        return _by_values(ran, "a stream has no indices")
    if not whole:
        if is_one_set and not first["distributed"] and epochs and epochs[0][0]["indices"] and all(
                data["drawn"] == first["examples"] for data in of_ranks) and not _is_cut_by_hand(ran, epochs):
            _say_same_examples(first, found)
        return _by_values(ran, "no epoch was seen to its end")
    orders = [[data["indices"] for data in epoch] for epoch in whole]
    if _is_cut_by_hand(ran, whole):
        return _by_values(ran, "all ranks draw the same minibatches, and take their rows of each")
    if any(len(batch_indices) > len(set(batch_indices)) for rank in orders[0]
           for batch_indices in [[i for batch in rank for i in batch]]) and first["sampler"] != "DistributedSampler":
        return _by_values(ran, "examples are drawn with replacement")
    everything = {i for epoch in orders for rank in epoch for batch in rank for i in batch}
    if first["sampler"] == "DistributedSampler" and first["examples"]:
        everything |= set(range(first["examples"]))
    if not any(ran.of("join")):  # it lets the ranks have different numbers of batches
        check_epochs(k, orders, everything, found)
    states = {epoch["state"] for epoch in whole[0]}
    if all(data["is_random"] for data in of_ranks) and len(states) == 1:
        found.say_by_name("same augmentation")
    if not common:
        return Subject("in part", "the examples of the data set could not be compared, only which of them were drawn")
    if len(whole) == 1:
        return Subject("in part", "only one whole epoch was seen, so the order of the next is not known")
    return Subject("judged")


def _draw_different_parts(epoch: list[dict]) -> bool:
    """Whether the ranks draw different examples by their indices, but for a few that make the numbers even."""
    drawn = [{i for batch in data["indices"] for i in batch} for data in epoch]
    return sum(map(len, drawn)) - len(set().union(*drawn)) < min(map(len, drawn)) / 2


def _judge_stream(ran: Ran, epoch: list[dict], found: Diagnosis) -> None:
    """Report it if all ranks train on the same examples in an epoch, in whatever order they come."""
    rows = [{key for data in steps[data_pass["first_step"]:][:data_pass["steps"]] for key in data["step"].examples}
            for steps, data_pass in zip(ran.steps, epoch)]
    if len(rows[0]) > 1 and all(one == rows[0] for one in rows):
        found.say_by_name("same examples on all ranks", examples_seen=f"{len(rows[0])} examples in an epoch")


def _say_same_examples(first: dict, found: Diagnosis) -> None:
    found.add("same examples on all ranks", f"every rank goes through all {first['examples']:,} examples",
              "Give each rank its own part, for example with DistributedSampler")


def _is_cut_by_hand(ran: Ran, epochs: list[list[dict]]) -> bool:
    """Whether the ranks draw the same minibatches, but pass different rows of them through their networks."""
    orders = [data["indices"] for data in epochs[0]]
    shortest = min(map(len, orders))
    if any(order[:shortest] != orders[0][:shortest] for order in orders):
        return False
    rows = [[set(data["step"].examples) for data in rank] for rank in ran.steps]
    steps = [row for row in zip(*rows) if any(row)]  # not a second step after one backward pass
    return bool(steps) and all(map(all, steps)) and not any(set.intersection(*row) for row in steps)


# steps


def _judge_steps(ran: Ran, found: Diagnosis) -> Scale | None:
    steps = [list(map(_without_trials, rank)) for rank in ran.steps]
    if len(ran.records) < 2 or not any(steps):
        scale = None
        for data in steps[0] if steps else []:
            scale = _both(scale, _scale([data], 1))
        return scale
    counts = [len(rank) for rank in steps]
    if set(counts) != {max(counts)} and 0 in counts:
        _judge_steps_of_some(ran, counts, found)
        return None
    if len(set(counts)) > 1 and not ran.stands and not ran.crashed and all(ran.of("end")) and not any(ran.of("join")):
        found.say_by_name("different numbers of steps", counts=_by_rank(counts),
                          cure="Does a rank decide on its own, from its own loss or data? Let all ranks decide "
                          "together, with an all_reduce")
    if any(data.get("holds_wholes") for rank in steps for data in rank):
        found.add("wrong parameters", "the optimizer holds the temporary, gathered parameters, not the "
                  "shards that fully_shard trains",
                  "Create the optimizer after fully_shard and before the first forward pass")
        return None
    if _has_no_gradient(ran, found):
        return None
    rows = _comparable(steps)
    if any(ran.of("join")):  # after a Join, one rank may have taken more steps
        rows = rows[:min((data["steps"] for rank in ran.of("pass") for data in rank[:1]), default=0)]
    records = [_as_record(rank, ran, r) for r, rank in enumerate(steps)]
    records = [record._replace(steps=record.steps[:len(rows)]) for record in records]
    if any(data["is_sharded"] for rank in steps for data in rank):
        return _judge_shards(rows, found)
    scale = None
    for t, row in enumerate(rows):
        many = [data["step"] for data in row]
        if not _are_finite(many):
            bad = [f"rank {r}" for r, step in enumerate(many) if not are_finite(step.own)]
            found.say_by_name("NaN", step=t + 1, where=f"the backward pass of {' and '.join(bad)}" if bad else
                              "the exchange or the step")
            break
        if t == 0 and (off := differing(step.before for step in many)):
            found.say_by_name("different start", names=some_names(off, len(many[0].before)))
        if _judge_step(t, row, records, ran, found):
            break
        scale = _both(scale, _scale(row, ran.k))
    if idle := set.intersection(*(_unused([data["step"] for data in row]) for row in rows)) if rows else set():
        found.say_by_name("unused parameters", names=some_names(sorted(idle), len(many[0].before)))
    _note_left_out(rows, found)
    _judge_parts(rows, any(data.get("asked") for rank in ran.of("end") for data in rank), found)
    _judge_buffers(rows, found)
    _judge_losses(rows, ran.k, found)
    _judge_passes(rows, found)
    ends = [{name: x for name, x in rank[-1]["parameters"].items() if name in rows[-1][0]["step"].after}
            for rank in ran.of("end") if rows and rank and not rank[-1]["error"]]
    if rows and len(ends) == len(records) and not found.is_decided and (off := differing(ends)) and not differing(
            data["step"].after for data in rows[-1]):
        found.add("different end", "after the last step the network is the same on all ranks, but at the end of the "
                  f"run it is not ({some_names(off)})", "Was something loaded or averaged on some ranks only?",
                  fault=False)
    return scale if not found.is_decided or found.faults.keys() <= OF_DATA else None


OF_DATA = {"same order in every epoch", "repeated examples", "missing examples", "different numbers of batches",
           "different data sets", "same examples on all ranks"}


def _judge_steps_of_some(ran: Ran, counts: list[int], found: Diagnosis) -> None:
    ends = [rank[-1]["parameters"] if rank else {} for rank in ran.of("end")]
    one = [rank[0]["step"] for rank in ran.steps if rank]
    if len(one) == 1 and not found.in_parts and factor(flat(one[0].unclipped, one[0].unclipped),
                                                       flat(one[0].own, one[0].unclipped)):
        found.say_by_name("the others' gradients are lost", off="the step uses only that rank's own gradient")
        return
    has_optimizer = all(rank and rank[-1]["has_optimizer"] for rank in ran.of("end"))
    if all(ends) and not differing(ends):
        found.say_by_name("some ranks step")
    else:
        line = next(rank[0]["step"].lines.get("step", "") for rank in ran.steps if rank)
        found.say_by_name("different numbers of steps", f" [{line}]" * bool(line), counts=_by_rank(counts),
                          cure="Let every rank step" if has_optimizer else "Let every rank have an optimizer, and step")


def _without_trials(data: dict) -> dict:
    """A step without the parameters of networks that are not trained."""
    step, names = data["step"], data["never_trained"]
    if not names:
        return data
    values = {field: {name: x for name, x in getattr(step, field).items() if name not in names}
              for field in ("before", "gradients", "unclipped", "after")}
    sets = {field: getattr(step, field) - names for field in ("trainable", "replaced", "wrapped", "bypassed", "lost")}
    return data | {"step": step._replace(**values, **sets)}


def _by_rank(counts: Sequence[int]) -> str:
    return ", ".join(f"{count} on rank {r}" for r, count in enumerate(counts))


def _has_no_gradient(ran: Ran, found: Diagnosis) -> bool:
    every = [data for rank in ran.steps for data in rank]
    is_trained = any(data["step"].own or data["is_sharded"] for data in every)
    if is_trained and not any(data["has_gradient"] for data in every):
        found.say_by_name("wrong parameters")
        return True
    own = [x for data in every for x in data["step"].own.values()]
    if own and not any(x.any() for x in own):
        found.say_by_name("zero gradients")
        return True
    return False


def _comparable(steps: list[list[dict]]) -> list[tuple[dict, ...]]:
    """The steps of all ranks side by side, up to the first at which different optimizers step."""
    rows = []
    for row in zip(*steps):
        if len({data["optimizer"] for data in row}) > 1:
            break
        rows.append(row)
    return rows


def _as_record(steps: Sequence[dict], ran: Ran, r: int) -> Record:
    ends = ran.of("end")[r]
    last = steps[-1]
    after = last["step"].after
    end = {name: x for name, x in ends[-1]["parameters"].items() if name in after} if ends else after
    return Record({}, {}, [data["step"] for data in steps], end, last["wrapped"], last["hooked"], last["group_size"],
                  last["no_sync"], None)


def _expected(many: Sequence[Step], right: Values) -> Step:
    """The step of a single device whose gradient is the mean of the ranks' gradients."""
    return many[0]._replace(gradients=right, unclipped=right, passes=[right], stale=all(step.stale for step in many),
                            examples=[key for step in many for key in step.examples])


def _mean_own(many: Sequence[Step]) -> Values:
    return _mean([step.own for step in many])


def _mean(own: Sequence[Values]) -> Values:
    names = dict.fromkeys(name for grads in own for name in grads)
    like = {name: next(grads[name] for grads in own if name in grads) for name in names}
    return {name: torch.stack([grads.get(name, torch.zeros_like(x)) for grads in own]).mean(0)
            for name, x in like.items()}


def _judge_step(t: int, row: Sequence[dict], records: list[Record], ran: Ran, found: Diagnosis) -> bool:
    """Report the first rule that holds, and return whether later findings may be its consequences."""
    many = [data["step"] for data in row]
    has_one = {name for step in many for name in step.gradients}
    right = {name: x for name, x in _mean_own(many).items() if name in has_one}  # the script may throw some away
    taken = {name: x for name, x in many[0].unclipped.items() if name in right}
    times = factor(flat(taken, taken), flat(right, taken)) if taken else None
    right = {name: x * (times or 1.0) for name, x in right.items()}
    expected = [_expected([record.steps[i] for record in records], {}) for i in range(len(records[0].steps))]
    expected[t] = _expected(many, right)
    if t + 1 < len(expected):
        expected[t + 1] = expected[t + 1]._replace(before={})  # what a single device would have then is not known
    alone = Record({}, {}, expected, {}, *records[0][4:])
    is_trained = any(many[0].held & step.own.keys() for step in records[0].steps)  # in this or in another step
    if not right and not is_trained and all(moved(step.before, step.after) for step in many):
        found.add("no gradient", "a step moves parameters that have no gradient, so it cannot be judged", fault=False)
    if not right or not any(step.held for step in many):
        return False
    e = Evidence(t, alone, records, ran.k, [], True)
    when = f"starting with step {t + 1}, " * (t > 0)
    same = _same_rows(many) if all(_same_rows(steps) for steps in zip(*(record.steps for record in records))) else 0
    if same:
        found.say_by_name("same examples on all ranks", e.line("forward"), examples_seen=f"{same} examples")
    odd = bool(e.unlike or e.missing or not e.names or e.strayed or (t and e.apart))
    if odd and "averaged after the step" in found.notes and t + 1 == len(records[0].steps):
        return True  # the run was ended before the average
    if odd and e.exchanges_inside:
        found.say_by_name("exchanged inside step()", e.line("step"))
        rule = find_rule("update", e, OF_AN_UPDATE - {"drift"})
        if rule:
            found.say(rule, e, when, e.line(rule.line))
        return rule is not None
    if odd and (rule := find_rule("exchange", e)):
        if rule.name == "parameters averaged" and row[0]["method"] == "SGD" and not any(
                differing([step.unclipped, step.gradients]) for step in many) and not any(
                differing(step.before for step in steps) for steps in zip(*(record.steps for record in records))):
            found.say_by_name("averaged after the step")
            return False
        found.say(rule, e, when, e.line(rule.line))
        found.move_back("different start")
        return True
    if lost := [name for name in row[0].get("parts", {}) if name in many[0].held and name not in has_one and all(
            name in step.own and step.own[name].any() for step in many)]:
        found.say_by_name("backward pass not exchanged", e.line("backward"),
                          unsent=f"the gradient of {some_names(lost)}")
        return True
    if times_apart := scaled_apart(row, _mean_own(many)):
        found.say_by_name("parts scaled differently", e.line("clip"), scales=times_apart)
        return True
    if clipped := _clipped_apart(row):
        found.say_by_name("clipped before the average", e.line("clip"), scales=clipped)
        return True
    if idle := _without_loss(row):
        found.say_by_name("skipped by some", e.line("backward"), without_own=", ".join(idle))
        return True
    if _has_old_gradients(t, many, records):
        found.say_by_name("gradients of earlier steps", e.line("step"), when=when)
        return True
    if times is None and e.names:
        if late := _late_passes(t, many, records):
            found.say_by_name("backward pass not exchanged", e.line("backward"), unsent=late)
            return True
        rule = find_rule("gradient", e, OF_THE_EXCHANGE)
        if rule:
            found.say(rule, e, when, e.line(rule.line))
            return rule.fault
        rounded = _rounded(many, ran.k)
        if rounded == 1:
            ours, mean = flat(taken, taken), flat(right, taken)
            off = 100 * ((ours - mean).norm() / mean.norm()).item()
            found.say_by_name("reduced precision", fewer_bits="in fewer bits", off=f"the gradient is off by {off:.2g}%")
        elif e.wrong and rounded is None:
            found.say_by_name("changed after the exchange", e.line("step"), when=when)
    is_known = e.is_sent or differing(step.before for step in many)  # why the replicas are not the same after the step
    if rule := find_rule("update", e, OF_AN_UPDATE - {"drift"} if is_known else OF_AN_UPDATE):
        found.say(rule, e, when, e.line(rule.line))
        return True
    return found.is_decided and not found.faults.keys() <= OF_DATA


def _without_loss(row: Sequence[dict]) -> list[str]:
    """The ranks that multiply their loss by zero or have none, if the others' losses do not make up for it."""
    idle = [r for r, data in enumerate(row) if not any(x.any() for x in data["step"].own.values())
            and not any(term.weight for term in data["terms"])]
    others = [sum(abs(term.weight) for term in data["terms"]) for r, data in enumerate(row) if r not in idle]
    return list(map(str, idle)) if others and all(near(weight, 1) for weight in others) else []


def _clipped_apart(row: Sequence[dict]) -> str:
    """By how much the ranks' gradients differ in length when they are clipped, if they are not the same then."""
    if any(data["at_clip"] is None for data in row) or len({data["step"].held for data in row}) > 1:
        return ""
    seen = [{name: x for name, x in data["at_clip"].items() if name in data["step"].held} for data in row]
    sizes = [norm(values) for values in seen]
    if not differing(seen, max(sizes)):
        return ""
    return "norms when clipped: " + ", ".join(f"{size:.2g} on rank {r}" for r, size in enumerate(sizes[:3]))


def _same_rows(many: Sequence[Step]) -> int:
    """How many examples went through the network on every rank, if they are the same everywhere; 0 otherwise."""
    rows = [set(step.examples) for step in many]
    if any("dist.all_gather" in what for step in many for what in step.lines):  # each rank trains on all of it
        return 0
    return len(rows[0]) if len(rows[0]) > 1 and all(row == rows[0] for row in rows) else 0


def _has_old_gradients(t: int, many: Sequence[Step], records: list[Record]) -> bool:
    """Whether this step's gradient contains the gradient of the same optimizer's previous step, on all ranks."""
    if not t or not all(step.stale for step in many):
        return False
    before = next((step for step in reversed(records[0].steps[:t]) if step.held == many[0].held), None)
    if before is None:
        return False
    own = _mean_own(many)
    like = {name: x for name, x in many[0].unclipped.items() if name in own and name in many[0].held}
    if not like or not before.unclipped:
        return False
    ours, new, old = flat(like, like), flat(own, like), flat(before.gradients, like)
    columns = torch.stack([new, old], 1)
    weights = torch.linalg.lstsq(columns, ours[:, None], driver="gelsd").solution[:, 0]
    return bool((columns @ weights - ours).norm() <= 1e-3 * ours.norm()) and near(weights[1].item(), 1)


def _late_passes(t: int, many: Sequence[Step], records: list[Record]) -> str:
    """Which backward passes the averaged gradient does not contain, if it contains the others."""
    number = len(many[0].passes)
    names = set.intersection(*(set(grads) for step in many for grads in step.passes)) & many[0].unclipped.keys()
    if number < 2 or any(len(step.passes) != number for step in many) or not names:
        return ""
    like = {name: many[0].unclipped[name] for name in sorted(names)}
    before = [record.steps[t - 1].passes for record in records if t and record.steps[t - 1].held == many[0].held]
    columns = torch.stack([flat(_mean([step.passes[i] for step in many]), like) for i in range(number)] + [
        flat(_mean(passes), like) for passes in zip(*before)], 1)
    if not are_enough(columns):
        return ""
    ours = flat(like, like)
    weights = torch.linalg.lstsq(columns, ours[:, None], driver="gelsd").solution[:, 0]
    is_late = [abs(x) < 1e-2 for x in weights[:number].tolist()]
    if (columns @ weights - ours).norm() > 1e-3 * ours.norm() or not 0 < sum(is_late) < number:
        return ""
    return ", ".join(f"pass {i + 1} of {number}" for i in range(number) if is_late[i])


def _rounded(many: Sequence[Step], k: int) -> float | None:
    """By what factor (1, k or 1/k) the gradient before clipping is the mean, up to the rounding of a smaller dtype."""
    own = _mean_own(many)
    taken = {name: x for name, x in many[0].unclipped.items() if name in own}
    tolerance = max(2e-2, rounding_of_sums(many))
    times = factor(flat(taken, taken), flat(own, taken), tolerance)
    return next((x for x in (1.0, float(k), 1 / k) if times and abs(times - x) < tolerance * x), None)


def _unused(many: Sequence[Step]) -> set[str]:
    return set(many[0].trainable) - {name for step in many for name, x in step.gradients.items() if x.any()}


def _note_left_out(rows: Sequence[Sequence[dict]], found: Diagnosis) -> None:
    """Say which parameters get gradients, and are in no optimizer."""
    held = {name for row in rows for name in row[0]["step"].held}
    left = [name for name in rows[-1][0]["step"].own if name not in held] if rows else []
    if held and left:
        found.say_by_name("not in an optimizer", names=some_names(left))


def _judge_parts(rows: Sequence[Sequence[dict]], pretended: bool, found: Diagnosis) -> None:
    """Report parts that are the same on all ranks at first, and parts that only some ranks change between two steps."""
    data = rows[0][0] if rows else {}
    drawn = [name for name, ranks in data.get("parts", {}).items()
             if len(ranks) > 1 and name not in data.get("constants", ())]
    begin = [data["step"].before[name] for name in drawn if name in data["step"].before]
    if len(begin) > 1 and all(part.equal(parts[0]) and part.any() for parts in begin for part in parts):
        rule = next(rule for rule in RULES if rule.name == "same parts")
        found.say(rule._replace(fault=not pretended), {"names": some_names(drawn)})  # a GPU would draw others
    gaps = [_ranks_that_change(row[0], then[0]) for row, then in zip(rows, rows[1:])]
    if len(gaps) > 2 and gaps[0] and set(gaps) == {gaps[0]}:
        found.say_by_name("changed between steps", apart=f"only the parts on rank {' and '.join(map(str, gaps[0]))}")


def _ranks_that_change(data: dict, then: dict) -> tuple[int, ...]:
    """The ranks whose parts are not what the last step left, if the parts of others are."""
    changed: dict[int, bool] = {}
    for name, ranks in data.get("parts", {}).items():
        old, new = data["step"].after.get(name), then["step"].before.get(name)
        for i, rank in enumerate(ranks if len(ranks) > 1 and old is not None and new is not None else ()):
            if old[i].any():
                changed[rank] = changed.get(rank, False) or not old[i].equal(new[i])
    return () if all(changed.values()) else tuple(rank for rank, is_new in changed.items() if is_new)


def _judge_buffers(rows: Sequence[Sequence[dict]], found: Diagnosis) -> None:
    """Report buffers that differ between the ranks when each step begins; those of BatchNorm are expected to."""
    begun = [[data["buffers_before"] for data in row] for row in rows
             if all(data.get("buffers_before") for data in row)]
    if len(begun) < 2:
        return
    apart = [{name for name in differing(row, nan_is_equal=True) if not name.endswith(OF_BATCHNORM)} for row in begun]
    times = Counter(name for names in apart[1:] for name in names)
    if names := sorted(set.intersection(*apart)):
        found.say_by_name("different buffers", names=some_names(names))
    elif names := sorted(name for name, number in times.items() if number > len(apart) / 2):
        found.add("different buffers", "each rank computes buffers from its own examples, so they differ between ranks "
                  f"when a step begins ({some_names(names)})", "If the loss depends on them, each rank trains a "
                  "different network. DDP, unless broadcast_buffers=False, overwrites them with rank 0's, so the other "
                  "ranks' values are lost; fully_shard leaves them different. all_reduce the values that a buffer is "
                  "computed from")


def _judge_losses(rows: Sequence[Sequence[dict]], k: int, found: Diagnosis) -> None:
    """What the values of the losses say, and the numbers of elements over which they are means."""
    if rows and all(map(_has_gathered_loss, rows)):
        found.say_by_name("divided twice", f" [{rows[0][0]['step'].lines['backward']}]", k=k, times=f"1/{k} of")
    for row in rows:
        rows_of = {tuple(data["step"].micro_batches) for data in row}
        counts = [_averaged(data["terms"]) for data in row]
        if len(rows_of) == 1 and all(counts) and len(set(counts)) > 1:
            found.add("mean over tokens", "the ranks' losses are means over different numbers of elements "
                      f"({_by_rank(counts)}), and are given equal weight",
                      "An element on a rank with fewer of them then counts more; this happens with padded tokens. To "
                      "be exact, sum, divide by the number on all ranks, and multiply by get_world_size(); diagnose "
                      "says how far the gradient is off", f" [{row[0]['step'].lines.get('backward', '')}]", fault=False)
            break


def _judge_passes(rows: Sequence[Sequence[dict]], found: Diagnosis) -> None:
    """Note backward passes whose gradients were zeroed, and examples that several ranks use in one step."""
    thrown = [min(data["step"].thrown_away for data in row) for row in rows]
    if any(thrown) and len({data["optimizer"] for row in rows for data in row}) == 1:
        passes = sum(thrown) + sum(len(row[0]["step"].passes) for row in rows)
        found.say_by_name("gradients thrown away", thrown=sum(thrown), passes=passes)
    several = [shared for row in rows if (shared := _shared_rows([data["step"] for data in row]))]
    is_known = "data" in found.coverage and found.coverage["data"].state == "judged"  # by indices: two may be alike
    if len(several) > 1 and not is_known and not found.faults.keys() & OF_DATA:
        found.say_by_name("same example on several ranks", several=len(several), steps=len(rows))


def _shared_rows(many: Sequence[Step]) -> int:
    """How many examples are on more than one rank, if not all are the same."""
    rows = [set(step.examples) for step in many]
    return 0 if not all(rows) or _same_rows(many) else sum(map(len, rows)) - len(set().union(*rows))


def _averaged(terms: Sequence[LossTerm]) -> int:
    """Over how many elements a loss is a mean, or a sum that is divided by their number; 0 if that is not known."""
    if len(terms) != 1 or not terms[0].factor:
        return 0
    if not terms[0].is_sum:
        return terms[0].count if near(terms[0].weight, 1) else 0
    number = 1 / abs(terms[0].factor)
    return round(number) if round(number) > 1 and abs(number - round(number)) < 1e-4 * number else 0


def _has_gathered_loss(row: Sequence[dict]) -> bool:
    """Whether all ranks have one and the same mean as their loss, and each only the gradient of its own rows."""
    losses = [data.get("losses", []) for data in row]
    is_one = bool(losses[0]) and all(len(mine) == len(losses[0]) and all(map(near, mine, losses[0])) for mine in losses)
    weights = [sum(term.weight for term in data["terms"]) for data in row]
    many = [data["step"] for data in row]
    sends_gradients = any(data.get("gathers") for data in row)
    return is_one and all(near(weight, 1) for weight in weights) and not sends_gradients and all(
        map(_compares, many)) and not _same_rows(many) and bool(differing(step.own for step in many))


def _are_finite(many: Sequence[Step]) -> bool:
    return all(map(are_finite, (values for step in many for values in (step.before, step.gradients, step.after))))


def _scale(row: Sequence[dict], k: int) -> Scale | None:
    many = [data["step"] for data in row]
    if any(data["is_sharded"] for data in row):
        return _scale_of(row, None)
    own = _mean_own(many)
    taken = {name: x for name, x in many[0].unclipped.items() if name in own}
    size = norm(own)
    if not taken or not size:
        return None
    if any(_compares(data["step"]) for data in row):
        return None
    ours, mean = flat(taken, taken), flat(own, taken)
    exchange = factor(ours, mean) or _rounded(many, k)
    return _scale_of(row, exchange) if exchange else None


def _compares(step: Step) -> bool:
    """Whether the script gathers something between the forward and the backward pass, as for a contrastive loss."""
    order = list(step.lines)
    gathers = [i for i, what in enumerate(order) if what.startswith("dist.all_gather")]
    return "forward" in order and "backward" in order and any(
        order.index("forward") < i < order.index("backward") for i in gathers)


def _both(first: Scale | None, then: Scale | None) -> Scale | None:
    """The scale of the first step, marked as constant if the next step has the same one."""
    if first is None or then is None:
        return first or then
    is_constant = first.is_constant and first.weights.keys() == then.weights.keys() and all(
        near(weight, then.weights[place]) for place, weight in first.weights.items()) and (
        near(first.exchange, then.exchange) if first.exchange and then.exchange else first.exchange == then.exchange)
    return first._replace(is_constant=is_constant)


def _scale_of(row: Sequence[dict], exchange: float | None) -> Scale:
    weights: dict[int, float] = {}
    terms: list[LossTerm] = [term for data in row for term in data["terms"]]
    for term in terms:
        weights[term.place] = weights.get(term.place, 0.0) + abs(term.weight) / len(row)
    step = row[0]["step"]
    sizes = set(step.micro_batches)
    is_sum = bool(terms) and all(term.is_sum and near(abs(term.factor), 1) and term.count in sizes for term in terms)
    return Scale(exchange, weights, is_sum, step.lines.get("backward", ""), step.lines.get("dist.all_reduce", ""),
                 row[0]["wrapped"], row[0]["hooked"])


def _judge_shards(rows: Sequence[Sequence[dict]], found: Diagnosis) -> Scale | None:
    """What can be checked if the parameters are sharded over the ranks."""
    for t, row in enumerate(rows):
        many = [data["step"] for data in row]
        if any(step.rates != many[0].rates for step in many):
            rates = " and ".join(f"{step.rates[0]:.3g} on rank {r}" for r, step in enumerate(many))
            found.say_by_name("different learning rates", rates_differ=rates)
        if (same := _same_rows(many)) and row[0]["is_fsdp"]:  # ranks that share a layer's columns see the same
            line = many[0].lines.get("forward", "")
            found.say_by_name("same examples on all ranks", f" [{line}]" * bool(line), examples_seen=f"{same} examples")
        if not all(are_finite(step.gradients) for step in many):
            found.say_by_name("NaN", step=t + 1, where="a gradient")
            return None
    if rows and not any(x.any() for row in rows for data in row for x in data["step"].gradients.values()):
        found.say_by_name("zero gradients")
        return None
    return _scale_of(rows[0], None) if rows and not rows[0][0]["divides_by_own"] else None


# the rest


def raised(ran: Ran) -> list[tuple[int, dict[str, Any]]]:
    """The ranks that ended with an error of their own, not because a collective failed, and how each ended."""
    return [(r, data) for r, rank in enumerate(ran.of("end")) for data in rank
            if data["error"] and not data.get("in_collective") and not _has_lost_a_peer(data["error"])]


def _has_lost_a_peer(error: str) -> bool:
    return "closed by peer" in error or "reset by peer" in error


def _judge_end(ran: Ran, found: Diagnosis) -> None:
    errors = [(r, data) for r, rank in enumerate(ran.of("end")) for data in rank if data["error"]]
    if ran.stands:
        _say_out_of_step("hangs", ran.stands, ran, found)
    elif ran.crashed and any(word in ran.output for word in ("op.preamble.length", "EnforceNotMet", "SIGABRT")):
        _say_out_of_step("different collectives", "; ".join(
            f"rank {r} reached {line}" for r, line in enumerate(ran.lines) if line), ran, found)
    elif ran.crashed:
        first = next(iter(raised(ran) or [one for one in errors if not _has_lost_a_peer(one[1]["error"])] or errors),
                     None)
        left = [r for r, rank in enumerate(ran.of("end")) if rank and not rank[-1]["error"] and not rank[-1]["enough"]]
        if first and _has_lost_a_peer(first[1]["error"]) and left:
            stands = "; ".join([f"rank {r} has ended" for r in left] + [
                f"rank {r} was waiting at {data['line']}{data.get('under', '')}" for r, data in errors if data["line"]])
            _say_out_of_step("hangs", stands, ran, found)
        else:
            words = first[1]["error"].strip().partition("\n")[0] if first else ran.output.strip().rpartition("\n")[2]
            line = f" [{first[1]['line']}]" if first and first[1]["line"] else ""
            found.say_by_name("raises", line, error=words[:300])


def _say_out_of_step(name: str, stands: str, ran: Ran, found: Diagnosis) -> None:
    """Say where ranks wait for one another, and which `if` keeps some of them from a collective."""
    waits = [f"{line} is {under}" for line, under in UNDER.findall(stands)]
    called = [data["place"] for rank in ran.of("on some ranks") for data in rank]
    place = next((one for one in waits + called if max(waits.count(one), called.count(one)) < ran.k), "")
    if not place:
        found.say_by_name(name, stands=stands)
        return
    seen = next(rule.seen for rule in RULES if rule.name == name)
    found.add(name, f"{seen} ({stands})", f"The collective at {place}, so only some ranks call it. Call it on all "
              "ranks; a network that is evaluated on one rank must be called without its DDP wrapper")


def _judge_moves(ran: Ran, found: Diagnosis) -> None:
    """Where a wrapped network was moved or cast, that is why DDP exchanges nothing: it loses its hooks."""
    name, lost = "moved or cast after wrapping", found.faults.keys() & {"DDP bypassed", "not exchanged"}
    for rank, steps in zip(ran.of("moved"), ran.steps):
        for data in rank:
            line = f" [{data['line']}]" * bool(data["line"])
            if data["pretended"] and data["steps"] < len(steps):
                found.add(name, "the network is moved to the CPU after DDP has wrapped it, and then trained further",
                          "On a GPU, DDP loses its hooks there, and gradients are not exchanged any more. Move its "
                          "state_dict instead", line)
            elif lost and not data["pretended"]:
                for symptom in lost:
                    found.faults.pop(symptom, None)
                found.say_by_name(name, line)


def _judge_evaluation(ran: Ran, found: Diagnosis) -> None:
    for scaled in next((rank for rank in ran.of("clipped while scaled") if rank), [])[:1]:
        found.say_by_name("clipped while scaled", f" [{scaled['line']}]", scale=scaled["scale"])
    evaluations = ran.of("evaluation")
    for row in zip(*ran.of("plateau")):
        metrics = [data["metric"] for data in row]
        if len(ran.records) > 1 and len(set(map(repr, metrics))) > 1:  # NaN on all ranks is the same
            values = ", ".join(f"{x:.4g} on rank {r}" for r, x in enumerate(metrics))
            found.add("different learning rates", f"a scheduler is given different values on the ranks ({values}), and "
                      "will lower their learning rates at different times", "Average the value over the ranks first",
                      f" [{row[0]['line']}]")
            break
    for row in zip(*evaluations):
        if len(ran.records) > 1 and (off := differing([data["buffers"] for data in row], nan_is_equal=True)):
            found.add("different buffers", f"the ranks evaluate with different buffers, so each measures a different "
                      f"network ({some_names(off)})", "Broadcast them first, or call the DDP wrapper, which "
                      "broadcasts rank 0's buffers unless broadcast_buffers=False", f" [{row[0]['line']}]", fault=False)
            break
    for data in next((rank for rank in evaluations if rank), []):
        if data["training"]:
            found.say_by_name("evaluation in training mode", f" [{data['line']}]")
            break


def _judge_files(ran: Ran, found: Diagnosis) -> None:
    saves = [{data["file"]: data["line"] for data in rank} for rank in ran.of("save")]
    if len(saves) > 1 and (common := set(saves[0]).intersection(*saves[1:]) - {os.devnull}):
        file = sorted(common)[0]
        found.say_by_name("all ranks save", f" [{saves[0][file]}]" * bool(saves[0][file]), file=os.path.basename(file))


def _judge_seeds(ran: Ran, found: Diagnosis) -> None:
    first = [rank[0] for rank in ran.of("forward pass before the first step") if rank]
    drawn = [rank[-1].get("drawn_by_workers", {}) for rank in ran.of("end") if rank]
    if len(drawn) == len(ran.records) > 1 and any(drawn[0].values()) and all(one == drawn[0] for one in drawn):
        names = " and ".join(dict.fromkeys(name for states in drawn[0].values() for name in states))
        found.add("same augmentation", f"the workers of all ranks' loaders draw the same random numbers from {names}",
                  "Seed each rank with seed + rank, after the network is made. If a worker_init_fn sets a seed, derive "
                  "it from torch.initial_seed(), which then differs from rank to rank", fault=False)
    if len(first) == len(ran.records) > 1 and all(data["dropout"] for data in first) and len(
            {data["random_state"] for data in first}) == 1:
        found.say_by_name("same dropout")
    for name in ("PyTorch's default generator", "NumPy's generator", "Python's generator"):
        if _draw_the_same(ran, name) and "same dropout" not in found.notes:
            line = next((data["step"].lines.get("forward", "") for data in ran.steps[0]), "")
            found.say_by_name("same random numbers", f" [{line}]" * bool(line), generator=name)


def _draw_the_same(ran: Ran, name: str) -> bool:
    """Whether all ranks' generators have the same state in every step, and it changes between the steps of an epoch."""
    def state(data: dict) -> str:
        return data.get("other_states", {}).get(name, data.get("random_state"))

    rows = list(zip(*ran.steps)) if len(ran.records) > 1 else []
    if not rows or any(len({state(data) for data in row}) > 1 or _same_rows([data["step"] for data in row])
                       for row in rows):
        return False
    pairs = [(row[0], then[0]) for row, then in zip(rows, rows[1:]) if row[0].get("passes") == then[0].get("passes")]
    return len(pairs) > 1 and all(state(one) != state(then) for one, then in pairs)
