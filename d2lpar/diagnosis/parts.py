"""Parameters of which each rank has a part, as `fully_shard` makes them, are judged like whole ones.

A rank records its own part of a parameter, and its own gradient of the whole, cut into the same parts. `put_together`
collects the parts of all ranks afterwards, so the ranks send one another nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from d2lpar.diagnosis.evidence import factor, flat, near
from d2lpar.diagnosis.recording import Step, Values

try:
    from torch.distributed.fsdp._fully_shard import _fsdp_param as fsdp
except ImportError:  # a PyTorch without it
    fsdp = None  # type: ignore
IN_PARTS = "before", "gradients", "unclipped", "after"  # fields of a step


def local(x: Any) -> Any:
    """A rank's part of a tensor; any other tensor as it is."""
    return x.to_local() if hasattr(x, "device_mesh") else x


def can_be_put_together(p: Any) -> bool:
    """Whether this rank has a part of it, and it is in parts along one dimension at most, and whole otherwise."""
    if p.device_mesh.get_coordinate() is None:
        return False
    cuts = [placement.is_shard() for placement in p.placements]
    return sum(cuts) <= 1 and all(cut or placement.is_replicate() for cut, placement in zip(cuts, p.placements)) and (
        type(p.placements[cuts.index(True)]).__name__ == "Shard" if any(cuts) else True)


def ranks_of_parts(p: Any) -> tuple[int, ...]:
    """The ranks that hold the parts of a parameter of which this rank has one, in the order of the parts."""
    here = p.device_mesh.get_coordinate()
    index = tuple(slice(None) if placement.is_shard() else i for placement, i in zip(p.placements, here))
    return tuple(p.device_mesh.mesh[index].flatten().tolist())


def cut_like(whole: Tensor, p: Any, keep: Callable[[Tensor], Tensor]) -> Tensor:
    """What is kept of each part of a tensor that is cut like this parameter."""
    dim = next((placement.dim for placement in p.placements if placement.is_shard()), 0)
    number = len(ranks_of_parts(p))
    parts = list(whole.chunk(number, dim))
    parts += [whole.narrow(dim, 0, 0)] * (number - len(parts))  # there are more ranks than rows
    return torch.stack([keep(part) for part in parts])


# for the watching process


def put_together(records: Sequence[list[tuple[str, dict[str, Any]]]]) -> list[list[tuple[str, dict[str, Any]]]]:
    """The records of all ranks, in which all parts of a parameter take the place of a rank's own part."""
    found = [list(rank) for rank in records]
    for kind, join in (("step", _join_steps), ("end", _join_ends)):
        places = [[i for i, (which, _) in enumerate(rank) if which == kind] for rank in found]
        for row in zip(*places):
            if any(rank[i][1].get("parts") for rank, i in zip(found, row)):
                for rank, i, joined in zip(found, row, join([rank[i][1] for rank, i in zip(found, row)])):
                    rank[i] = kind, joined
    return found


def _join_steps(row: Sequence[dict]) -> Iterator[dict]:
    many = [data["step"] for data in row]
    wholes = {field: _join([getattr(step, field) for step in many], row) for field in IN_PARTS}
    at_clip = None if any(data["at_clip"] is None for data in row) else _join([data["at_clip"] for data in row], row)
    for r, data in enumerate(row):
        step = many[r]._replace(stale=any(step.stale for step in many), **{name: x[r] for name, x in wholes.items()})
        yield data | {"step": step, "at_clip": at_clip and at_clip[r]}


def _join_ends(row: Sequence[dict]) -> Iterator[dict]:
    for data, parameters in zip(row, _join([data["parameters"] for data in row], row)):
        yield data | {"parameters": parameters}


def _join(values: Sequence[Values], row: Sequence[dict]) -> list[Values]:
    """These values on each rank, with all parts of those that are in parts."""
    found = []
    for data, own in zip(row, values):
        parts = {name: [values[q].get(name) for q in ranks if q < len(values)] for name, ranks in data["parts"].items()}
        joined = {}
        for name, every in parts.items():
            known = [x for x in every if x is not None]
            if known:  # a part that some rank lacks counts as zero
                joined[name] = torch.stack([torch.zeros_like(known[0]) if x is None else x for x in every])
        found.append({name: x for name, x in own.items() if name not in parts} | joined)
    return found


def scaled_apart(row: Sequence[dict], mean: Values) -> str:
    """By what numbers the ranks multiplied their parts of the averaged gradient, if these are not the same."""
    for data in row:
        step: Step = data["step"]
        names = [name for name in data.get("parts", {}) if name in step.gradients and name in mean]
        ranks = data["parts"][names[0]] if names else ()
        names = [name for name in names if data["parts"][name] == ranks]
        taken, right = ([{name: values[name][i] for name in names} for i in range(len(ranks))]
                        for values in (step.gradients, mean))
        pairs = [(r, flat(ours, ours), flat(theirs, ours)) for r, ours, theirs in zip(ranks, taken, right)]
        times = {r: factor(ours, theirs) for r, ours, theirs in pairs if ours.any() or theirs.any()}
        known = [x for x in times.values() if x]
        if len(known) == len(times) and known and not near(max(known), min(known)):
            return ", ".join(f"{x:.3g} on rank {r}" for r, x in list(times.items())[:4])
    return ""
