"""A GPT on texts: packed rows, the mean over all tokens on any ranks, operations per token; and the chapter's own assertions and orders."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import d2lpar
from d2lpar.diagnosis.compare import diagnose
from d2lpar.diagnosis.scripts import watch
from d2lpar.launch import RankError, RankGroup
from d2lpar.pages.building import what_is_wrong
from d2lpar.pages.means import mean_of_means
from d2lpar.pages.results import stored_results, stored_script
from d2lpar.pages.train_gpt import CHANGED, diff_of_script, gpt_script, original_script
from d2lpar.scratch import distance, same_bits
from d2lpar.texts import (
    GPT,
    decay_groups,
    flop_per_token,
    inputs_and_targets,
    pack,
    paragraphs,
    sample,
    token_backward,
    train_texts,
    warm_cosine,
)

PAGE = Path(__file__).parents[1] / "notebooks" / "23_small_gpt.ipynb"
CELLS = {cell["id"]: "".join(cell["source"]) for cell in json.loads(PAGE.read_text("utf8"))["cells"] if cell["cell_type"] == "code"}
SMALL = partial(GPT, width=16, depth=2, heads=2, length=32)


@pytest.fixture(scope="module")
def groups() -> Iterator[dict[int, RankGroup]]:
    with RankGroup(1, "gloo") as one, RankGroup(2, "gloo") as two, RankGroup(3, "gloo") as three:
        yield {1: one, 2: two, 3: three}


def total(net: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    x, y = inputs_and_targets(rows)
    return F.cross_entropy(net(x).mT, y, reduction="sum")


def test_texts_are_whole_lines_of_docstrings_each_once_and_none_is_too_long() -> None:
    texts = paragraphs(63)
    assert len(texts) == len(set(texts)) > 10_000 and max(map(len, texts)) <= 63 and all(text.strip() for text in texts)
    assert not any(b"\0" in text for text in texts) and paragraphs(63) == texts
    assert any(text.startswith(b"Returns") for text in texts) and all(text.decode("utf8", "replace") for text in texts)


def test_every_text_is_in_one_row_after_a_zero_with_its_end_to_be_predicted() -> None:
    texts = paragraphs(31)[:500]
    rows = pack(texts, 32)
    found = Counter(piece for row in rows.tolist() for piece in bytes(row).split(b"\0") if piece)
    assert found == Counter(texts) and rows.shape[1] == 33 and not rows[:, 0].any() and not rows[:, -1].any()
    _, y = inputs_and_targets(rows)
    assert (y != -100).sum() == sum(len(text) + 1 for text in texts)


def test_the_tables_of_the_page_are_what_its_lines_compute() -> None:
    rows = pack([b"ab", b"c", b"def"], 6)
    x, y = inputs_and_targets(rows)
    assert [bytes(row) for row in rows.tolist()] == [b"\0ab\0c\0\0", b"\0def\0\0\0"]
    assert y[0].tolist() == [*b"ab\0c\0", -100] and (y[0] != -100).sum() == 5
    names: dict[str, Any] = {"torch": torch, "x": x[:1]}
    lines = CELLS["gpt-net"].splitlines()
    exec("\n".join(line.strip() for line in lines if line.strip().startswith(("index =", "begin ="))), names)
    assert names["begin"].tolist() == [[0, 0, 0, 3, 3, 5]] and (names["index"] - names["begin"]).tolist() == [[0, 1, 2, 0, 1, 0]]


def test_a_text_that_is_as_long_as_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter than a row, 4"):
        pack([b"abcd"], 4)


def test_a_text_in_a_packed_row_has_the_losses_of_the_text_alone() -> None:
    torch.manual_seed(0)
    net, texts = SMALL().double(), [b"abc", b"defgh", b"i", b"jklmnopqrs", b"tu", b"vwxyz" * 5]
    together, alone = total(net, pack(texts, 32)), sum(total(net, pack([text], 32)) for text in texts)
    assert abs(together / alone - 1) < 1e-12
    changed = pack([b"Abc", *texts[1:]], 32)
    first, other = (net(inputs_and_targets(rows)[0])[0] for rows in (pack(texts, 32), changed))
    assert not torch.equal(first[1:4], other[1:4]) and torch.equal(first[4:], other[4:])  # the other texts of its row


def test_no_token_sees_a_later_one() -> None:
    torch.manual_seed(0)
    net, x = SMALL(), pack([b"abcdefgh"], 32)[:, :-1]
    later = x.clone()
    later[0, 5:9] += 1
    assert torch.equal(net(x)[0, :5], net(later)[0, :5]) and not torch.equal(net(x)[0, 5:], net(later)[0, 5:])


def test_a_sample_begins_as_told_and_is_the_same_each_time() -> None:
    torch.manual_seed(0)
    net = SMALL()
    assert sample(net, b"abc", most=20) == sample(net, b"abc", most=20) != sample(net, b"abc", most=20, seed=1)
    assert sample(net, b"abc", most=20).startswith("abc")


def gradient(rank: int, backward: Any, rows: torch.Tensor, micro: int, bf16: bool = False) -> tuple[float, torch.Tensor, int]:
    torch.manual_seed(0)
    net = SMALL() if bf16 else SMALL().double()
    mine = rows.tensor_split(dist.get_world_size())[rank]
    with d2lpar.Traffic() as sent:
        mean = backward(DDP(net), [inputs_and_targets(part) for part in mine.split(micro)], bf16)
    assert {p.grad.dtype for p in net.parameters()} == {torch.float32 if bf16 else torch.float64}
    return mean, torch.cat([p.grad.flatten() for p in net.parameters()]), sent.counts["allreduce"]


ROWS = torch.cat([pack([text], 32) for text in (b"a", b"bcdefg" * 5, b"hi", b"jkl" * 8, b"m", b"n", b"opqr" * 7)])


@pytest.mark.parametrize("micro", [1, 2, 7])
def test_any_ranks_and_micro_batches_have_the_mean_over_all_tokens(groups: dict[int, RankGroup], micro: int) -> None:
    torch.manual_seed(0)
    net, tokens = SMALL().double(), (inputs_and_targets(ROWS)[1] != -100).sum()
    mean = total(net, ROWS) / tokens
    mean.backward()
    right = torch.cat([p.grad.flatten() for p in net.parameters()])
    for group in groups.values():
        for found, grad, sums in group.run(gradient, token_backward, ROWS, micro):
            assert abs(found / mean.item() - 1) < 1e-6 and distance([grad], [right]) < 1e-12 and sums == 3  # count, gradients, loss
        wrong = group.run(gradient, mean_of_means, ROWS, micro)[0][1]
        assert (distance([wrong], [right]) > 0.01) == (micro < 7 or len(group.run(abs)) > 1)


def divided_at_the_end(model: nn.Module, batches: Any, bf16: bool = False) -> float:
    """As Megatron-LM does."""
    from contextlib import nullcontext

    count, total = torch.zeros((), dtype=torch.int64), torch.zeros(1)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(model(x).mT, y, reduction="sum")
            loss.backward()
        count += (y != -100).sum()
        total += loss.item()
    dist.all_reduce(count)
    dist.all_reduce(total)
    for p in model.parameters():
        p.grad *= dist.get_world_size() / count
    return (total / count).item()


def a_loss_in_float32(model: nn.Module, batches: Any, bf16: bool = False) -> float:
    from contextlib import nullcontext

    count, mean = sum((y != -100).sum() for _, y in batches), 0.0
    dist.all_reduce(count)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
                share = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") * dist.get_world_size() / count
            share.backward()
        mean += share.item() / dist.get_world_size()
    whole = torch.tensor(mean)
    dist.all_reduce(whole)
    return whole.item()


@pytest.mark.parametrize("fn", [divided_at_the_end, a_loss_in_float32])
def test_other_right_ways_to_write_token_backward_pass_its_check(fn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fn, "__name__", "token_backward")
    assert what_is_wrong(fn) == ""


def test_with_equal_numbers_of_tokens_the_mean_of_means_is_right(groups: dict[int, RankGroup]) -> None:
    rows = torch.cat([pack([bytes([i] * 5)], 32) for i in range(1, 7)])
    found = groups[2].run(gradient, token_backward, rows, 1)[0][1], groups[2].run(gradient, mean_of_means, rows, 1)[0][1]
    assert distance([found[0]], [found[1]]) < 1e-12


def test_in_bfloat16_the_gradient_is_near_that_of_float32_and_not_equal(groups: dict[int, RankGroup]) -> None:
    half, whole = (groups[2].run(gradient, token_backward, ROWS, 2, bf16)[0][1] for bf16 in (True, False))
    assert 1e-4 < distance([half.double()], [whole]) < 0.05


def test_a_value_is_rounded_to_bfloat16_by_up_to_two_to_the_minus_eight() -> None:
    x = torch.linspace(1, 2, 100_001, dtype=torch.float64)
    assert 0.99 * 2**-8 < ((x.bfloat16().double() - x) / x).abs().max() <= 2**-8


def norms(train: Any) -> list[float]:
    seen: list[float] = []
    clip = nn.utils.clip_grad_norm_

    def recorded(*args: Any) -> torch.Tensor:
        norm = clip(*args)
        seen.append(norm.item())
        return norm

    try:
        nn.utils.clip_grad_norm_ = recorded
        train()
    finally:
        nn.utils.clip_grad_norm_ = clip
    return seen


def training(rank: int, rows: torch.Tensor) -> tuple[list[float], list[float]]:
    torch.manual_seed(0)
    returned: list[torch.Tensor] = []
    seen = norms(lambda: returned.append(train_texts(rank, GPT(length=128), rows, 20)[1]))
    return seen, returned[0].tolist()


def test_some_gradients_exceed_the_bound_and_others_do_not_and_their_norms_are_returned(groups: dict[int, RankGroup]) -> None:
    (found, returned), other = groups[2].run(training, pack(paragraphs(63)[:4000], 128))
    assert (found, returned) == other and found == returned and len(found) == 20 and min(found) < 0.95 and max(found) > 1.05


def test_only_matrices_decay_and_every_parameter_is_in_one_group() -> None:
    net = SMALL()
    decays, rest = decay_groups(net)
    assert {p.dim() for p in decays["params"]} == {2} and {p.dim() for p in rest["params"]} == {1} and rest["weight_decay"] == 0
    assert {*map(id, decays["params"] + rest["params"])} == {*map(id, net.parameters())}


def test_the_learning_rate_rises_for_ten_updates_and_falls_to_a_tenth() -> None:
    rates = [warm_cosine(step, 200) for step in range(200)]
    assert rates[0] == 0.1 and rates[9] == rates[10] == 1 and sorted(rates[10:], reverse=True) == rates[10:] and 0.1 <= rates[-1] < 0.101


def test_the_formula_is_what_pytorch_counts_for_other_sizes_too() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    for width, depth, length in ((16, 1, 32), (32, 3, 16)):
        net, rows = GPT(width, depth, 2, length), pack([b"abc", b"defgh"], length)
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            total(net, rows).backward()
        matrices = sum(m.weight.numel() for m in net.modules() if isinstance(m, nn.Linear))
        assert counter.get_total_flops() == rows[:, 1:].numel() * flop_per_token(matrices, depth, width, length)


def test_a_third_of_gpt_2_is_its_table_of_tokens_and_the_h100_table_is_read_as_published() -> None:
    of_blocks = 12 * (12 * 768**2 + 13 * 768) + 2 * 768
    table = 50_257 * 768
    assert round(table / (of_blocks + table + 1024 * 768), 2) == 0.31
    assert abs(6667 / 5762 - 1.16) < 0.005
    assert flop_per_token(10, 1, 4, 8) == 60 + 384


def test_the_script_of_the_book_differs_in_the_named_functions_alone() -> None:
    old, new = ({node.name: ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
                for text in (original_script(), gpt_script()))
    assert {name for name in old if new.get(name) != old[name]} == {"augment", *(fn.__name__ for fn in CHANGED)}
    assert {line[0] for line in diff_of_script("backward").splitlines()} == {" ", "+", "-"} and len(gpt_script()) < len(original_script()) + 200


def test_the_script_trains_a_gpt_alike_on_one_rank_and_two(tmp_path: Path, root: Path) -> None:
    (tmp_path / "train_gpt.py").write_text(gpt_script(), "utf8")
    losses = []
    for ranks, accumulate in ((1, 6), (2, 3)):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", tmp_path / "train_gpt.py",
                   "--epochs=1", "--batch-size=12", f"--accumulate={accumulate}", "--clip=1", f"--checkpoints={tmp_path / str(ranks)}"]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}"})
        lines = map(json.loads, (tmp_path / str(ranks) / "metrics.jsonl").read_text().splitlines()[1:])
        losses.append([line["loss"] for line in lines if "loss" in line])
    assert len(losses[0]) == 20 and losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][0] > losses[0][-1] + 0.5


def test_the_stored_run_is_that_of_the_command_and_it_learned() -> None:
    stored = stored_results("small_gpt")
    about, run = stored["about"], stored["long"]
    assert about["command"] == "python book/lab/small_gpt.py" and about["machine"] and about["ranks"] == 2
    assert len(run["losses"]) == run["updates"] and {*run["samples"]} == {*run["held_out"]} == {"0", f"{run['updates']}"}
    apart = {layout: [round(median(stored["means_apart"][layout][when]), 2) for when in ("0", "100")] for layout in ("packed", "one text per row")}
    assert apart == {"packed": [0.03, 0.08], "one text per row": [0.12, 0.26]}  # as the page says
    assert all(max(stored["means_apart"]["one text per row"][when]) > 0.5 for when in ("0", "100"))
    assert stored["curves_apart"]["bf16 autocast"][1] > 3.4
    assert run["held_out"]["0"] > math.log(256) and run["held_out"][f"{run['updates']}"] < 2.5


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


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.timeout(300)
def test_a_network_with_several_buckets_is_split_and_a_bare_sequential_is_compiled_in_the_other_order_only(groups: dict[int, RankGroup]) -> None:
    def bare() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    count = groups[2].run
    assert count(count_graphs, TwoLarge, (2, 600), False) == [2, 2]
    assert count(partial(count_graphs, optimize_ddp=False), TwoLarge, (2, 600), False) == [1, 1]
    assert count(count_graphs, bare, (2, 4), False) == [0, 0]
    assert count(count_graphs, bare, (2, 4), True) == [1, 1]


def orders() -> dict[str, str]:
    names: dict[str, Any] = {"script": stored_script("gpt")}
    exec(CELLS["gpt-orders"], names)
    return {name: names["changed"](changes) for name, changes in names["ORDERS"].items()}


def with_means() -> str:
    text = stored_script("gpt").replace(', reduction="sum") / tokens', ") / 2").replace("(loss * dist.get_world_size())", "loss")
    assert "loss.backward()" in text
    return text


VERDICTS = {"clip each pass": ["clipped before the average"], "exchange the first pass": ["no_sync around the last pass"],
            "zero once per epoch": ["gradients of earlier steps"], "as it is": [], "mean of means": [],
            "exchange the first pass, clipped": ["different gradients"]}


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", VERDICTS)
def test_watch_names_each_wrong_order_and_lets_the_right_one_and_the_mean_of_means_pass(name: str, tmp_path: Path) -> None:
    path = tmp_path / "gpt.py"
    path.write_text({**orders(), "as it is": stored_script("gpt"), "mean of means": with_means(),
                     "exchange the first pass, clipped": stored_script("gpt").replace("i == 1", "i == 0")}[name], "utf8")
    found = watch([path])
    assert name != "zero once per epoch" or f"{found}" == stored_results("small_gpt")[name], "the stored verdict of `watch` has changed; " \
        "delete its entry in small_gpt.json, and run python book/lab/small_gpt.py"
    assert [*found.faults] == VERDICTS[name] and ("count tokens" in f"{found}") == (not VERDICTS[name])


def final(rank: int, text: str) -> list[torch.Tensor]:
    names: dict[str, Any] = {}
    exec(text.replace('dist.init_process_group("gloo")\n', ""), names)
    return [p.detach() for p in names["model"].parameters()]


def seen_when_clipped(rank: int, text: str) -> list[float]:
    return norms(lambda: final(rank, text))


@pytest.mark.slow
@pytest.mark.weekly
def test_only_without_the_last_exchange_do_the_ranks_end_with_different_parameters(groups: dict[int, RankGroup]) -> None:
    differ = [name for name, text in orders().items() if not same_bits(groups[2].run(final, text))]
    assert differ == ["exchange the first pass"]


@pytest.mark.slow
@pytest.mark.weekly
def test_clipping_each_pass_ends_elsewhere_and_the_script_as_it_is_clips_some_gradients_and_not_all(groups: dict[int, RankGroup]) -> None:
    right, wrong = (groups[2].run(final, text)[0] for text in (stored_script("gpt"), orders()["clip each pass"]))
    assert distance(wrong, right) > 1e-4
    seen = groups[2].run(seen_when_clipped, stored_script("gpt"))[0]
    assert len(seen) == 30 and min(seen) < 0.5 < max(seen) and sum(norm < 0.5 for norm in seen) >= 5
    loose = groups[2].run(seen_when_clipped, orders()["exchange the first pass"])
    assert max(map(max, loose)) < 1.0


@pytest.mark.slow
@pytest.mark.weekly
def test_diagnose_calls_the_mean_of_means_a_mean_over_tokens() -> None:
    def train(net: nn.Module, batches: Any) -> None:
        model, optimizer = DDP(net), torch.optim.SGD(net.parameters(), 0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x).mT, y).backward()
            optimizer.step()

    def make_net() -> nn.Module:
        torch.manual_seed(0)
        return GPT(width=16, depth=1, length=32)

    rows = torch.cat([pack([text], 32) for text in paragraphs(31)[:48]])
    assert [*diagnose(train, make_net, *inputs_and_targets(rows)).faults] == ["mean over tokens"]


@pytest.fixture(scope="module")
def whole_page(groups: dict[int, RankGroup]) -> Iterator[dict[str, Any]]:
    """The page's names, after all cells but those that start other programs; the ranks get its functions by value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(d2lpar, "RankGroup", lambda world_size, backend: groups[world_size])
        for name, source in CELLS.items():
            if name not in ("gpt-orders-run", "gpt-mfu"):
                exec(source, names)
        yield names


NOT_TIMES_RANKS = "gpt-backward", "share * dist.get_world_size()", "share"
NO_EXCHANGE = "gpt-backward", "nullcontext() if i == len(batches) else model.no_sync()", "model.no_sync()"
OWN_COUNT = "gpt-backward", "    dist.all_reduce(count)\n", ""
FIRST_DROPPED = "gpt-backward", "            (share", "            if i == len(batches): model.zero_grad()\n            (share"
NO_STEP = "gpt-train", "optimizer.step()", "pass"
CLIPPED_BY_RANK = "gpt-train", "net.parameters(), clip", "net.parameters(), clip / dist.get_world_size()"
ALL_TEXTS = "gpt-net", "same_text & ", "(same_text | True) & "
ALL_TOKENS = "gpt-targets", "(x == 0) & (y == 0)", "y < 0"
HALF_SQUARE = "gpt-flop-per-token", "+ 12 * depth", "+ 6 * depth"
HALF_POSITIONS = "gpt-flop-per-token", "+ 12 * depth * width * length", "+ 6 * depth * length**2"
BREAKS = [("gpt-gradients-run", bug) for bug in (NOT_TIMES_RANKS, NO_EXCHANGE, OWN_COUNT, FIRST_DROPPED)]
BREAKS += [("gpt-digits", bug) for bug in (NO_EXCHANGE, NO_STEP, CLIPPED_BY_RANK, NOT_TIMES_RANKS, OWN_COUNT)]
BREAKS += [("gpt-alone", ALL_TEXTS), ("gpt-fill", ALL_TOKENS), ("gpt-flop-count", HALF_SQUARE), ("gpt-flop-count", HALF_POSITIONS)]


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell, bug", BREAKS, ids=[f"{cell}-{bug[1][:20]}-{bug[2][:20]}" for cell, bug in BREAKS])
def test_an_assertion_of_the_page_fails_if_the_code_is_broken(whole_page: dict[str, Any], cell: str, bug: tuple[str, str, str]) -> None:
    where, old, new = bug
    assert CELLS[where].count(old) == 1, old
    names = dict(whole_page)
    for name in ("gpt-pack", "gpt-targets", "gpt-block", "gpt-net", "gpt-backward", "gpt-train", "gpt-gradients"):
        if name != cell:
            exec(CELLS[name].replace(old, new) if name == where else CELLS[name], names)
    exec(CELLS[where].replace(old, new), names)
    with pytest.raises((AssertionError, RankError)):
        exec(CELLS[cell], names)
        exec(CELLS["gpt-digits-said"] if cell == "gpt-digits" else "", names)
