"""Is a resumed run the same as an uninterrupted one? The script is started again beside its own first checkpoint.

A rank keeps a copy of what it has written when the first step after its first checkpoint begins. The watching process
puts these files into place, starts the script once more, and compares its first step with that of the first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from d2lpar.diagnosis.compare import Diagnosis
from d2lpar.diagnosis.evidence import differing, norm
from d2lpar.diagnosis.parts import put_together

CHECKPOINT = "{checkpoint}"  # in the arguments of a script
HOW = f"if it takes an argument for that, add it with {CHECKPOINT} in place of the file, as in --resume {CHECKPOINT}"


def with_checkpoint(words: Sequence[str], path: str) -> list[str]:
    """A command with the path of a checkpoint; without one, the option that names it is left out as well."""
    if path:
        return [word.replace(CHECKPOINT, path) for word in words]
    marked = [i for i, word in enumerate(words) if CHECKPOINT in word]
    left_out = {*marked, *(i - 1 for i in marked if words[i] == CHECKPOINT and words[i - 1].startswith("-"))}
    return [word for i, word in enumerate(words) if i not in left_out]


def compare_resumed(ran: Any, again: Any, found: Diagnosis) -> None:
    """Report how the first step of a resumed run differs from the same step of the uninterrupted run."""
    steps, then = (one._replace(records=put_together(one.records)).steps for one in (ran, again))
    if not all(then) or again.crashed or again.stands:
        error = next((data["error"] for rank in again.of("end") for data in rank if data["error"]), "")
        why = f": {error.splitlines()[0]}" if error else ""
        found.cover("resuming", "not judged", f"started again with its checkpoint, the script took no step{why}"
                    if not all(then) else f"started again with its checkpoint, the script did not go on{why}")
        return
    first, number = [rank[0] for rank in then], ran.of("checkpoint")[0][0]["steps"]
    t = _where(steps[0], first[0], number)
    has_loaded = first[0]["has_loaded"] and not steps[0][0]["has_loaded"]
    if t == 0 or (t is None and not has_loaded):
        found.cover("resuming", "not judged", f"started again beside its checkpoint, the script began anew; {HOW}")
        return
    off = [] if t else ["the parameters are those of no step of that run"]
    t = t or number
    if t < min(map(len, steps)):
        row = [rank[t] for rank in steps]
        off += _differences(row, first) + _data(ran, again, t)
        ends = [one.of("end")[0] for one in (ran, again)]
        if not off and t + len(then[0]) == len(steps[0]) and all(ends):
            pairs = [pair for rates in zip(*(end[-1]["rates"] for end in ends)) for pair in zip(*rates)]
            off += _rates(pairs, "after an epoch, ")
        if not off and _leads_elsewhere(row, first):
            off.append("the same gradient leads to a different update")
    if off:
        found.say_by_name("resumed run differs", off="; ".join(off))
    found.cover("resuming", "in part" if t >= min(map(len, steps)) else "judged", "only the parameters"
                if t >= min(map(len, steps)) else "")


def _where(steps: Sequence[dict], first: dict, number: int) -> int | None:
    """The step of the uninterrupted run whose parameters the resumed run begins with."""
    begin = first["step"].before
    order = [number, *range(number - 1, -1, -1), *range(number + 1, len(steps))]
    return next((i for i in order if i < len(steps) and not differing([begin, steps[i]["step"].before])), None)


def _differences(row: Sequence[dict], first: Sequence[dict]) -> list[str]:
    found = []
    for r, (one, other) in enumerate(zip(row, first)):
        on = f" on rank {r}" * any(data["has_state"] != first[0]["has_state"] for data in first)
        if one["optimizer"] != other["optimizer"]:
            return []
        if one["has_state"] and not other["has_state"]:
            found.append(f"the optimizer begins without its state{on}")
        found += _rates(zip(one["step"].rates, other["step"].rates))
        if one["step"].scale != other["step"].scale:
            found.append(f"the GradScaler's factor is {other['step'].scale:g} instead of {one['step'].scale:g}")
    return list(dict.fromkeys(found))


def _rates(pairs: Iterable[tuple[float, float]], when: str = "") -> list[str]:
    return [f"{when}learning rate {new:.4g} instead of {old:.4g}" for old, new in pairs
            if abs(new - old) > 1e-6 * abs(old)][:1]


def _data(ran: Any, again: Any, t: int) -> list[str]:
    """Which epoch or minibatch comes a second time."""
    passes, other = ([data for data in one.of("pass")[0] if data["trained"] and data["indices"]]
                     for one in (ran, again))
    here = next((data for data in reversed(passes) if data["first_step"] <= t), None)
    if here and other:
        earlier = passes[:passes.index(here)]
        ours = other[0]["indices"]
        if not _is_the_same(ours, here["indices"]):
            return [f"epoch {i + 1} is repeated" for i, data in enumerate(earlier)
                    if _is_the_same(ours, data["indices"])][:1]
        return []
    seen = [{key for key in rank[0]["step"].examples} for rank in (again.steps[0], ran.steps[0], ran.steps[0][t:])]
    return ["the data begin with the first minibatch again"] if seen[0] and seen[0] == seen[1] != seen[2] else []


def _is_the_same(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> bool:
    shortest = min(len(ours), len(theirs))
    return list(ours[:shortest]) == list(theirs[:shortest]) and sum(map(len, ours[:shortest])) > 2


def _leads_elsewhere(row: Sequence[dict], first: Sequence[dict]) -> bool:
    pairs = [(one["step"], other["step"]) for one, other in zip(row, first)]
    return not any(differing([one.gradients, other.gradients], norm(one.gradients)) for one, other in pairs) and any(
        differing([one.after, other.after]) for one, other in pairs)
