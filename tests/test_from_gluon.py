"""The page "From Gluon to PyTorch": what it tells to write runs and holds."""

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

GUIDE = "(book/authors.md, The rules)"


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
    assert sum(block.text.count(setting) for block in blocks) == 1, f"Write {setting.strip()!r} once on the page {GUIDE}"
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


def test_every_pytorch_block_claims_something(runnable: list[Block]) -> None:
    silent = [block.line for block in runnable[1:]
              if not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(block.text)))]
    assert len(runnable) > 30
    assert silent == [], f"Assert something in the blocks of book/from_gluon.md at these lines {GUIDE}"


def test_every_block_is_either_run_or_marked_as_not_run(page: str, runnable: list[Block], gluon: list[Block]) -> None:
    blocks = blocks_of(page)
    assert page.count("```") == 2 * len(blocks), f"Put every fence at the start of its line, and close it {GUIDE}"
    assert [block.line for block in blocks if block not in runnable and block not in gluon] == [], (
        f"Begin the blocks at these lines with ```python, or with ```{{code-block}} python if they are in Gluon {GUIDE}")
    mark = "\n\n*Gluon, not run:*\n\n"
    assert [block.line for block in gluon if not block.before.endswith(mark)] == [], f"Write *Gluon, not run:* above the blocks at these lines {GUIDE}"
    assert [block.line for block in runnable if block.before.endswith(mark)] == [], f"Take *Gluon, not run:* away above these blocks, which are run {GUIDE}"
    for block in gluon:
        ast.parse(block.text)  # it is Python, though; parsing does not execute


# what the page claims in prose


def test_scatter_and_data_parallel_are_as_described_without_a_gpu(page: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("speaks of machines without a GPU")
    module = nn.DataParallel(nn.Linear(2, 2))
    assert module.device_ids == [] and "becomes the plain module" in page
    with pytest.raises(ValueError, match="non cpu"):
        nn.parallel.scatter(torch.ones(4), [torch.device("cpu")] * 2)
