"""What `make check` runs: what a change can affect, transitively, and everything where that cannot be known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import check
from check import Book, Chosen, base, changed_files, choose

FILES = {
    "conftest.py": "from revisions import tracked",
    "pyproject.toml": "",
    "book/other.md": "a page",
    "book/page.md": "a page",
    "book/tools/revisions.py": "",
    "book/tools/draw.py": "import d2lpar.cost",
    "d2lpar/__init__.py": "from d2lpar.scratch import step as step\nfrom d2lpar.cost import ring_s as ring_s",
    "d2lpar/_rank.py": "",
    "d2lpar/cost.py": "def ring_s(): ...",
    "d2lpar/data.npz": "",
    "d2lpar/launch.py": "RANK = '_rank.py'",
    "d2lpar/models.py": "",
    "d2lpar/scratch.py": "'''Unlike d2lpar.cost.'''\nfrom d2lpar.models import loss",
    "d2lpar/pages/__init__.py": "from d2lpar.pages.plot import draw as draw",
    "d2lpar/pages/plot.py": "def draw(): ...",
    "d2lpar/pages/exercises/ex_means.py": "def check(answer): ...",
    "tests/conftest.py": "import d2lpar\n\n\ndef group_of():\n    from d2lpar.launch import RankGroup",
    "tests/diagnose/a_script.py": "",
    "tests/helpers/cases.py": "from d2lpar.cost import ring_s",
    "tests/test_cost.py": "from helpers.cases import all_of_them",
    "tests/test_diagnosis.py": "",
    "tests/test_draw.py": "COMMAND, PAGE = 'book/tools/draw.py', 'page.md'",
    "tests/test_models.py": "import d2lpar.models\n\n\ndef test_one(group_of): ...",
    "tests/test_pages.py": "def test_a_page(site: str) -> None: ...",
    "tests/test_names.py": "def test_all(notebooks: list) -> None: ...",
}
NOTEBOOKS = {"01_step": "import d2lpar as dp\n\n%time dp.step()", "02_cost": "dp.cost.ring_s()\nbook.draw()\n!python -m d2lpar",
             "03_exercise": 'book.check("ex-means", 3)', "04_ranks": "from d2lpar.launch import run_ranks"}
READERS = ["test_names"]


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words], cwd=folder, check=True, capture_output=True)


def write(folder: Path, name: str, code: str, text: str = "prose") -> None:
    cells = [new_markdown_cell(text, id="m"), new_code_cell(code, id="c", execution_count=1)]
    nbformat.write(new_notebook(cells=cells), folder / "notebooks" / f"{name}.ipynb")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A small book under git."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "notebooks").mkdir()
    for name, code in NOTEBOOKS.items():
        write(tmp_path, name, code)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def stems(chosen: Chosen) -> tuple[list[str], list[str], str]:
    return [Path(name).stem for name in chosen.notebooks], [Path(name).stem for name in chosen.tests], chosen.everything


@pytest.mark.parametrize("changed, notebooks, tests", [
    ("d2lpar/models.py", ["01_step"], ["test_models", "test_pages"]),
    ("d2lpar/cost.py", ["02_cost"], ["test_cost", "test_draw", "test_pages"]),
    ("d2lpar/_rank.py", ["04_ranks"], ["test_models", "test_pages"]),
    ("d2lpar/pages/plot.py", ["02_cost"], ["test_pages"]),
    ("d2lpar/pages/exercises/ex_means.py", ["03_exercise"], ["test_pages"]),
    ("tests/helpers/cases.py", [], ["test_cost"]),
    ("tests/test_cost.py", [], ["test_cost"]),
    ("tests/diagnose/a_script.py", [], ["test_diagnosis"]),
    ("book/tools/draw.py", [], ["test_draw"]),
    ("book/page.md", [], ["test_draw", "test_pages"]),
    ("book/other.md", [], ["test_pages"]),
])
def test_a_change_runs_what_depends_on_it_and_no_more(book: Path, changed: str, notebooks: list[str], tests: list[str]) -> None:
    assert stems(choose(book, "HEAD", {changed})) == (notebooks, sorted([*tests, *READERS]), "")


@pytest.mark.parametrize("changed", ["conftest.py", "tests/conftest.py", "book/tools/revisions.py",
                                     "d2lpar/data.npz", "pyproject.toml", "d2lpar/a_module_that_went.py", "a_file_of_a_new_kind.txt"])
def test_everything_runs_where_it_cannot_be_known_what_depends_on_a_change(book: Path, changed: str) -> None:
    assert stems(choose(book, "HEAD", {"book/page.md", changed})) == ([], [], changed)


def test_a_name_that_a_package_passes_on_concerns_those_who_use_it(book: Path) -> None:
    top, chosen = book / "d2lpar" / "__init__.py", lambda: stems(choose(book, "HEAD", {"d2lpar/__init__.py"}))
    top.write_text(FILES["d2lpar/__init__.py"].replace("import ring_s as ring_s", "import new_s as new_s"))
    assert chosen() == ([], ["test_names", "test_pages"], "")
    top.write_text(FILES["d2lpar/__init__.py"].replace("step as step", "leap as leap"))
    assert chosen() == (["01_step"], ["test_names", "test_pages"], "")
    top.write_text(FILES["d2lpar/__init__.py"] + "\nprint('at import')")
    assert chosen() == ([], [], "d2lpar/__init__.py")


def test_of_a_notebook_whose_prose_alone_has_changed_no_cell_runs(book: Path) -> None:
    write(book, "01_step", NOTEBOOKS["01_step"], text="better prose")
    changed = changed_files(book, "HEAD")
    assert changed == {"notebooks/01_step.ipynb"} and stems(choose(book, "HEAD", changed)) == ([], ["test_names", "test_pages"], "")
    write(book, "01_step", "dp.step(2)")
    write(book, "05_new", "dp.step()")
    assert changed_files(book, "HEAD") == {"notebooks/01_step.ipynb"}, "a file of her own"
    git(book, "add", ".")
    assert changed_files(book, "HEAD") == {"notebooks/01_step.ipynb", "notebooks/05_new.ipynb"}
    check.tracked.cache_clear()
    assert list(choose(book, "HEAD", {"notebooks/01_step.ipynb", "notebooks/05_new.ipynb"}).notebooks) == [
        "notebooks/01_step.ipynb", "notebooks/05_new.ipynb"]


def test_a_change_is_what_differs_from_the_commit_where_the_branch_began(book: Path) -> None:
    git(book, "checkout", "-q", "-b", "mine")
    (book / "book" / "page.md").write_text("changed in a commit")
    git(book, "commit", "-q", "-a", "-m", "a page")
    (book / "d2lpar" / "cost.py").write_text("# not committed")
    (book / "new.txt").write_text("a file of her own")
    (book / "d2lpar" / "models.py").unlink()
    revision, words = base(book, "")
    assert words == f"{revision[:7]}, where this branch left main"
    assert changed_files(book, revision) == {"book/page.md", "d2lpar/cost.py", "d2lpar/models.py"}
    assert changed_files(book, base(book, "HEAD")[0]) == {"d2lpar/cost.py", "d2lpar/models.py"}
    git(book, "checkout", "-q", "-f", "main")
    assert base(book, "") == ("HEAD", "the last commit")
    assert changed_files(book, "no-such-revision") is None


def test_where_there_is_no_git_it_cannot_tell(tmp_path: Path) -> None:
    assert changed_files(tmp_path, "HEAD") is None


@pytest.mark.parametrize("module, fewest, most, among", [
    ("cost", 3, 12, ["17_when_it_pays", "18_cluster_in_a_laptop"]), ("checkpoints", 1, 12, ["13_training_that_survives"]),
    ("diagnosis/rules", 1, 6, ["12_is_my_script_right", "appendix/watch_and_diagnose"]), ("scratch", 20, 34, ["02_data_parallelism_from_scratch"]),
    ("_reaper", 5, 20, ["07_rank_as_a_process"]), ("train_ddp", 1, 12, ["13_training_that_survives"])])
def test_in_this_book_a_module_is_run_by_the_chapters_about_it(root: Path, module: str, fewest: int, most: int, among: list[str]) -> None:
    chosen = choose(root, "HEAD", {f"d2lpar/{module}.py"})
    assert chosen.everything == "" and fewest <= len(chosen.notebooks) <= most, chosen.notebooks
    assert {f"notebooks/{name}.ipynb" for name in among} - set(chosen.notebooks) == set(), (
        "Give these chapters their new names in this test, or fix book/tools/check.py (book/authors.md, The tools)")
    own = f"tests/test_{Path(module).stem}.py"
    assert own in chosen.tests or not (root / own).exists()
    assert "tests/test_notebooks.py" in chosen.tests and "tests/test_pages.py" in chosen.tests


def test_every_chapter_depends_on_modules_of_the_book(root: Path) -> None:
    book = Book(root)
    idle = [name for name in book.notebooks if not any(used.startswith("d2lpar/") for used in book.uses(name))]
    assert idle == [], "Fix book/tools/check.py: it finds no module of d2lpar in these notebooks (book/authors.md, The tools)"
