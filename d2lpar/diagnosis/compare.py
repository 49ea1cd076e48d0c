"""Is my script right? A single device and k ranks side by side, and in words what differs.

`diagnose` runs a user's training on the same minibatches: on a single device, on ranks with equal shards, and on ranks
with unequal shards. `running` runs it, `recording` records what happens, and `rules` knows what that means.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from d2lpar.checks import check_counts
from d2lpar.diagnosis.evidence import (
    TOLERANCE,
    Evidence,
    are_finite,
    differing,
    flat,
    has_only_zero_gradients,
    moves,
    right_by_averaged_parameters,
    same_steps,
    some_names,
)
from d2lpar.diagnosis.recording import Record, Step, of_the_script
from d2lpar.diagnosis.rules import CURES_OF_PARTS, NAMES, RULES, Rule
from d2lpar.diagnosis.running import Alone, Seen, nothing, run_alone, run_rank
from d2lpar.launch import RankError, RankGroup

START_S = 300.0  # for the start of the ranks, which is not the script's time
MANY_FILES = 20  # of which the sentences name no more
FIRST_STEP_S = 10.0  # for the first step alone, where the whole did not end
MOST_EXAMPLES = 4096  # in a minibatch, where examples are repeated so that micro-batches are of one size
# notes that say enough
ONLY_EQUAL = {"averaged after the step", "weighted mean", "some ranks step", "reduced precision", "skipped together",
              "mean over micro-batches"}
# what averaging unequal shards looks like
OF_SIZES = {"not a mean over examples", "unexplained gradient", "clipped before the average",
            "clipped in each micro-batch", "scaled", "scaled in part", "loss scaled on each rank",
            "buffers follow the shard", "penalty added on every rank", "clipped by a different norm"}
OF_A_TERM = {"not a mean over examples", "unexplained gradient", "loss scaled on each rank", "buffers follow the shard"}
UNCHECKED = ["mistakes that a single device makes as well", "anything after these steps"]
SUBJECTS = ("start", "exchange", "scale", "clipping", "update", "data", "random numbers", "evaluation", "checkpoints",
            "resuming")
UNJUDGED = "unjudged"  # allows a verdict without an all-clear
RANK = re.compile(r"\brank (\d+)")
LINE = re.compile(r"([^\s\[]+\.py), line (\d+)|line (\d+) of (\S+?\.py)")
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)\n    (.*)$', re.M)
UNUSED = re.compile(r"Expected to have finished reduction|parameters that were not used in producing")


class Subject(NamedTuple):
    """How far `watch` judged one thing about a run: "judged", "in part", "not judged" or "not seen", and why."""

    state: str
    why: str = ""


class Finding(NamedTuple):
    """The parts of a finding: what was seen, what to do about it, and the line of the script."""

    seen: str
    do: str
    line: str  # as in "train.py, line 27: `loss.backward()`"; "" if unknown

    def as_dict(self, name: str, fault: bool) -> dict[str, Any]:
        """For JSON; `ranks` are those that the sentence names, and none if it is about all of them."""
        place = LINE.search(self.line) or LINE.search(self.seen)
        file, number = (place[1] or place[4], place[2] or place[3]) if place else (None, None)
        ranks = sorted({int(r) for r in RANK.findall(self.seen)})
        return {"name": name, "fault": fault, "ranks": ranks, "file": file, "line": number and int(number),
                "seen": self.seen, "do": self.do}


class Diagnosis:
    """What `diagnose` found: `faults`, and `notes` on what may be intended, by name; `ok` if there is no fault.

    Its text, as `print` shows it, says both in sentences. What is named in `allow` is a note. A diagnosis by `watch`
    also has its `coverage`, a `Subject` for each thing about a run; it is `ok` only if everything in `needed` was
    judged, at least in part.
    """

    def __init__(self, about: str, allow: Iterable[str] = (), unchecked: Iterable[str] = UNCHECKED,
                 watched: bool = False) -> None:
        self.about, self.allow, self.unchecked = about, frozenset(allow), list(unchecked)
        self.watched = watched
        self.in_parts = False  # parameters are in parts on the ranks, as by fully_shard
        self.faults: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.parts: dict[str, Finding] = {}  # of all findings
        self.coverage: dict[str, Subject] = {}
        self.needed: set[str] = set()  # the subjects without which there is no all-clear
        self.files: dict[str, list[str]] = {}  # that a watched run did not leave as they were, by what became of them

    @property
    def ok(self) -> bool:
        """Whether no fault was found where one was looked for."""
        return not self.exit_code

    @property
    def exit_code(self) -> int:
        """Of the command: 1 for a fault; 3 if `watch` could not judge something without which there is no all-clear."""
        return 1 if self.faults else 3 if self.unjudged and UNJUDGED not in self.allow else 0

    @property
    def unjudged(self) -> list[str]:
        """The subjects that were needed, and were not judged."""
        return [name for name in SUBJECTS if name in self.needed and self.coverage[name].state == "not judged"]

    def move_back(self, name: str) -> None:
        """Let a fault stand behind those that were found after it."""
        if name in self.faults:
            self.faults[name] = self.faults.pop(name)

    @property
    def is_decided(self) -> bool:
        """Whether there is a fault, even if it is allowed: what comes after may be its consequence."""
        return bool(self.faults or self.notes.keys() & self.allow)

    def say(self, rule: Rule, numbers: Any, when: str = "", line: str = "") -> None:
        """Write down what a rule says, with the numbers that it names, and a line of the script."""
        cure = CURES_OF_PARTS.get(rule.name, rule.cure) if self.in_parts else rule.cure
        numbered, cure = rule.numbers.format_map(numbers), cure.format_map(numbers)
        seen = rule.watched if self.watched and rule.watched else rule.seen
        self.add(rule.name, f"{when}{seen.format_map(numbers)}{f' ({numbered})' if numbered else ''}", cure, line,
                 rule.fault)

    def add(self, name: str, seen: str, do: str = "", line: str = "", fault: bool = True) -> None:
        """Write down a finding in its own words; the line is in brackets, after a space."""
        if name not in self.faults and name not in self.notes:
            self.parts[name] = Finding(seen, do, line.strip(" []"))
        words = f"{seen}{line}" + f". {do}" * bool(do)
        (self.faults if fault and name not in self.allow else self.notes).setdefault(name, words)

    def place(self, name: str, line: str) -> None:
        """Add a line of the script to a finding that has none."""
        if not self.parts[name].line:
            seen, do, _ = self.parts.pop(name)
            of = self.faults if name in self.faults else self.notes
            of[name] = f"{seen} [{line}]" + f". {do}" * bool(do)
            self.parts[name] = Finding(seen, do, line)

    def say_by_name(self, name: str, line: str = "", **numbers: Any) -> None:
        """Write down what the rule of that name says."""
        self.say(next(rule for rule in RULES if rule.name == name), numbers, line=line)

    def cover(self, name: str, state: str, why: str = "", needed: bool = False) -> None:
        """Write down how far a subject was judged."""
        self.coverage[name] = Subject(state, why)
        self.needed |= {name} if needed else set()

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what was compared, how far each subject was judged, what was found, and what was not checked."""
        words = self.faults | self.notes
        findings = [self.parts.get(name, Finding(words[name], "", "")).as_dict(name, name in self.faults)
                    for name in words]
        coverage = {name: self.coverage[name]._asdict() for name in SUBJECTS if name in self.coverage}
        return {"compared": self.about, "coverage": coverage, "findings": findings, "unchecked": self.unchecked,
                "files": self.files}

    def __str__(self) -> str:
        found = "FAULT FOUND" if self.faults else "no fault found"
        lines = [f"{found}: {self.about}"]
        if self.unjudged and not self.faults:
            lines = [self._of_state("not judged"), f"{self.about}; {found} in what was judged"]
        lines += [f"FAULT, {name}: {words}" for name, words in self.faults.items()]
        lines += [f"note, {name}: {words}" for name, words in self.notes.items()]
        states = ("not judged",) if self.faults else ("judged", "in part", "not judged", "not seen")
        lines += [words for words in map(self._of_state, states) if words and words != lines[0]]
        lines += about_files(self.files)
        if not self.faults:
            lines.append(f"not checked: {'; '.join(self.unchecked)}")
        return "\n".join(fill(line, 88, subsequent_indent="    ", break_on_hyphens=False) for line in lines)

    def _of_state(self, state: str) -> str:
        """The subjects in this state with the reasons, one of which may hold for several; "" if there is none."""
        by_reason: dict[str, list[str]] = {}
        for name in SUBJECTS:
            if name in self.coverage and self.coverage[name].state == state:
                by_reason.setdefault(self.coverage[name].why * (state != "not seen"), []).append(name)
        parts = [", ".join(names) + f" ({why})" * bool(why) for why, names in by_reason.items()]
        return f"{state}: {'; '.join(parts)}" if parts else ""

    __repr__ = __str__  # the last line of a cell shows it


def about_files(files: dict[str, list[str]]) -> list[str]:
    """A line about files that are not as they were, or none."""
    kinds = [f"{kind}: {', '.join(paths[:MANY_FILES])}"
             + f" and {len(paths) - MANY_FILES:,} more, which --json lists" * (len(paths) > MANY_FILES)
             for kind, paths in files.items()]
    return [f"files: {'; '.join(kinds)}"] if kinds else []


def diagnose(train: Callable, make_net: Callable, X: Tensor, y: Tensor, ranks: Any = 2, num_steps: int = 3,
             timeout_s: float | None = None, allow: Iterable[str] = ()) -> Diagnosis:
    """Compare a training on several ranks with the same training on a single device.

    Each rank calls `train(net, batches)` in a process group, with `net = make_net()` made after a seed of the rank's
    own, and `batches`, a list of its shards (X, y). A single device does the same in this process, as a group of one,
    with the whole minibatches. `train` wraps the network if it likes, makes its optimizer from `torch.optim`, and
    trains; it may return its losses, one for each step. Everything is in float64 and on the CPU, whatever asks for a
    GPU; dropout is switched off; and to enter the group or to leave it does nothing.

    Args:
        X, y: examples, (n, ...) each; they are cut into `num_steps` minibatches, and repeated where micro-batches would
            not come out even.
        ranks: how many, in new processes on the CPU, even if there are GPUs; or a `RankGroup`.
        timeout_s: for each time that all ranks train; by default 20 seconds, and ten times what a single device takes.
        allow: names of findings that are intended, and count as notes.

    What only unequal shards bring to light is a note. What fails on ranks, and not on a single device, is a fault.

    Raises:
        ValueError: for arguments that make no sense, and for a `train` that makes no step.
        Exception: what `train` raises on a single device in its first step.
        TimeoutError: if the ranks do not start.
    """
    allow = [allow] if isinstance(allow, str) else list(allow)
    _check_diagnosis(train, make_net, X, y, ranks, num_steps, allow)
    k = ranks if isinstance(ranks, int) else ranks.world_size
    size = _size(len(y), num_steps, k)
    _check_networks(make_net)
    with RankGroup(ranks, "gloo") if isinstance(ranks, int) else nullcontext(ranks) as group:
        comparison = _Comparison(train, make_net, X, y, num_steps, group, timeout_s, allow)
        found = comparison.run(size)
        better = comparison.even_size
        if better and better <= MOST_EXAMPLES:
            found = comparison.run(better)
        return found


class _Comparison:
    """One training, compared on minibatches of one size or several."""

    def __init__(self, train: Callable, make_net: Callable, X: Tensor, y: Tensor, num_steps: int, group: Any,
                 timeout_s: float | None, allow: Sequence[str]) -> None:
        self.train, self.make_net, self.X, self.y, self.group = train, make_net, X, y, group
        self.k, self.num_steps, self.timeout_s, self.allow = group.world_size, num_steps, timeout_s, allow
        self.even_size: int | None = None  # of a minibatch, at which all micro-batches would be of one size

    def run(self, size: int) -> Diagnosis:
        """Compare on minibatches of `size` examples each."""
        return self._compare(_cut_batches(self.X, self.y, self.num_steps, size))

    def _compare(self, batches: Sequence[tuple[Tensor, Tensor]], limit_s: float = math.inf) -> Diagnosis:
        self.even_size = None
        n, k = len(batches[0][1]), self.k
        equal, unequal = _cut_alike(n, k), _cut_unequally(n, k)
        found = Diagnosis(f"compared {k} ranks with a single device, on {len(batches)} "
                          f"minibatch{'es' * (len(batches) > 1)} of {n} split {_sizes(equal)}", self.allow)
        try:
            begin = time.perf_counter()
            again_alone, alone = run_alone(self.train, self.make_net, batches, equal)
            self._limit_s = min(limit_s, self.timeout_s or 20 + 10 * (time.perf_counter() - begin))
            if not alone.record.steps:
                raise ValueError(f"train makes no step with an optimizer of torch.optim in {len(batches)} minibatches; "
                                 "if it accumulates gradients over more of them, let it accumulate over fewer here")
            again = again_alone(seed=1)
        except Exception as error:
            if first := self._first_step(batches):
                first.say_by_name("raises", error=f"after the first step, on a single device as well: {_words(error)}")
                return first
            raise
        self._note_run(alone, found)
        repeatable = same_steps(alone.record, again.record)
        if has_only_zero_gradients(alone.record):
            found.say_by_name("zero gradients")
            return found
        if not moves(alone.record):
            found.say_by_name("wrong parameters")
            return found

        self.group.run(nothing, timeout_s=START_S)  # the ranks' start is not the script's time
        with tempfile.TemporaryDirectory() as crumbs:
            try:
                self.group.run(nothing, self.train, self.make_net, timeout_s=START_S)  # nor the loading of its modules
                begin = time.perf_counter()
                seen = self._run_ranks(self.group, batches, equal, alone, crumbs)
                self._limit_s = min(self._limit_s, 5 + 5 * (time.perf_counter() - begin))
            except (RankError, TimeoutError) as error:
                first = self._first_step(batches)
                if UNUSED.search(str(error)):  # the cause, even if the first step hangs
                    _say_failure(error, found, crumbs, k)
                found.faults |= first.faults if first else {}
                _say_failure(error, found, crumbs, k)
                return found
        records = [one.record for one in seen]
        if repeatable and len({one.generators for one in seen}) > 1:  # each rank has a generator of its own
            repeatable = same_steps(alone.record, again_alone(generators=1).record)
        if not repeatable:
            seeds = {one.seeds for one in seen}
            found.say_by_name("random numbers", seeds="all ranks set the same seed, so each of them draws the same "
                              "numbers: add the rank to the seed" if len(seeds) == 1 and seeds != {()} else "")
        notes = dict(found.notes)
        compare(alone.record, records, _labels(batches, equal), found, repeatable)
        if not found.ok and alone.several:  # BatchNorm may have seen views of the minibatch, one after another
            tiled, better = again_alone(tiled=True), Diagnosis(found.about, self.allow)
            better.notes |= notes
            compare(tiled.record, records, _labels(batches, equal), better, repeatable)
            if better.ok:
                found, alone, again_alone = better, tiled, partial(again_alone, tiled=True)
        if "mean over micro-batches" in found.notes:
            self.even_size = _even_size(n, k, alone.record, records)
        if repeatable and OF_A_TERM & found.faults.keys():
            self._look_for_the_rank(batches, equal, alone, found)
            self._look_for_a_term(found)
        if alone.batchnorm and not found.is_decided and repeatable:
            note_batchnorm(alone.record, again_alone(shards=None).record, found)
        if not found.is_decided and repeatable and not found.notes.keys() & ONLY_EQUAL:
            self._compare_unequal(batches, unequal, alone, again_alone, found)
        return found

    def _first_step(self, batches: Sequence[tuple[Tensor, Tensor]]) -> Diagnosis | None:
        """What can be said before a run fails, if it makes a step before."""
        with suppress(Exception):
            return self._compare(batches[:1], FIRST_STEP_S) if len(batches) > 1 else None

    def _run_ranks(self, group: Any, batches: Sequence[tuple[Tensor, Tensor]], shards: Sequence[list[int]],
                   alone: Alone, crumbs: str = "") -> list[Seen]:
        return group.run(run_rank, self.train, self.make_net, batches, shards, alone.promoted, crumbs,
                         timeout_s=self._limit_s)

    def _note_run(self, alone: Alone, found: Diagnosis) -> None:
        """Say what had to be done so that it could be compared."""
        if alone.seen.dropout:
            found.say_by_name("dropout")
        if alone.seen.cuda:
            found.say_by_name("CUDA", what=", ".join(sorted(alone.seen.cuda)))

    def _compare_unequal(self, batches: Sequence[tuple[Tensor, Tensor]], unequal: Sequence[list[int]], alone: Alone,
                         again_alone: Callable[..., Alone], found: Diagnosis) -> None:
        """Say in a note what only unequal shards bring to light."""
        one = again_alone(shards=unequal) if alone.batchnorm else alone
        other = Diagnosis(found.about)
        try:
            if one.like_ranks:
                found.about += f" and {_sizes(unequal)}"
                records = [seen.record for seen in self._run_ranks(self.group, batches, unequal, alone)]
                compare(one.record, records, _labels(batches, unequal), other)
            by_size = other.notes.pop("mean over micro-batches", None)
            if (other.faults or by_size) and other.faults.keys() <= OF_SIZES:  # right on equal shards: it is the sizes
                other.faults.clear()
                if "mean of means" not in found.notes | other.notes:
                    other.say_by_name("mean of means", off="the gradient of unequal shards differs")
            words = "; ".join(f"{name}, {text}" for name, text in other.faults.items())
        except (RankError, TimeoutError) as error:
            words = f"it fails, {_words(error)}"
        found.notes |= {name: text for name, text in other.notes.items() if name not in found.notes}
        if words:
            found.say_by_name("unequal shards", sizes=_sizes(unequal), words=words)

    def _look_for_the_rank(self, batches: Sequence[tuple[Tensor, Tensor]], equal: Sequence[list[int]], alone: Alone,
                           found: Diagnosis) -> None:
        """Tell what depends on the rank from what depends on the shard: all ranks get the same shard."""
        with suppress(RankError, TimeoutError):
            records = [seen.record for seen in self._run_ranks(self.group, batches, [equal[0]] * self.k, alone)]
            for t, steps in enumerate(zip(*(record.steps for record in records))):
                if differing(step.before for step in steps):
                    return
                if differing([step.own for step in steps]):
                    for name in OF_A_TERM & found.faults.keys():
                        del found.faults[name]
                    line = steps[0].lines.get("backward", "")
                    found.say_by_name("computed differently on each rank", f" [{line}]" * bool(line), step=t + 1)
                    return

    def _look_for_a_term(self, found: Diagnosis) -> None:
        """Tell a term of the loss that is k times too large, or a k-th, by one step on another number of ranks.

        What is too much then has the same direction, and its length goes as k - 1, or as 1 - 1/k.
        """
        if not OF_A_TERM & found.faults.keys():
            return
        k, other = self.k, 2 if self.k == 3 else 3
        size = _next_multiple(_size(len(self.y), self.num_steps, k), math.lcm(4 * k, 4 * other))
        batches = _cut_batches(self.X, self.y, 1, size)
        excess = []
        with suppress(RankError, TimeoutError, ValueError), ExitStack() as stack:
            for count in (k, other):
                group = self.group if count == k else stack.enter_context(RankGroup(count, "gloo"))
                shards = _cut_alike(size, count)
                _, alone = run_alone(self.train, self.make_net, batches, shards)
                if count != k:
                    group.run(nothing, self.train, self.make_net, timeout_s=START_S)
                step = self._run_ranks(group, batches, shards, alone)[0].record.steps[0]
                like = alone.record.steps[0].unclipped
                excess.append(flat(step.unclipped, like) - flat(like, like))
        if len(excess) < 2 or not all(x.any() for x in excess):
            return
        times = (excess[1] @ excess[0] / (excess[0] @ excess[0])).item()
        if (excess[1] - times * excess[0]).norm() > 1e-6 * excess[1].norm():
            return
        for name, expected in (("one term times the world size", (other - 1) / (k - 1)),
                               ("one term divided by the world size", (1 - 1 / other) / (1 - 1 / k))):
            if abs(times - expected) < 1e-4:
                [words] = [found.faults.pop(old) for old in list(found.faults) if old in OF_A_TERM]
                off = re.search(r"off by [\d.e+-]+%", words)
                found.say_by_name(name, k=k, off=f"the gradient is {off[0]}" if off else "")


def compare(alone: Record, ranks: Sequence[Record], labels: Sequence[Sequence[Tensor]], found: Diagnosis,
            repeatable: bool = True) -> None:
    """Write down what differs, up to the first step with a fault; what comes after may be its consequence.

    Where the single device's run cannot be repeated, as augmentation is random, the ranks are compared with each other
    only.
    """
    k, counts, steps = len(ranks), [len(record.steps) for record in ranks], len(alone.steps)
    stepping = [record for record in ranks if record.steps]
    starts = [record.steps[0].before for record in (alone, *stepping)]
    if off := differing(starts):
        begun = [record.start for record in (alone, *stepping) if record.start]
        name = "different start" if len(begun) <= k or differing(begun) else "changed in the forward pass"
        found.say_by_name(name, names=some_names(off, len(starts[0])))
    buffers = [{name: x for name, x in record.buffers.items() if name in alone.buffers} for record in stepping]
    if off := differing([alone.buffers, *filter(None, buffers)], nan_is_equal=True):
        found.say_by_name("different buffers", names=some_names(off))
    last = min(steps, *counts) if stepping == list(ranks) else steps
    if set(counts) == {0, steps} and not differing(record.end for record in ranks):
        found.say_by_name("some ranks step")
    elif set(counts) != {steps}:
        last = _say_other_steps(alone, ranks, found)
    if not stepping:
        return
    if not found.is_decided and repeatable and len(stepping) == k and right_by_averaged_parameters(alone, ranks):
        found.say_by_name("averaged after the step")
        return
    _note_unused(alone, stepping, found)
    right = False
    for t in range(min(last, steps, *(len(record.steps) for record in stepping))):
        if found.is_decided and t > 0:
            return
        many = [record.steps[t] for record in stepping]
        if bad := _not_finite(alone.steps[t], many):
            line = next((f" [{step.lines['backward']}]" for step in many if "backward" in step.lines), "")
            found.say_by_name("NaN", line, step=t + 1, where=bad)
            return
        e = Evidence(t, alone, stepping, k, labels, repeatable)
        # the optimizer's own tensors have the gradients, or it exchanges them itself
        if e.ends_right and (e.exchanges_inside or not any(step.held for step in many)):
            right = True
            continue
        odd = bool(e.unlike or e.missing or not e.names or e.strayed or (t and e.apart))
        if _speak("exchange", e, found, odd):
            found.move_back("different start")  # what is not exchanged is not made equal either
        else:
            _speak("gradient", e, found, bool(e.wrong) if e.comparable else not repeatable and bool(e.examples))
        if not found.is_decided:
            _speak("update", e, found, True)
        right = e.right
    if not found.is_decided and (off := differing(record.end for record in stepping)):
        found.say_by_name("different end", names=some_names(off, len(alone.end)))
    if not found.is_decided and right:
        _compare_losses(alone, stepping, found)


def _say_other_steps(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> int:
    """Say why the ranks make another number of steps; how many steps can be compared all the same."""
    counts, steps = [len(record.steps) for record in ranks], len(alone.steps)
    if len(set(counts)) == 1 and counts[0] and steps:
        seen = [{key for record in ranks for key in record.steps[t].examples} for t in range(counts[0])]
        wanted = [set(step.examples) for step in alone.steps]
        is_left_out = any(len(record.steps[t].passes) < record.steps[t].forwards for record in ranks
                          for t in range(counts[0]))  # a forward pass without a backward pass
        if all(seen) and seen[0] > wanted[0] and not is_left_out:
            return 1  # more examples go before a step, which the first step shows
        places = iter(range(steps))
        if all(seen) and counts[0] < steps and all(any(wanted[i] <= keys for i in places) for keys in seen):
            found.say_by_name("skipped together", ranks=counts, alone=steps)
            return next(t for t in range(steps) if t == counts[0] or wanted[t] != seen[t])
        cure = ("All ranks make the same number of steps. Does their number depend on the world size, or on how many "
                "examples a rank has?")
    else:
        cure = ("Does a rank decide on its own, by its own loss or data? Let all ranks decide together, with an "
                "all_reduce")
    found.say_by_name("different numbers of steps", counts=f"{counts} on the ranks, {steps} on a single "
                                                           f"device", cure=cure)
    return steps


def find_rule(stage: str, e: Evidence, of: Container[str] = frozenset(NAMES)) -> Rule | None:
    """The first rule of a stage that holds, of those with these names."""
    return next((rule for rule in RULES if rule.stage == stage and rule.name in of and rule.holds(e)), None)


def _speak(stage: str, e: Evidence, found: Diagnosis, odd: bool) -> bool:
    """Write down the first rule of a stage that holds, if anything is odd; whether one did."""
    rule = find_rule(stage, e) if odd else None
    if rule:
        found.say(rule, e, f"from step {e.t + 1} on, " * (e.t > 0), e.line(rule.line))
    return rule is not None


def _note_unused(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> None:
    """Say what no loss depends on, in any step."""
    gradients = [step.gradients for record in (alone, *ranks) for step in record.steps]
    reached = {name for grads in gradients for name, x in grads.items() if x.any()}
    idle = sorted(alone.steps[-1].trainable - reached)
    if idle and any(gradients):
        found.say_by_name("unused parameters", names=some_names(idle, len(alone.end)))


def _not_finite(one: Step, many: Sequence[Step]) -> str:
    """Where a gradient or a parameter is infinite or NaN."""
    if all(map(are_finite, (values for step in (one, *many) for values in (step.before, step.gradients, step.after)))):
        return ""
    bad = ["the single device"] * (not are_finite(one.own))
    bad += [f"rank {r}" for r, step in enumerate(many) if not are_finite(step.own)]
    return f"the backward pass of {' and '.join(bad)}" if bad else "what is made of the gradients"


def _compare_losses(alone: Record, ranks: Sequence[Record], found: Diagnosis) -> None:
    """The losses that the ranks return are the single device's, or have it as their mean."""
    if not alone.losses or any(record.losses is None or len(record.losses) != len(alone.losses) for record in ranks):
        return
    means = torch.tensor([record.losses for record in ranks]).double().mean(0)
    if (means - torch.tensor(alone.losses).double()).abs().max() > 1e-6 * max(map(abs, alone.losses)):
        found.say_by_name("reported loss", alone=alone.losses[0], mean=means[0].item())


def note_batchnorm(alone: Record, whole: Record, found: Diagnosis) -> None:
    """How far BatchNorm that sees shards only takes the first gradient from that of BatchNorm on the minibatch."""
    like = whole.steps[0].gradients
    right = flat(like, like)
    off = ((flat(alone.steps[0].gradients, like) - right).norm() / right.norm()).item()
    if off > TOLERANCE:
        found.say_by_name("BatchNorm", off=100 * off)


# minibatches and shards


def _size(examples: int, num_steps: int, k: int) -> int:
    """Of a minibatch: a multiple of 12k if there are examples enough, so that halves and thirds can be shared too."""
    most = examples // num_steps
    size = next((most // part * part for part in (12 * k, 4 * k, 2 * k) if most >= part), 0)
    if not size:
        raise ValueError(f"{num_steps} minibatches of at least {2 * k} examples are needed, got {examples} examples")
    return size


def _cut_batches(X: Tensor, y: Tensor, num_steps: int, size: int) -> list[tuple[Tensor, Tensor]]:
    """Minibatches in float64; where there are too few examples, they come again from the first on."""
    X = X.double() if X.is_floating_point() else X
    y = y.double() if y.is_floating_point() else y
    rows = torch.arange(num_steps * size) % len(y)
    return [(X[rows[i * size:(i + 1) * size]], y[rows[i * size:(i + 1) * size]]) for i in range(num_steps)]


def _even_size(n: int, k: int, alone: Record, ranks: Sequence[Record]) -> int | None:
    """The size of a minibatch at which the shards' micro-batches, and the single device's, are all of one size."""
    steps = [step for record in (alone, *ranks) for step in record.steps if step.micro_batches]
    counts, sizes = {len(step.micro_batches) for step in steps}, {max(step.micro_batches) for step in steps}
    parts = math.lcm(*(counts if len(counts) == 1 else sizes if len(sizes) == 1 else counts | sizes))
    size = _next_multiple(n, k * math.lcm(parts, 4))
    return size if size != n else None


def _next_multiple(n: int, of: int) -> int:
    return -(-n // of) * of


def _cut_alike(n: int, k: int) -> list[list[int]]:
    """The examples of k shards, dealt in turn as DistributedSampler does, so that halves of shards make up a half."""
    return [list(range(n))[r::k] for r in range(k)]


def _cut_unequally(n: int, k: int) -> list[list[int]]:
    """Places of k shards of n >= 2k examples, none larger than the one before, the last smaller than the first."""
    spare = n - k
    ends = [r + 1 - (-spare * total // (k * (k + 1) // 2)) for r, total in enumerate(accumulate(range(k, 0, -1)))]
    return [list(range(begin, end)) for begin, end in zip([0, *ends], ends)]


def _labels(batches: Sequence[tuple[Tensor, Tensor]], shards: Sequence[list[int]]) -> list[list[Tensor]]:
    return [[y[shard] for shard in shards] for _, y in batches]


def _sizes(shards: Sequence[list[int]]) -> str:
    """Sizes, as in 8 + 8."""
    return " + ".join(str(len(shard)) for shard in shards)


# what fails


def _say_failure(error: RankError | TimeoutError, found: Diagnosis, crumbs: str, k: int) -> None:
    """Say by its name how the ranks failed, which a single device did not."""
    if isinstance(error, TimeoutError):
        found.say_by_name("hangs", stands=_where_they_stand(error))
    elif "SIGABRT" in str(error) or "EnforceNotMet" in str(error) or "op.preamble.length" in str(error):
        lines = [Path(crumbs, str(rank)) for rank in range(k)]
        found.say_by_name("different collectives", stands="; ".join(
            f"rank {rank} reached {file.read_text('utf8')}" for rank, file in enumerate(lines) if file.exists()))
    else:
        found.say_by_name("raises", error=f"on the ranks, but not on a single device: {_words(error)}")


def _words(error: BaseException) -> str:
    """What happened, as the last line of a traceback says it; of PyTorch's longest message, the part that helps."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith(" ")]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    words = (errors[-1] if errors else lines[0] if lines else repr(error)).replace("fn had returned", "train had ended")
    if UNUSED.search(words):
        return ("DDP \"expected to have finished reduction in the prior iteration\": some parameters were not used in "
                "producing the loss. Pass find_unused_parameters=True to DDP, or use all parameters")
    return words if len(words) <= 400 else words[:400].rpartition(" ")[0] + " [...]"


def _where_they_stand(error: TimeoutError) -> str:
    """The line of the script in which each rank waits."""
    head, *stands = re.split(r"\n\n(?=rank \d+: )", str(error))
    head = re.sub(r"after ([\d.]+) s", lambda found: f"after {float(found[1]):.0f} s", head)
    lines = []
    for stand in stands:
        rank = stand.partition(":")[0]
        where = [f"{rank} stands in `{code}`, line {line} of {os.path.basename(name)}"
                 for name, line, _, code in FRAME.findall(stand)
                 if of_the_script(name)]
        left = f"{rank} has left train" if stand.endswith("had returned") else f"{rank}: unknown"
        lines.append(where[0] if where else left)
    return f"{head}: {'; '.join(lines)}"


# before anything runs


def _check_networks(make_net: Callable) -> None:
    """Raise ValueError unless each call makes a new network."""
    with torch.random.fork_rng(devices=[]):
        nets = make_net(), make_net()
    first, second = ({p.data_ptr() for p in net.parameters() if p.numel()} for net in nets)
    if first & second:
        raise ValueError("make_net must return a new network at each call, but the second one shares tensors with the "
                         "first (return copy.deepcopy(net), perhaps)")


def _check_diagnosis(train: Any, make_net: Any, X: Any, y: Any, ranks: Any, num_steps: Any,
                     allow: Sequence[str]) -> None:
    """Raise ValueError unless `diagnose` can begin with these."""
    if isinstance(make_net, nn.Module):
        raise ValueError("make_net must be a function that returns a new network each time, and this is a network")
    if X.dim() == 0 or y.dim() == 0 or len(X) != len(y):
        raise ValueError(f"X and y need one row per example each, got shapes {tuple(X.shape)} and {tuple(y.shape)}")
    if not hasattr(ranks, "run"):
        check_counts(2, ranks=ranks)
    check_counts(num_steps=num_steps)
    if unknown := [name for name in allow if name not in NAMES]:
        raise ValueError(f"there is no finding {unknown[0]!r} to allow; the names are: {', '.join(NAMES)}")
    if dist.is_initialized():
        raise ValueError("this process is in a process group; leave it first, because a single device needs a group of "
                         "its own")
