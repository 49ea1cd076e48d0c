"""Tests of d2lpar.diagnosis.parts: parameters in parts on the ranks are judged as whole ones are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from d2lpar.diagnosis.compare import Diagnosis
from d2lpar.diagnosis.evidence import SKETCHES, rounding
from d2lpar.diagnosis.judging import Ran, judge
from d2lpar.diagnosis.parts import can_be_put_together, cut_like, put_together, ranks_of_parts, scaled_apart
from d2lpar.diagnosis.recording import Step
from d2lpar.diagnosis.watching import sketch


def parameter(rank: int, mesh: list, *placements: Any) -> Any:
    """As much of a DTensor as is needed, on this rank of a mesh."""
    ranks = torch.tensor(mesh)
    here = (ranks == rank).nonzero()[0].tolist()
    return SimpleNamespace(placements=placements, device_mesh=SimpleNamespace(mesh=ranks, get_coordinate=lambda: here))


@pytest.mark.parametrize("rank, mesh, placements, ranks", [
    (1, [0, 1, 2], [Shard(0)], (0, 1, 2)),
    (1, [1], [Shard(0)], (1,)),
    (2, [[0, 1], [2, 3]], [Replicate(), Shard(1)], (2, 3)),
    (1, [[0], [1]], [Replicate(), Shard(0)], (1,)),
    (1, [0, 1], [Replicate()], (1,)),
])
def test_the_ranks_that_hold_the_parts_of_one_replica(rank: int, mesh: list, placements: list, ranks: tuple[int, ...]):
    p = parameter(rank, mesh, *placements)
    assert can_be_put_together(p) and ranks_of_parts(p) == ranks


@pytest.mark.parametrize("placements", [[Shard(0), Shard(1)], [_StridedShard(0, split_factor=2), Shard(0)], [_StridedShard(0, split_factor=2)]])
def test_what_is_cut_twice_is_not_put_together(placements: list):
    assert not can_be_put_together(parameter(0, [[0, 1], [2, 3]][:len(placements)], *placements))


@pytest.mark.parametrize("rows, k", [(6, 2), (5, 2), (5, 3), (2, 3), (1, 4)])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_gradient_is_cut_into_the_parts_that_the_ranks_hold(rows: int, k: int, dim: int):
    whole = torch.randn(rows, rows)
    parts = cut_like(whole, parameter(0, list(range(k)), Shard(dim)), sketch)
    each = [whole.chunk(k, dim)[i] if i < len(whole.chunk(k, dim)) else whole[:0] for i in range(k)]
    assert torch.equal(parts, torch.stack([sketch(part) for part in each]))


# a step of k ranks, of which each holds a row of the network's only parameter


def steps_of(own: torch.Tensor, taken: torch.Tensor, ranks: list[tuple[int, ...]] | None = None, replicas: bool = False, **changes: Any) -> list[dict[str, Any]]:
    """The records of a step: `own[r]` is what rank r's pass gave, in rows, and `taken[r]` what it took of its row."""
    k = len(own)
    found = []
    for r, parts in enumerate(ranks or [tuple(range(k))] * k):
        start = torch.linspace(1, 2, own.shape[2], dtype=torch.float64) * (1 if replicas else r + 1)
        known = {"before": {"w": start}, "gradients": {"w": taken[r]}, "unclipped": {"w": taken[r]}, "passes": [{"w": own[r]}],
                 "after": {"w": start - taken[r]}, "examples": [b"%d" % r]} | changes.get(f"of_{r}", {})
        step = Step(thrown_away=0, stale=False, trainable=frozenset("w"), replaced=frozenset(), rates=[0.1], others=[],
                    held=frozenset("w"), scale=1.0, forwards=1, micro_batches=[1], exchanging=0, wrapped=frozenset(),
                    bypassed=frozenset(), lost=frozenset(), buffers={}, lines={}, eps=1e-7, size=8, reduced=0, **known)
        found.append({"step": step, "terms": [], "optimizer": 0, "at_clip": None, "method": "SGD", "is_sharded": False,
                      "never_trained": frozenset(), "has_gradient": True, "hooked": False, "wrapped": False,
                      "no_sync": False, "group_size": 0, "parts": {"w": parts}})
    return found


def faults_of(*steps: list[dict[str, Any]]) -> list[str]:
    found = Diagnosis("a run", watched=True)
    judge(Ran(len(steps[0]), [[("group", {}), *(("step", row[r]) for row in steps)] for r in range(len(steps[0]))]), found)
    return list(found.faults)


def gradients(k: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(k, k, 64, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("k", [2, 3])
def test_an_average_in_parts_is_right_and_anything_else_is_not(k: int):
    own = gradients(k)
    mean = own.mean(0)
    assert faults_of(steps_of(own, mean)) == []
    by_rank = torch.arange(1, k + 1)[:, None]
    assert faults_of(steps_of(own, mean * by_rank)) == ["parts scaled differently"]
    assert faults_of(steps_of(own, torch.stack([own[0, r] for r in range(k)]))) == ["one rank's gradient"]
    alone = [(r,) for r in range(k)]
    assert faults_of(steps_of(own[:, :1], own[:, 0], alone, replicas=True)) == ["not synchronised"]
    assert "NaN" in faults_of(steps_of(own, mean * torch.tensor([1.0] * (k - 1) + [torch.nan])[:, None]))


def test_replicas_of_a_mesh_of_two_dimensions_are_compared():
    own, ranks = gradients(2)[:, :1], [(0,), (1,)]
    mean = own.mean(0).expand(2, -1)
    assert faults_of(steps_of(own, mean, ranks, replicas=True)) == []
    assert "different start" in faults_of(steps_of(own, mean, ranks))


def test_a_part_that_is_missing_on_a_rank_counts_as_zero_and_one_that_all_lack_as_none():
    own = gradients(2)
    rows = steps_of(own, own.mean(0), of_1={"gradients": {}})
    one, other = (dict(rank)["step"]["step"] for rank in put_together([[("step", row)] for row in rows]))
    assert one.gradients["w"].tolist() == [own.mean(0)[0].tolist(), [0.0] * 64] and torch.equal(one.gradients["w"], other.gradients["w"])
    nowhere = steps_of(own, own.mean(0), of_0={"gradients": {}}, of_1={"gradients": {}})
    assert dict(put_together([[("step", row)] for row in nowhere])[0])["step"]["step"].gradients == {}


def test_whole_parameters_stay_as_they_are():
    rows = steps_of(gradients(2), torch.zeros(2, 64, dtype=torch.float64))
    plain = [row | {"parts": {}} for row in rows]
    assert put_together([[("step", row)] for row in plain]) == [[("step", row)] for row in plain]


def test_one_factor_on_all_parts_is_no_matter_of_parts():
    own = gradients(2)
    with rounding(SKETCHES):
        rows = [dict(rank)["step"] for rank in put_together([[("step", row)] for row in steps_of(own, 0.5 * own.mean(0))])]
        assert scaled_apart(rows, {"w": own.mean(0)}) == ""
        rows = [dict(rank)["step"] for rank in put_together([[("step", row)] for row in steps_of(own, own.mean(0) * torch.tensor([[0.5], [0.25]]))])]
        assert scaled_apart(rows, {"w": own.mean(0)}) == "0.5 on rank 0, 0.25 on rank 1"
