"""The page "From Gluon to PyTorch": what it tells to write runs and holds, and no call is missing."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

CALLS = """
mx.gpu(0)  mx.cpu()  npx.gpu(0)  d2l.try_gpu(i)  d2l.try_all_gpus()  num_gpus
net.initialize(ctx=ctx, init=init.Normal(sigma=0.01))  force_reinit=True  DeferredInitializationError
.params.get('weight')  .data(ctx[0])  .attach_grad()  .copyto(ctx)  .copyto(data[i])
.as_in_context(ctx)  .as_in_ctx(ctx)  gluon.utils.split_and_load(X, ctx)  gluon.utils.split_data(  even_split=False
autograd.record()  for l in losses:  l.backward()  nd.waitall()  npx.waitall()  gluon.Trainer(  'sgd'
trainer.step(batch_size)  .collect_params()  .list_ctx()  .list_data()  .list_grad()  kvstore='device'
net.hybridize()  gluon.loss.SoftmaxCrossEntropyLoss()  nd.array(  .asnumpy()  .asscalar()  mx.nd.concat(  data[0][:] +=
param[:] =  npx.set_np()  d2l.evaluate_accuracy_gpus(net, data_iter, split_f)  d2l.split_batch(X, y, ctx)
""".replace("\n", "  ").strip().split("  ")
ERRATA = ["nn.paraller.scatter", "`d2l` where another package", "bias=[3]", "pooling without its stride", "d2l.Residual", "never moved"]
OF_MXNET = {"mx", "nd", "npx", "gluon", "mxnet", "autograd", "init", "trainer", "ctx", "ctx_list"}


class Block(NamedTuple):
    """A fenced block: its first line's number on the page, what stands before and after the fence, and the text."""

    line: int
    before: str
    info: str
    text: str


def blocks_of(page: str) -> list[Block]:
    found = []
    for match in re.finditer(r"^```([^\n]+)\n(.*?)^```$", page, re.M | re.S):
        before = page[:match.start()]
        found.append(Block(before.count("\n") + 2, before[-40:], match[1], match[2]))
    return found


def run(blocks: list[Block], page: Path, num_devices: int) -> dict:
    """Execute the blocks in one namespace; an error names the line of the page."""
    namespace: dict = {"__name__": "from_gluon"}
    setting = "num_devices = 2\n"
    assert sum(block.text.count(setting) for block in blocks) == 1
    for block in blocks:
        code = "\n" * (block.line - 1) + block.text.replace(setting, f"num_devices = {num_devices}\n")
        exec(compile(code, str(page), "exec"), namespace)
    return namespace


@pytest.fixture(scope="module")
def path(root: Path) -> Path:
    return root / "book" / "from_gluon.md"


@pytest.fixture(scope="module")
def page(path: Path) -> str:
    return path.read_text("utf8")


@pytest.fixture(scope="module")
def runnable(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.info == "python"]


@pytest.fixture(scope="module")
def gluon(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.info == "{code-block} python"]


@pytest.fixture
def own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


@pytest.mark.usefixtures("own_random_numbers")
@pytest.mark.parametrize("num_devices", [1, 2, 3, 5])
def test_every_pytorch_block_runs_and_its_asserts_hold(num_devices: int, runnable: list[Block], path: Path) -> None:
    loaded = set(sys.modules)
    namespace = run(runnable, path, num_devices)
    assert len(namespace["devices"]) == len(namespace["device_params"]) == num_devices
    assert not [name for name in set(sys.modules) - loaded if name.split(".")[0] in ("mxnet", "gluon", "gluonbook")]


def test_the_numbers_of_devices_that_the_page_names_are_those_tested(page: str) -> None:
    marks = test_every_pytorch_block_runs_and_its_asserts_hold.pytestmark
    *some, last = next(mark for mark in marks if mark.name == "parametrize").args[1]
    assert f"on {', '.join(map(str, some))} and {last} devices" in page


def test_every_pytorch_block_claims_something(runnable: list[Block]) -> None:
    silent = [block.line for block in runnable[1:]
              if not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(block.text)))]
    assert len(runnable) > 30 and silent == []


def test_a_failing_assert_names_its_line_of_the_page(runnable: list[Block], path: Path) -> None:
    first, second = runnable[:2]
    broken = second._replace(text="assert 1 == 2\n")
    with pytest.raises(AssertionError) as error:
        run([first, broken], path, 1)
    assert error.traceback[-1].lineno + 1 == second.line and str(error.traceback[-1].path) == str(path)


def test_every_block_is_either_run_or_marked_as_not_run(page: str, runnable: list[Block], gluon: list[Block]) -> None:
    blocks = blocks_of(page)
    assert page.count("```") == 2 * len(blocks), "a fence that is not at the start of its line"
    assert len(runnable) + len(gluon) == len(blocks)
    mark = "\n\n*Gluon, not run:*\n\n"
    assert [block.line for block in gluon if not block.before.endswith(mark)] == []
    assert [block.line for block in runnable if block.before.endswith(mark)] == []


def test_no_gluon_line_is_ever_executed(runnable: list[Block], gluon: list[Block]) -> None:
    names = {node.id for block in runnable for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Name)}
    assert names & OF_MXNET == set()
    imported = {alias.name.split(".")[0] for block in runnable for node in ast.walk(ast.parse(block.text))
                if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"copy", "inspect", "torch"}
    for block in gluon:
        ast.parse(block.text)  # it is Python, though; parsing does not execute


@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_the_older_chapters_is_on_the_page(call: str, gluon: list[Block]) -> None:
    assert any(call in block.text for block in gluon)


def test_every_gluon_block_is_followed_by_what_to_write_instead(page: str) -> None:
    blocks = blocks_of(page)
    alone = [block.text for block, after in zip(blocks, blocks[1:]) if block.info != "python" != after.info]
    assert alone == ["net.hybridize()\n"], "only hybridize needs nothing"


def test_the_list_of_silent_differences_leads_to_their_sections(page: str) -> None:
    targets = re.findall(r"^- .*?\]\(#([\w-]+)\)", page, re.M)
    assert len(targets) == len(set(targets)) == 10
    for target in targets:
        assert re.search(rf"^\({target}\)=\n### ", page, re.M), target


@pytest.mark.parametrize("slip", ERRATA)
def test_every_slip_has_a_box_that_says_what_happens_if_it_is_kept(slip: str, page: str) -> None:
    boxes = re.findall(r"^:::\{admonition\} (.*?)\n:class: warning\n(.*?)^:::$", page, re.M | re.S)
    assert len(boxes) == len(ERRATA)
    [text] = [text for title, text in boxes if slip in title]
    assert "```python\n" in text and re.search(r"\bstops?\b", text)


def test_one_sentence_stands_on_one_line(page: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    assert [line for line in prose.splitlines() if re.search(r"\. [A-Z`]", line)] == []


# what the page claims in prose


@pytest.mark.parametrize("layer", [nn.Linear(800, 128), nn.Conv2d(20, 50, 5)])
def test_a_pytorch_layer_draws_its_biases_too(layer: nn.Module) -> None:
    inputs = layer.weight[0].numel()
    assert 0 < layer.bias.abs().max() <= inputs**-0.5


def test_the_installed_d2l_is_the_one_of_which_the_page_speaks(page: str) -> None:
    import d2l

    assert f"`d2l` {d2l.__version__}, which this book uses" in page


def test_scatter_and_data_parallel_are_as_described_without_a_gpu(page: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("speaks of machines without a GPU")
    module = nn.DataParallel(nn.Linear(2, 2))
    assert module.device_ids == [] and "becomes the plain module" in page
    with pytest.raises(ValueError, match="non cpu"):
        nn.parallel.scatter(torch.ones(4), [torch.device("cpu")] * 2)
