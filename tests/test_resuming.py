"""Tests of d2lpar.diagnosis.resuming: a resumed run is compared with the uninterrupted one. And which files are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from d2lpar.diagnosis.compare import Diagnosis
from d2lpar.diagnosis.judging import Ran
from d2lpar.diagnosis.resuming import compare_resumed, with_checkpoint
from d2lpar.diagnosis.scripts import watch
from d2lpar.diagnosis.some_ranks import saves_on_all_ranks
from tests.test_coverage import a_step

BUGS = Path(__file__).parent / "watch" / "bugs.py"


@pytest.mark.parametrize("words, first, then", [
    (["train.py", "--epochs", "3"], ["train.py", "--epochs", "3"], ["train.py", "--epochs", "3"]),
    (["train.py", "--resume", "{checkpoint}", "-v"], ["train.py", "-v"], ["train.py", "--resume", "a.pt", "-v"]),
    (["train.py", "--resume={checkpoint}"], ["train.py"], ["train.py", "--resume=a.pt"]),
    (["train.py", "go", "{checkpoint}"], ["train.py", "go"], ["train.py", "go", "a.pt"]),
])
def test_the_argument_for_a_checkpoint_is_left_out_of_the_first_run(words: list[str], first: list[str], then: list[str]):
    assert with_checkpoint(words, "") == first and with_checkpoint(words, "a.pt") == then


# a run of two epochs of two steps, in which the parameters go from 0 to 4, and one that was resumed after the first


def step(at: float, rate: float = 0.1, has_state: bool = True, has_loaded: bool = False, scale: float = 1.0, to: float = 1.0) -> dict[str, Any]:
    data = a_step(has_state=has_state, has_loaded=has_loaded)
    x = torch.full((8,), at)
    return data | {"step": data["step"]._replace(before={"w": x}, after={"w": x + to}, rates=[rate], scale=scale)}


def epoch(first: int, indices: list[list[int]]) -> dict[str, Any]:
    return {"trained": True, "indices": indices, "first_step": first}


ORDERS = [[[0, 1], [2, 3]], [[3, 0], [1, 2]]]


def run(steps: list[dict[str, Any]], orders: list[list[list[int]]], rate: float = 0.1, **ran: Any) -> Ran:
    passes = [("pass", epoch(2 * i, order)) for i, order in enumerate(orders)]
    end = ("end", {"rates": [[rate]], "parameters": {}, "error": ""})
    records = [[("step", one) for one in steps] + passes + [("checkpoint", {"steps": 2}), end]] * 2
    return Ran(2, records, **ran)


WHOLE = run([step(0, has_state=False), step(1), step(2), step(3)], ORDERS)


@pytest.mark.parametrize("steps, orders, rate, off", [
    ([step(2), step(3)], ORDERS[1:], 0.1, ""),
    ([step(2), step(3)], [[[5, 4], [0, 2]]], 0.1, ""),  # a different order is not an epoch that comes again
    ([step(2), step(3)], ORDERS[:1], 0.1, "epoch 1 is repeated"),
    ([step(2, has_state=False), step(3)], ORDERS[1:], 0.1, "the optimizer begins without its state"),
    ([step(2, rate=0.2), step(3)], ORDERS[1:], 0.1, "learning rate 0.2 instead of 0.1"),
    ([step(2), step(3)], ORDERS[1:], 0.3, "after an epoch, learning rate 0.3 instead of 0.1"),
    ([step(2, scale=8.0), step(3)], ORDERS[1:], 0.1, "the GradScaler's factor is 8 instead of 1"),
    ([step(2, to=1.5), step(3.5)], ORDERS[1:], 0.1, "the same gradient leads to a different update"),
    ([step(2.5, has_loaded=True), step(3)], ORDERS[1:], 0.1, "the parameters are those of no step of that run"),
    ([step(1), step(2)], ORDERS[1:], 0.1, ""),  # it goes on from an earlier step, whose order was not seen again
    ([step(float("nan"), has_loaded=True), step(3)], ORDERS[1:], 0.1, "the parameters are those of no step of that run"),
])
def test_what_a_resumed_run_does_differently_is_said(steps: list, orders: list, rate: float, off: str):
    found = Diagnosis("a run", watched=True)
    compare_resumed(WHOLE, run(steps, orders, rate), found)
    assert found.coverage["resuming"].state == "judged"
    assert bool(found.faults) == bool(off) and off in found.faults.get("resumed run differs", "")


@pytest.mark.parametrize("again, why", [
    (run([step(0, has_state=False), step(1)], ORDERS), "began anew"), (run([step(7), step(8)], ORDERS), "began anew"),
    (run([], []), "took no step"), (run([step(2)], [], stands="rank 0 is at line 3"), "did not go on"),
])
def test_a_script_that_does_not_resume_is_not_accused(again: Ran, why: str):
    found = Diagnosis("a run", watched=True)
    compare_resumed(WHOLE, again, found)
    assert found.ok and not found.faults and why in found.coverage["resuming"].why


@pytest.mark.slow
def test_a_script_is_started_again_with_its_checkpoint_and_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("kept")
    found: Any = watch([str(BUGS), "resumed without the optimizer"])
    assert list(found.faults) == ["resumed run differs"] and "begins without its state" in found.faults["resumed run differs"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# files that all ranks would save


@pytest.mark.parametrize("code, lines", [
    ("torch.save(net, 'a.pt')", [1]),
    ("if rank == 0:\n    torch.save(net, 'a.pt')", []),
    ("if epoch > 2:\n    torch.save(net, 'a.pt')", []),  # what it asks for is not known
    ("torch.save(net, f'{rank}.pt')", []),
    ("def main():\n    for e in range(3):\n        torch.save(net, 'a.pt')\nif __name__ == '__main__':\n    main()", [3]),
    ("def save():\n    torch.save(net, 'a.pt')\nif rank == 0:\n    save()", []),
    ("def save():\n    if rank:\n        return\n    torch.save(net, 'a.pt')\nsave()", []),
    ("def save():\n    torch.save(net, 'a.pt')\nsave()", [2]),
    ("def save():\n    torch.save(net, 'a.pt')", []),  # nobody calls it
    ("with on_rank_0():\n    torch.save(net, 'a.pt')", []),
    ("torch.save(net", []),
])
def test_a_file_that_all_ranks_would_save_is_seen_in_the_text_only_if_nothing_could_prevent_it(code: str, lines: list[int], tmp_path: Path):
    (tmp_path / "t.py").write_text(code)
    assert saves_on_all_ranks(str(tmp_path / "t.py")) == lines
