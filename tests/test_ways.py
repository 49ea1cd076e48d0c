"""Three ways to share the work of a step: on ranks, against a single device; the formulas against timelines and by hand."""

from __future__ import annotations

from math import ceil

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from d2lpar.cost import PUBLISHED
from d2lpar.pages.step_spans import data_parallel_spans, pipeline_spans, tensor_parallel_spans
from d2lpar.ranks import Traffic
from d2lpar.scratch import distance
from d2lpar.ways import (
    BYTES,
    Copied,
    Piece,
    Stages,
    Summed,
    alone_s,
    column_row_mlp,
    cuts_of,
    data_parallel_s,
    first_slots,
    gpipe_order,
    most_held,
    pipeline_s,
    pipeline_step,
    rows_of_slots,
    stages_of,
    sum_over_ranks,
    tensor_parallel_s,
    transformer_pieces,
)
from helpers.explorers import bars_ms

PIECES = [Piece(9e5, 768, 0, 50_176), Piece(116e6, 74_112, 100_352, 50_176), Piece(90e6, 230_272, 75_264, 25_088),
          Piece(116e6, 1_181_184, 25_088, 12_544), Piece(151e6, 4_721_664, 16_906, 8_192)]
FLOP, PARAMS, SUMMED = (sum(getattr(piece, field) for piece in PIECES) for field in ("flop", "params", "summed"))
RATES = (10e12, 10e9)
RANKS, BATCHES = [1, 2, 3, 5], [8, 60, 1024]


def end_s(spans):
    return max(span.end_s for span in spans)


def seconds(k, batch, flops_per_s=RATES[0], bytes_per_s=RATES[1]):
    """The numbers that the formulas take: of the largest shard, of all work, of parameters, of what is read, of the stages."""
    stages = stages_of(PIECES, k)
    work = [alone_s(n, flop, flops_per_s) for n, flop in ((ceil(batch / k), FLOP), (batch, FLOP), (batch, stages.busiest))]
    send = [BYTES * numbers / bytes_per_s for numbers in (PARAMS, batch * SUMMED, batch * stages.crossing, batch * stages.widest)]
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
        shard_s, work_s, params_s, summed_s, stages_s = seconds(k, batch, RATES[0], link)
        assert data_parallel_s(k, shard_s, params_s) == pytest.approx(end_s(data_parallel_spans(PIECES, k, batch, RATES[0], link)), rel=1e-12)
        assert tensor_parallel_s(k, work_s, summed_s) == pytest.approx(end_s(tensor_parallel_spans(PIECES, k, batch, RATES[0], link)), rel=1e-12)
        for micro in (1, 2, 8):
            assert pipeline_s(work_s, *stages_s, micro) == pytest.approx(
                end_s(pipeline_spans(PIECES, k, batch, RATES[0], link, micro)), rel=1e-12)


def test_more_micro_batches_than_examples_are_refused():
    with pytest.raises(ValueError, match="8 examples cannot be cut into 16 micro-batches"):
        pipeline_spans(PIECES, 2, 8, *RATES, micro=16)


@pytest.mark.parametrize("k", RANKS)
@pytest.mark.parametrize("batch", BATCHES)
def test_no_timeline_hides_more_than_the_formula_says(k, batch):
    shard_s, work_s, params_s, summed_s, _ = seconds(k, batch)
    for formula, simple, hidden in (
            (data_parallel_s(k, shard_s, params_s, overlap=1), data_parallel_spans(PIECES, k, batch, *RATES),
             data_parallel_spans(PIECES, k, batch, *RATES, overlap=True)),
            (tensor_parallel_s(k, work_s, summed_s, overlap=1), tensor_parallel_spans(PIECES, k, batch, *RATES),
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


def test_what_eight_ranks_gain_over_nvlink_and_over_a_network():
    fast, slow = (PUBLISHED[name].link.beta_s_per_byte for name in ("NVLink 4", "100 Gb/s network"))
    for beta, gain in ((fast, 5.74), (slow, 0.61)):
        alone_ms, _, tensor_parallel_ms, _ = bars_ms(8, 32, 400, 1e-9 / beta, 0, 1)
        assert round(alone_ms / tensor_parallel_ms, 2) == gain
    assert round(371e9 * fast, 2) == 1.00, "the explorer's first bandwidth is that of NVLink 4"


def test_what_the_page_says_of_the_explorers_sliders():
    for batch in (16, 256, 1024):
        alone_ms, _, tensor_parallel_ms, _ = bars_ms(2, batch, 400, 20, 0, 1)
        assert tensor_parallel_ms > alone_ms
    alone_ms, *_, pipeline_ms = bars_ms(2, 16, 400, 371, 0, 8)
    assert round(alone_ms / pipeline_ms, 2) == 1.78


class Block(nn.Module):
    """The matrix products of a transformer block, attention with one head."""

    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.down(self.up(self.out((q @ k.mT).softmax(-1) @ v)).relu())


def test_the_pieces_of_a_transformer_are_what_pytorch_counts_in_one():
    pieces, net = transformer_pieces(3, width=8, tokens=5), nn.Sequential(*(Block(8) for _ in range(3)))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        y = net(torch.rand(1, 5, 8))
    assert sum(piece.flop for piece in pieces) == counter.get_total_flops()
    assert sum(piece.params for piece in pieces) == sum(p.numel() for p in net.parameters())
    assert pieces[0].outputs == y.numel() and pieces[0].summed == 4 * y.numel()


def tensors(n, width, hidden):
    torch.manual_seed(0)
    shapes = (n, width), (width, hidden), (hidden,), (hidden, width), (width,)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def with_gradients(mlp, *tensors):
    leaves = [x.clone().requires_grad_() for x in tensors]
    y = mlp(mlp(leaves[0], *leaves[1:]), *leaves[1:])  # twice, so that what goes back between two MLPs matters
    y.T.contiguous().T.square().sum().backward()
    return [y.detach(), *(x.grad for x in leaves)]


def cut_over_ranks(rank, sizes, bug):
    k, (X, W1, b1, W2, b2) = dist.get_world_size(), tensors(*sizes)
    parts = [X, W1.tensor_split(k, 1)[rank], b1.tensor_split(k)[rank], W2.tensor_split(k)[rank], b2]
    before = Copied.backward, Summed.backward
    if bug == "no sum in backward":
        Copied.backward = staticmethod(lambda ctx, grad: grad)
    if bug == "summed twice":
        Summed.backward = staticmethod(lambda ctx, grad: sum_over_ranks(grad))
    if bug == "NaN on rank 1" and rank == 1:
        Copied.backward = staticmethod(lambda ctx, grad: sum_over_ranks(grad) * float("nan"))
    if bug == "no gradient on rank 1" and rank == 1:
        Copied.backward = staticmethod(lambda ctx, grad: (sum_over_ranks(grad), None)[1])
    try:
        with Traffic() as sent:
            found = with_gradients(column_row_mlp, *parts)
    finally:
        Copied.backward, Summed.backward = map(staticmethod, before)
    return found, dict(sent.counts), sent.total_bytes


def how_far(ranks, sizes):
    """The distance from a single device of the output, X, W1, b1, W2 and b2, on all ranks."""
    single = with_gradients(lambda X, W1, b1, W2, b2: torch.relu(X @ W1 + b1) @ W2 + b2, *tensors(*sizes))
    far = []
    for i, should in enumerate(single):
        found = [of_rank[0][i] for of_rank in ranks]
        if i in (2, 3, 4):
            found = [torch.cat(found, 1 if i == 2 else 0)]
        far.append(distance(found, [should] * len(found)))
    return far


@pytest.mark.parametrize("k, sizes", [(2, (9, 6, 7)), (2, (1, 1, 2)), (3, (4, 5, 8)), (3, (4, 5, 2))])
def test_tensor_parallelism_has_the_output_and_all_gradients_of_a_single_device(k, sizes, group_of):
    ranks = group_of(k).run(cut_over_ranks, sizes, "", timeout_s=100)
    assert max(how_far(ranks, sizes)) <= 1e-12
    values = sizes[0] * sizes[1]
    assert all(found[1:] == ({"allreduce": 4}, 4 * 8 * values) for found in ranks), "two for each MLP"


@pytest.mark.parametrize("bug", ["no sum in backward", "summed twice", "NaN on rank 1"])
def test_a_wrong_pair_is_noticed(bug, group_of):
    far = how_far(group_of(2).run(cut_over_ranks, (9, 6, 7), bug, timeout_s=100), (9, 6, 7))
    assert far[0] <= 1e-12 < max(far[1:]), "the output is right, and a gradient is not"


def test_a_missing_gradient_is_noticed(group_of):
    ranks = group_of(2).run(cut_over_ranks, (9, 6, 7), "no gradient on rank 1", timeout_s=100)
    with pytest.raises(AttributeError, match="NoneType"):
        how_far(ranks, (9, 6, 7))


def one_forward_one_backward(rank, k, num_micro):
    ahead = min(k - 1 - rank, num_micro)
    turns = [turn for i in range(num_micro - ahead) for turn in (("F", ahead + i), ("B", i))]
    return [("F", i) for i in range(ahead)] + turns + [("B", i) for i in range(num_micro - ahead, num_micro)]


def stack_and_examples(k, n):
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(k))
    return nn.Sequential(*layers).double(), torch.randn(n, 6).double().requires_grad_()


def pipelined(rank, n, num_micro, own_order):
    k = dist.get_world_size()
    (net, X), outputs = stack_and_examples(k, n), {}
    order = one_forward_one_backward(rank, k, num_micro) if own_order else gpipe_order(num_micro)

    def loss_of(y, i):
        outputs[i] = y.detach()
        return y.square().sum() / n

    pipeline_step(net[rank], order, X.tensor_split(num_micro), loss_of)
    return [outputs[i] for i in sorted(outputs)], X.grad, [p.grad for p in net[rank].parameters()]


@pytest.mark.parametrize("own_order", [False, True])
@pytest.mark.parametrize("k, n, num_micro", [(2, 10, 4), (3, 7, 5), (3, 2, 1)])
def test_a_pipeline_has_the_output_and_all_gradients_of_a_single_device(k, n, num_micro, own_order, group_of):
    ranks = group_of(k).run(pipelined, n, num_micro, own_order, timeout_s=100)
    net, X = stack_and_examples(k, n)
    (Y := net(X)).square().sum().div(n).backward()
    assert [outputs for outputs, *_ in ranks[:-1]] == [[]] * (k - 1)
    assert distance([torch.cat(ranks[-1][0]), ranks[0][1], *(grad for rank in ranks for grad in rank[2])],
                    [Y, X.grad, *(p.grad for p in net.parameters())]) <= 1e-12


@pytest.mark.parametrize("k", [1, 2, 4, 7])
@pytest.mark.parametrize("num_micro", [1, 3, 4, 16])
def test_both_orders_wait_as_long_and_one_holds_less(k, num_micro):
    both = [gpipe_order(num_micro)] * k, [one_forward_one_backward(rank, k, num_micro) for rank in range(k)]
    for orders in both:
        ends = [starts[-1] + 2 for starts in first_slots(orders)]
        assert max(ends) == ends[0] == 3 * (num_micro + k - 1)
    assert [most_held(order) for order in both[0]] == [num_micro] * k
    assert [most_held(order) for order in both[1]] == [min(k - rank, num_micro) for rank in range(k)]


def test_two_ranks_and_two_micro_batches_in_slots_by_hand():
    assert rows_of_slots([gpipe_order(2)] * 2) == ["F0 F1 .  .  .  B1 B1 B0 B0", ".  F0 F1 B1 B1 B0 B0"]
    with pytest.raises(ValueError, match="rank 0 at B0, rank 1 at F0 would wait forever"):
        first_slots([[("B", 0), ("F", 0)], gpipe_order(1)])
