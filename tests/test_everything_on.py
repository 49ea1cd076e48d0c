"""The page "DDP with everything switched on": each of its assertions fails when the thing that it guards is broken."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import d2lpar
from d2lpar.launch import RankError, RankGroup
from d2lpar.scratch import distance

pytestmark = [pytest.mark.slow, pytest.mark.weekly, pytest.mark.timeout(300)]
PAGE = Path(__file__).parents[1] / "notebooks" / "appendix" / "ddp_as_people_use_it.ipynb"
CELLS = {cell["id"]: "".join(cell["source"]) for cell in json.loads(PAGE.read_text("utf8"))["cells"] if cell["cell_type"] == "code"}
# by what is defined or compared in it
NETWORK, LOADER, TRAIN, COMPARE, BF16, COMPILED, CLIPPED, EVALUATE, ALL = list(CELLS)[1:]


def forget_graphs(rank: int) -> None:
    torch._dynamo.reset()  # after eight graphs of DDP's forward pass it would compile no more


@pytest.fixture
def page(whole_page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The page's names after all its cells; a test may replace them."""
    before = dict(whole_page)
    for group in ("one", "two"):
        whole_page[group].run(forget_graphs)
    yield whole_page
    whole_page.clear()
    whole_page.update(before)


@pytest.fixture(scope="module")
def whole_page() -> Iterator[dict[str, Any]]:
    """The same for all tests, with the name of a notebook: the ranks get its functions by value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch, RankGroup(1, "gloo") as one, RankGroup(2, "gloo") as two:
        patch.setattr(d2lpar, "RankGroup", lambda world_size, backend: {1: one, 2: two}[world_size])
        for source in CELLS.values():
            exec(source, names)
        yield names


def broken(cell: str, old: str, new: str) -> str:
    assert CELLS[cell].count(old) == 1, old
    return CELLS[cell].replace(old, new)


NO_STEP = TRAIN, "optimizer.step()", "pass"
NO_EXCHANGE = TRAIN, "nullcontext() if is_last else model.no_sync()", "model.no_sync()"
DOUBLED = TRAIN, "/ micro\n", "/ micro * dist.get_world_size()\n"
HALVED = TRAIN, "/ micro\n", "/ micro / dist.get_world_size()\n"
NO_DIVISION = TRAIN, "/ micro\n", "/ 1\n"
NO_CLIPPING = TRAIN, "nn.utils.clip_grad_norm_(model.parameters(), clip)", "pass"
CLIPPED_TOO_SOON = (TRAIN, "loss.backward()\n", "loss.backward()\n" + textwrap.indent(
    "if clip and is_last and dist.get_world_size() == 2:\n    for p in model.parameters(): p.grad *= 0.5\n", " " * 12))
FIRST_DROPPED = TRAIN, "            loss.backward()", "            if is_last: optimizer.zero_grad()\n            loss.backward()"
OTHER_BITS = COMPARE, "[p.detach() for p in train", "[p.detach() * (1 + 1e-6 * rank) for p in train"
NO_BF16 = TRAIN, "enabled=amp", "enabled=False"
NO_GRAPH = TRAIN, "if compiled:", "if False:"
COMPILER_ROUNDS = LOADER, "return graph.forward", "return lambda *args: [x * (1 + 1e-6) for x in graph.forward(*args)]"
WORKERS_ROUND = LOADER, "TensorDataset(X, y)", "TensorDataset(X * (1 + 1e-6 * num_workers), y)"
TWICE = EVALUATE, "slice(rank, None, dist.get_world_size())", "slice(None)"
SMALL = EVALUATE, "slice(rank, None, dist.get_world_size())", "slice(rank, -1, dist.get_world_size())"
BREAKS = [(COMPARE, bug) for bug in (NO_STEP, NO_EXCHANGE, DOUBLED, HALVED, OTHER_BITS)]
BREAKS += [(BF16, bug) for bug in (NO_STEP, NO_EXCHANGE, DOUBLED, HALVED, OTHER_BITS, NO_BF16)]
BREAKS += [(COMPILED, bug) for bug in (NO_STEP, NO_EXCHANGE, DOUBLED, OTHER_BITS, NO_GRAPH, COMPILER_ROUNDS, WORKERS_ROUND)]
BREAKS += [(CLIPPED, bug) for bug in (NO_STEP, NO_EXCHANGE, DOUBLED, HALVED, OTHER_BITS, NO_CLIPPING, FIRST_DROPPED, NO_DIVISION,
                                      CLIPPED_TOO_SOON)]
BREAKS += [(EVALUATE, bug) for bug in (TWICE, SMALL)]
BREAKS += [(ALL, bug) for bug in (NO_STEP, NO_EXCHANGE, DOUBLED, HALVED, OTHER_BITS, NO_GRAPH)]


@pytest.mark.parametrize("cell, bug", BREAKS, ids=[f"{cell}-{bug[1][:20]}-{bug[2][:20]}" for cell, bug in BREAKS])
def test_an_assertion_fails_if_the_code_is_broken(page: dict[str, Any], cell: str, bug: tuple[str, str, str]) -> None:
    source = broken(*bug)
    if bug[0] != cell:
        exec(source.replace('plain = compare("plain, float32")', ""), page)
        source = CELLS[cell]
    with pytest.raises(RankError if bug == NO_GRAPH else AssertionError) as failed:
        exec(source, page)
    assert bug != NO_GRAPH or "AssertionError: nothing was compiled" in str(failed.value)


def test_the_distance_with_everything_on_is_due_to_bfloat16(page: dict[str, Any]) -> None:
    everything = {"compiled": True, "num_workers": 2, "clip": 1.1, "micro": 2}
    page["compare"]("without bfloat16", **everything)  # within 1e-5
    single, two = page["compare"]("all of it", within=0.03, amp=True, **everything)
    assert distance(two, single) > 1e-4


def norms(rank: int, train: Any, X: torch.Tensor, y: torch.Tensor, **settings: Any) -> list[float]:
    seen: list[float] = []
    clip = nn.utils.clip_grad_norm_
    try:
        nn.utils.clip_grad_norm_ = lambda *args: seen.append(clip(*args).item())
        train(X, y, **settings)
    finally:
        nn.utils.clip_grad_norm_ = clip
    return seen


def test_some_gradients_exceed_the_bound_and_others_do_not(page: dict[str, Any]) -> None:
    for micro in (1, 2):
        for found in page["two"].run(partial(norms, clip=1.1, micro=micro), page["train"], page["X"], page["y"]):
            assert len(found) == 6 // micro and min(found) < 1.09 and max(found) > 1.11, found


def test_a_bound_that_every_gradient_exceeds_hides_a_wrong_factor(page: dict[str, Any]) -> None:
    for bug in (DOUBLED, HALVED):
        exec(broken(*bug), page)
        page["compare"]("wrong, clipped at 0.1", clip=0.1)
        with pytest.raises(AssertionError):
            page["compare"]("wrong, clipped at 1.1", clip=1.1)


def first_examples(rank: int, loader: Any, n: int) -> tuple[torch.Tensor, int]:
    batches = [A.flatten() for A, _ in loader(torch.arange(n)[:, None], torch.zeros(n), 16, 0)]
    return batches[0], len(batches)


def test_two_ranks_first_8_examples_are_the_first_16_and_there_are_six_steps(page: dict[str, Any]) -> None:
    [(whole, steps)], halves = (page[group].run(first_examples, page["loader"], 96) for group in ("one", "two"))
    assert steps == halves[0][1] == 6 and [len(half) for half, _ in halves] == [8, 8]
    assert sorted(torch.cat([half for half, _ in halves]).tolist()) == sorted(whole.tolist())


def halves_on_a_single_device(rank: int, network: Any, loader: Any, X: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for A, c in loader(X, y, 16, 0):
        for r in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(net(A[r::2]), c[r::2]) / 2
            loss.backward()
        assert {p.grad.dtype for p in net.parameters()} == {torch.float32}
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in net.parameters()]


def test_in_bfloat16_two_ranks_equal_a_single_device_that_computes_the_halves_apart(page: dict[str, Any]) -> None:
    single, two = page["half"]
    [apart] = page["one"].run(halves_on_a_single_device, page["Network"], page["loader"], page["X"], page["y"])
    assert distance(two, apart) < 1e-5 < 1e-4 < distance(two, single)


def test_a_value_is_rounded_to_bfloat16_by_up_to_two_to_the_minus_eight() -> None:
    x = torch.linspace(1, 2, 100_001, dtype=torch.float64)
    assert 0.99 * 2**-8 < ((x.bfloat16().double() - x) / x).abs().max() <= 2**-8


class TwoLarge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(600, 600), nn.Linear(600, 600)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).relu())


def count_graphs(rank: int, network: Any, shape: tuple[int, ...], ddp_outside: bool, optimize_ddp: bool = True) -> int:
    from torch._dynamo import config, reset  # with torch._dynamo.config in full, the function could not be pickled

    graphs: list[Any] = []

    def record(graph: Any, example_inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    net, ddp = network(), nn.parallel.DistributedDataParallel
    model = ddp(torch.compile(net, backend=record)) if ddp_outside else torch.compile(ddp(net, bucket_cap_mb=1), backend=record)
    with config.patch(optimize_ddp=optimize_ddp):  # what splits at the buckets
        model(torch.zeros(shape)).sum().backward()
    reset()
    return len(graphs)


def test_only_a_network_with_several_buckets_is_split_and_a_bare_sequential_is_compiled_in_the_other_order_only(page: dict[str, Any]) -> None:
    def bare() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    count = page["two"].run
    assert count(count_graphs, page["Network"], (2, 1, 28, 28), False) == [1, 1]
    assert count(count_graphs, TwoLarge, (2, 600), False) == [2, 2]
    assert count(partial(count_graphs, optimize_ddp=False), TwoLarge, (2, 600), False) == [1, 1]
    assert count(count_graphs, bare, (2, 4), False) == [0, 0]
    assert count(count_graphs, bare, (2, 4), True) == [1, 1]


def test_the_script_to_take_home_does_what_the_page_says_of_gpus(root: Path) -> None:
    text = (root / "d2lpar" / "train_ddp.py").read_text("utf8")
    for call in ('torch.cuda.set_device(int(os.getenv("LOCAL_RANK"', "cuda:nccl", "make_net().to(device)", "X.to(device)"):
        assert call in text
    assert text.index("make_net().to(device)") < text.index("DDP(net") and text.index("make_net().to(device)") < text.index("optim.AdamW")
