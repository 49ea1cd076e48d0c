"""Three ways to share the work of a step: the formulas against timelines made piece by piece, and against numbers by hand."""

from __future__ import annotations

from math import ceil

import pytest
import torch
from torch import nn

from d2lpar.models import resnet18
from d2lpar.pages.step_spans import data_parallel_spans, pipeline_spans, tensor_parallel_spans
from d2lpar.ways import (
    Piece,
    Stages,
    alone_s,
    cuts_of,
    data_parallel_s,
    pieces_of,
    pipeline_s,
    stages_of,
    tensor_parallel_s,
)
from helpers.explorers import bars_ms, pieces_of_resnet18

PIECES = [Piece(9e5, 768, 0, 50_176), Piece(116e6, 74_112, 100_352, 50_176), Piece(90e6, 230_272, 75_264, 25_088),
          Piece(116e6, 1_181_184, 25_088, 12_544), Piece(151e6, 4_721_664, 16_906, 8_192)]
FLOP, PARAMS, READS = (sum(getattr(piece, field) for piece in PIECES) for field in ("flop", "params", "reads"))
RATES = (10e12, 10e9)
RANKS, BATCHES = [1, 2, 3, 5], [8, 60, 1024]


def end_s(spans):
    return max(span.end_s for span in spans)


def seconds(k, batch, flops_per_s=RATES[0], bytes_per_s=RATES[1]):
    """The numbers that the formulas take: of the largest shard, of all work, of parameters, of what is read, of the stages."""
    stages = stages_of(PIECES, k)
    work = [alone_s(n, flop, flops_per_s) for n, flop in ((ceil(batch / k), FLOP), (batch, FLOP), (batch, stages.busiest))]
    send = [4 * numbers / bytes_per_s for numbers in (PARAMS, batch * READS, batch * stages.crossing, batch * stages.widest)]
    return work[0], work[1], send[0], send[1], (work[2], send[2], send[3])


def test_two_ranks_and_round_numbers_by_hand():
    assert alone_s(10, 100, 1000) == 3  # 1 s forward, 2 s backward
    assert data_parallel_s(2, 1.5, 2) == 1.5 + 2  # 2 s for all numbers: half of them there, and half of the sums back
    assert data_parallel_s(2, 1.5, 2, overlap=1) == 1.5 + 1  # 1 s of backward hides 1 s
    assert data_parallel_s(4, 1.5, 2) == 1.5 + 3
    assert tensor_parallel_s(2, 3, 2) == 1.5 + 2
    assert tensor_parallel_s(2, 3, 2, overlap=1) == 2
    assert tensor_parallel_s(4, 3, 2) == 0.75 + 3
    assert pipeline_s(3, 1.5, 2, 2) == 3 + 4  # 2 s there, and 2 s back
    assert pipeline_s(3, 1.5, 0, 0, micro=2) == 3 * 0.75
    # 4 s of sending: half of 7 s for the first half, and the second one leaves the cut 1 s later there, and 1 s back
    assert pipeline_s(3, 1.5, 2, 2, micro=2) == 3.5 + 1 + 1
    # a cut that is wider than the stage's forward pass, and narrower than its backward pass
    assert pipeline_s(3, 1.5, 0.75, 0.75, micro=3) == pytest.approx((3 + 1.5) / 3 + 2 * (0.25 + 1 / 3))


def test_half_of_the_hiding_is_half_way_between_none_and_all():
    for way, numbers in ((data_parallel_s, (2, 1.5, 2)), (data_parallel_s, (2, 1.5, 0.4)), (tensor_parallel_s, (2, 3, 2)), (tensor_parallel_s, (2, 3, 0.8))):
        none, half, full = (way(*numbers, overlap=part) for part in (0, 0.5, 1))
        assert half == pytest.approx((none + full) / 2, rel=1e-12) and full < none * 0.99


@pytest.mark.parametrize("k", RANKS)
@pytest.mark.parametrize("batch", BATCHES)
def test_the_formulas_take_as_long_as_the_timelines(k, batch):
    for link in (1e9, 1e10, 1e11):
        shard_s, work_s, params_s, reads_s, stages_s = seconds(k, batch, RATES[0], link)
        assert data_parallel_s(k, shard_s, params_s) == pytest.approx(end_s(data_parallel_spans(PIECES, k, batch, RATES[0], link)), rel=1e-12)
        assert tensor_parallel_s(k, work_s, reads_s) == pytest.approx(end_s(tensor_parallel_spans(PIECES, k, batch, RATES[0], link)), rel=1e-12)
        for micro in (1, 2, 8):
            assert pipeline_s(work_s, *stages_s, micro) == pytest.approx(
                end_s(pipeline_spans(PIECES, k, batch, RATES[0], link, micro)), rel=1e-12)


def test_more_micro_batches_than_examples_are_refused():
    with pytest.raises(ValueError, match="8 examples cannot be cut into 16 micro-batches"):
        pipeline_spans(PIECES, 2, 8, *RATES, micro=16)


@pytest.mark.parametrize("k", RANKS)
@pytest.mark.parametrize("batch", BATCHES)
def test_no_timeline_hides_more_than_the_formula_says(k, batch):
    shard_s, work_s, params_s, reads_s, _ = seconds(k, batch)
    for formula, simple, hidden in (
            (data_parallel_s(k, shard_s, params_s, overlap=1), data_parallel_spans(PIECES, k, batch, *RATES),
             data_parallel_spans(PIECES, k, batch, *RATES, overlap=True)),
            (tensor_parallel_s(k, work_s, reads_s, overlap=1), tensor_parallel_spans(PIECES, k, batch, *RATES),
             tensor_parallel_spans(PIECES, k, batch, *RATES, overlap=True))):
        assert formula <= end_s(hidden) * (1 + 1e-12) and end_s(hidden) <= end_s(simple) * (1 + 1e-12)
        assert k == 1 or end_s(hidden) < 0.99 * end_s(simple)  # something hides


def test_each_rank_computes_its_share_and_two_spans_never_meet_on_it():
    for spans in (data_parallel_spans(PIECES, 3, 60, *RATES, overlap=True), tensor_parallel_spans(PIECES, 3, 60, *RATES, overlap=True),
                  pipeline_spans(PIECES, 3, 60, *RATES, micro=4)):
        work_s = 0.0
        for rank in range(3):
            busy = sorted((s.start_s, s.end_s) for s in spans if s.rank == rank and s.what != "send")
            assert all(end <= start + 1e-15 for (_, end), (start, _) in zip(busy, busy[1:]))
            work_s += sum(end - start for start, end in busy)
        assert work_s == pytest.approx(alone_s(60, FLOP, RATES[0]), rel=1e-12)


def test_the_cut_leaves_the_busiest_stage_least_and_is_between_pieces():
    assert cuts_of(PIECES, 2) == (3,)
    assert stages_of(PIECES, 2) == Stages(116e6 + 151e6, 25_088, 25_088)
    assert stages_of(PIECES, 5) == Stages(151e6, 50_176 + 50_176 + 25_088 + 12_544, 50_176)
    with pytest.raises(ValueError, match="5 pieces cannot be cut into 6 stages"):
        stages_of(PIECES, 6)


def test_what_a_pipeline_of_eight_ranks_loses_and_what_a_fast_link_gives_tensor_parallelism():
    pieces = pieces_of_resnet18()
    flop, stages = sum(piece.flop for piece in pieces), stages_of(pieces, 8)
    work_s, even_s, busiest_s = (alone_s(256, each, RATES[0]) for each in (flop, flop / 8, stages.busiest))
    sends = [4 * 256 * numbers / RATES[1] for numbers in (stages.crossing, stages.widest)]
    times = [pipeline_s(work_s, even_s, 0, 0, 16), pipeline_s(work_s, busiest_s, 0, 0, 16), pipeline_s(work_s, busiest_s, *sends, 16)]
    assert times[0] == pytest.approx(work_s / 8 * 23 / 16, rel=1e-12)
    assert [round(work_s / each, 1) for each in times] == [5.6, 4.6, 3.7]
    for batch in (32, 256):
        alone_ms, _, tensor_parallel_ms, _ = bars_ms(2, batch, 10, 100, 0, 1)
        assert round(alone_ms / tensor_parallel_ms, 2) == 1.78


def test_what_is_read_twice_is_counted_once_the_examples_not_and_the_scores_at_last():
    net = resnet18(10)
    pieces = pieces_of([net[:3], *(block for stage in net[3:7] for block in stage), net[7:]], torch.rand(2, 1, 28, 28))
    assert sum(piece.params for piece in pieces) == sum(p.numel() for p in net.parameters())
    assert pieces[0].reads == 0  # the images are on every rank
    assert pieces[3].reads == 64 * 28 * 28 + 128 * 14 * 14  # the first convolution and the shortcut read the same
    assert pieces[-1].reads == 512 + 10 and pieces[5].outputs == 256 * 7 * 7
    assert not any(module._forward_pre_hooks for module in net.modules())
    [piece] = pieces_of([nn.Linear(6, 8)], torch.rand(5, 6))
    assert piece == Piece(2 * 6 * 8, 6 * 8 + 8, 8, 8), "for one example"
