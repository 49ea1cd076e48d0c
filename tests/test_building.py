"""Tests of the building edition: what readers write is checked, and until they write it, the book's own is used."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from math import inf, nan
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import sync_cells
from building_edition import NUMBERED, building_edition, reading_edition, tag_of, written_in
from d2lpar.pages import building, differences
from d2lpar.pages.building import as_in_cell, check_function, is_stub, what_is_wrong, yours
from d2lpar.pages.differences import Difference, compare, home
from d2lpar.pages.to_write import GIVEN, PARTLY, TO_WRITE
from revisions import tracked_notebooks
from working_copy import WORDS
from wrong_versions import FOLDER, wrong_versions

ROOT = Path(__file__).resolve().parents[1]
GUIDE = "(book/authors.md, A function that readers write)"
CHAPTERS = tracked_notebooks(ROOT)


def here(name: str) -> dict:
    """Names as in a notebook in which `name` is defined."""
    return {**vars(inspect.getmodule(home(name))), "__name__": "__main__"}


def printed(fn: Callable, *args: object) -> str:
    with redirect_stdout(StringIO()) as out:
        fn(*args)
    return out.getvalue()


@pytest.mark.parametrize("name", TO_WRITE)
def test_the_books_own_function_passes_its_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "LIMIT_S", 100.0)  # a busy machine is no mistake
    assert what_is_wrong(as_in_cell(name, here(name))) == "", f"Make check_{name} accept the book's own function {GUIDE}"


WRONG = [(name, title) for name in TO_WRITE for title in wrong_versions(name)]


@pytest.mark.parametrize("name, title", WRONG, ids=[f"{name}-{title}" for name, title in WRONG])
def test_a_wrong_version_is_told_what_is_wrong(name: str, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "LIMIT_S", 3.0)  # of those that hang
    said = what_is_wrong(wrong_versions(name)[title])
    assert re.match(r"Not yet: \S", said), f"Make check_{name} notice {title} of tests/wrong_versions/{name}.py {GUIDE}"
    assert len(said) < 1500, said


def test_every_function_has_wrong_versions_and_no_file_is_left_over() -> None:
    few = [name for name in TO_WRITE if len(wrong_versions(name)) < 2]
    assert few == [], f"For each of these, write two wrong versions in tests/wrong_versions/NAME.py {GUIDE}"
    assert {path.stem for path in FOLDER.glob("*.py")} - set(TO_WRITE) == set(), f"Delete these files in tests/wrong_versions {GUIDE}"


def test_every_taught_function_is_written_or_given_with_a_reason() -> None:
    taught = {name.rpartition(".")[2] for name in sync_cells.taught_names()}
    assert taught - set(TO_WRITE) - set(GIVEN) == set(), f"List each of these in d2lpar/pages/to_write/__init__.py {GUIDE}"
    assert (set(TO_WRITE) | set(GIVEN)) - taught == set(), f"No cell teaches these: take them out of d2lpar/pages/to_write {GUIDE}"
    assert set(TO_WRITE) & set(GIVEN) == set()


@pytest.mark.parametrize("path", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_a_stub_is_valid_python_that_knows_it_is_one_and_its_fold_holds_the_packages_text(path: Path) -> None:
    chapter = nbformat.read(path, as_version=4)
    edition = building_edition(chapter, WORDS)
    cells = {cell.id: cell for cell in edition.cells}
    names = [written_in(cell) for cell in chapter.cells if cell.cell_type == "code" and written_in(cell)]
    for cell in chapter.cells:
        if cell.cell_type == "code" and (name := written_in(cell)):
            stub = cells[cell.id].source
            [node] = [node for node in ast.parse(stub).body if isinstance(node, ast.FunctionDef)]
            assert ast.get_docstring(node) == ast.get_docstring(ast.parse(cell.source).body[0])
            assert stub.endswith(f"book.check({name})") and stub.count("@book.yours") == stub.count("book.check(") == 1
            names_here = here(name) | {"book": building}
            body = stub.replace("import d2lpar.pages as book\n\n\n", "").rpartition("\n\n\n")[0]
            assert "Not written yet" in printed(exec, compile(body, "<cell>", "exec", dont_inherit=True), names_here)
            assert what_is_wrong(names_here[name]) == ""
            assert f"```python\n{cell.source}\n```" in cells[f"{cell.id}-fold"].source
            assert cell.source == sync_cells.package_text(TO_WRITE[name], name)
    opening = chapter.cells[0].source
    told = re.search(r"\*\*You will (build|see)\*\*(.*)", opening)
    if names and told:
        assert told[1] == "build", f"{path.stem} has functions to write, so its opening says **You will build** {GUIDE}"
        lost = [name for name in names if f"`{name}" not in told[2]]
        assert not lost, f"Name {lost} after **You will build** in {path.stem} {GUIDE}"
    elif told:
        assert told[1] == "see", f"Nothing is written in {path.stem}: begin with **You will see** {GUIDE}"


@pytest.mark.parametrize("path", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_nothing_gives_an_answer_away(path: Path) -> None:
    chapter = nbformat.read(path, as_version=4)
    edition = building_edition(chapter, WORDS)
    assert [cell.id for cell in edition.cells if cell.get("outputs") or cell.get("execution_count")] == []
    tagged = {kind: {tag_of(cell, kind) for cell in chapter.cells} - {""} for kind in ("hint", "explains")}
    names = {written_in(cell) for cell in chapter.cells if cell.cell_type == "code"} - {""}
    assert tagged["hint"] == names, f"Each function that is written needs a cell `hint:NAME`, and no other {GUIDE}"
    assert tagged["explains"] <= names, f"A cell `explains:NAME` explains a function that is written in the chapter {GUIDE}"
    code = "\n".join(cell.source for cell in edition.cells if cell.cell_type == "code")
    for name in names:  # the lines of the body, where they are long enough to say something
        text = sync_cells.package_text(TO_WRITE[name], name)
        [node] = ast.parse(text).body
        begin = node.body[0].end_lineno if isinstance(node, ast.FunctionDef) else 0  # below the docstring
        body = [line.split("  # ")[0].strip() for line in text.splitlines()[begin:]]
        runs = ["\n".join(body[i:i + 3]) for i in range(len(body) - 2)]
        if name in PARTLY:
            runs = [line.split("  # ")[0].strip() for line in text.splitlines() if NUMBERED.match(line)]
        told = [run for run in runs if run in "\n".join(line.strip() for line in code.splitlines())
                and len(run) > (80 if name not in PARTLY else 20)]
        assert not told, f"A cell of {path.stem} prints a part of `{name}`, which the reader is asked to write {GUIDE}: {told[0]}"
    folds = [cell.source for cell in edition.cells if cell.cell_type == "markdown" and ":::::{dropdown} " in cell.source]
    assert all(fold.count(":::::{dropdown}") * 2 == fold.count(":::::") for fold in folds)
    for cell in reading_edition(chapter).cells:
        assert not tag_of(cell, "hint")


def test_an_unwritten_function_is_the_books_and_calls_what_the_reader_has_written() -> None:
    names = here("train_batch") | {"book": building}
    calls: list[int] = []

    def sgd(params: object, lr: float, batch_size: int) -> None:
        calls.append(batch_size)

    names["sgd"] = sgd
    exec('def train_batch(X, y, replicas, devices, lr):\n    "As on the page."\n    ...  # yours', names)
    with redirect_stdout(StringIO()) as out:
        own = yours(names["train_batch"])
    assert out.getvalue() == "Not written yet: the book's own `train_batch` is used.\n"
    own(torch.rand(2, 1, 28, 28), torch.tensor([1, 2]), [names["get_params"](names["lenet_params"](), "cpu")], ["cpu"], 0.1)
    assert calls == [2] and "loss(lenet" in inspect.getsource(own)


@pytest.mark.parametrize("body, stub", [
    ("...", True), ("pass", True), ("return", True), ("return None", True), ("x = ...", False), ("'only words'", True),
    ("'words'\n    ...", True), ("return 1", False), ("'words'\n    return 1", False), ("return x[..., 0]", False), ("raise NotImplementedError", False),
    ("x.add_(1)", False), ("return x[...,]", False)])
def test_what_counts_as_not_written(body: str, stub: bool) -> None:
    names: dict = {}
    exec(f"def f(x):\n    {body}", names)
    assert is_stub(names["f"]) == stub and is_stub(torch.no_grad()(names["f"])) == stub


def test_a_function_of_which_only_lines_are_missing_is_not_written_while_one_is_still_dots() -> None:
    names: dict = {}
    exec("def train(x):\n    x = ...\n    return x", names)
    assert is_stub(names["train"])
    exec("def train(x):\n    x = 3\n    return x", names)
    assert not is_stub(names["train"])


def test_the_check_blames_the_function_that_is_wrong() -> None:
    names = here("train_batch")
    names["split_batch"] = wrong_versions("split_batch")["the_rest_is_dropped"]
    assert what_is_wrong(as_in_cell("train_batch", names)).startswith(
        "Not yet: `train_batch` calls your `split_batch`, which is not right yet: for 5 examples on 2 devices")


@pytest.mark.parametrize("thing", [3, None, print, lambda x: x])
def test_what_is_no_function_of_the_book_is_not_checked(thing: object) -> None:
    assert printed(check_function, thing).startswith("Nothing to check: ")


def test_a_function_without_a_body_and_without_its_mark_is_told_so() -> None:
    def allreduce(data: list) -> None:
        """Not written."""

    assert printed(check_function, allreduce) == "Not written yet: `allreduce` does nothing.\n"


def test_a_function_that_does_not_return_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def allreduce(data: list) -> None:
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(differences, "LIMIT_S", 0.5)
    assert re.search(r"has not returned after .* seconds in the line `(while True:|time.sleep\(0.01\))`", what_is_wrong(allreduce))


def test_other_ways_to_write_them_are_right() -> None:
    def allreduce(data: tuple) -> None:
        """In the other direction, and out of place first."""
        total = torch.zeros_like(data[-1])
        for x in reversed(data):
            total = total + x.to(total.device)
        for x in data:
            x.copy_(total)

    def get_params(params: list, device: torch.device) -> tuple:
        """A tuple, cloned first."""
        return tuple(p.clone().detach().to(device).requires_grad_(True) for p in params)

    def split_batch(X: torch.Tensor, y: torch.Tensor, devices: list) -> tuple:
        """By hand."""
        size, extra = divmod(len(X), len(devices))
        shards: tuple = [], []
        for rank, device in enumerate(devices):
            begin = rank * size + min(rank, extra)
            end = begin + size + (rank < extra)
            for whole, shard in zip((X, y), shards):
                shard.append(whole[begin:end].to(device))
        return shards

    def by_deepcopy(net: torch.nn.Module, X: torch.Tensor, y: torch.Tensor, devices: list) -> None:
        """The network itself computes the first shard, and gradients are added up one by one."""
        shards = [A.to(d) for A, d in zip(X.chunk(len(devices)), devices)]
        copies = [copy.deepcopy(net).to(A.device) if i else net for i, A in enumerate(shards)]
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        scores = [one(A).to(devices[0]) for one, A in zip(copies, shards)]
        torch.nn.functional.cross_entropy(torch.cat(scores), y).backward()
        for one in copies[1:]:
            for p, q in zip(net.parameters(), one.parameters()):
                p.grad += q.grad.to(devices[0])

    for fn in (allreduce, get_params, split_batch, by_deepcopy):
        assert what_is_wrong(fn) == ""


@pytest.mark.parametrize("ours, theirs, said", [
    (float("nan"), 1.0, "is nan, but should be 1"), (1, 2, "is 1, but should be 2"), ("x", 2, "is 'x', but should be 2"),
    ([1, 2], [1, 2, 3], "has 2 entries, but should have 3"),
    (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]), "contains NaN"),
    (torch.tensor([2.0, 4.0]), torch.tensor([1.0, 2.0]), "is 2 times what it should be"),
    (torch.ones(2, 1), torch.ones(2), "has the shape (2, 1), but should have (2,)"),
    (torch.ones(2, dtype=torch.float64), torch.ones(2), "has the dtype torch.float64, but should have torch.float32"),
    (torch.zeros(0), torch.zeros(1), "has the shape (0,)"),
    (torch.tensor([inf, 5.0]), torch.tensor([inf, 1.0]), "is [inf, 5.0], but should be [inf, 1.0]"),
    (torch.tensor([0.0, 1.0]), torch.tensor([inf, 1.0]), "is [0.0, 1.0], but should be [inf, 1.0]"),
    (torch.tensor([-inf]), torch.tensor([inf]), "is [-inf], but should be [inf]"),
    (torch.tensor([inf]), torch.tensor([1.0]), "is [inf], but should be [1.0]"),
    (torch.tensor([1.0, nan]), torch.tensor([nan, 1.0]), "is [1.0, nan], but should be [nan, 1.0]"),
    (torch.zeros(9), torch.ones(9), "is zero, but should not be")])
def test_a_difference_is_said_in_words(ours: object, theirs: object, said: str) -> None:
    def distance(x: object) -> object:
        return ours

    with pytest.raises(Difference, match=re.escape(f"here, the result {said}")):
        compare(distance, "here", lambda: (0,), lambda x: theirs)


def as_written(edition: nbformat.NotebookNode, chapter: nbformat.NotebookNode) -> None:
    """Write every function as the book has it."""
    own = {cell.id: cell for cell in chapter.cells}
    for cell in edition.cells:
        if cell.cell_type == "code" and "@book.yours" in cell.source:
            head, tail = cell.source.partition("@book.yours\n")[:2], cell.source.rpartition("\n\n\n")[2]
            cell.source = f"{''.join(head)}{own[cell.id].source}\n\n\n{tail}"


BUILDING = [path for path in CHAPTERS if any(map(written_in, nbformat.read(path, as_version=4).cells))]
QUICK = ("01_why_gradients_split", "14_batchnorm", "16_rings_true_and_false")


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True], ids=["untouched", "written"])
@pytest.mark.parametrize("path", [pytest.param(path, marks=[] if path.stem in QUICK else [pytest.mark.weekly])
                                  for path in BUILDING], ids=[path.stem for path in BUILDING])
def test_a_building_chapter_runs_whole_untouched_and_written(path: Path, written: bool) -> None:
    chapter = nbformat.read(path, as_version=4)
    edition = building_edition(chapter, WORDS)
    if written:
        as_written(edition, chapter)
    edition.cells = [cell for cell in edition.cells if "nbval-skip" not in cell.metadata.get("tags", [])]
    NotebookClient(edition, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
    said = ["".join(output.get("text", "") for output in cell.outputs) for cell in edition.cells
            if cell.cell_type == "code" and "@book.yours" in cell.source]
    assert said and all(text == "Right.\n" if written else text.startswith("Not written yet: the book's own") for text in said), said
