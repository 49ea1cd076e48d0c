"""What nbval does not see in the notebooks: were they run, are they clean, do they teach what the package does."""

import ast
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch

import revisions
from d2lpar import RankGroup, data
from try_install import copy_package

ROOT = Path(__file__).parents[1]
NOTEBOOKS = revisions.tracked_notebooks(ROOT)
CHAPTERS = [path for path in NOTEBOOKS if path.parent.name == "notebooks"]
TAGS = re.compile(r"nbval-ignore-output|nbval-skip|raises-exception|predict(-opening)?|hide-input|hide-output|remove-cell|"
                  r"(taught|hint|explains):\w+|(exercise|check):[\w-]+")
WIDTH = 88  # columns of code and output for which a page has room; test_browser.py measures it
CHAPTER, EXERCISE, PARTS = (f"(book/authors.md, {section})" for section in ("Add a chapter", "Add an exercise", "The parts of a chapter"))
TAGGED = "(book/authors.md, The tags of cells)"


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "book" / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sync_cells, export_script, run_notebooks = tool("sync_cells"), tool("export_script"), tool("run_notebooks")


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook, prefix):
    return {tag.removeprefix(prefix): cell for cell in code_cells(notebook) for tag in cell.metadata.get("tags", [])
            if tag.startswith(prefix)}


every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
every_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


@every_notebook
def test_taught_cells_hold_exactly_the_text_of_the_package(path):
    for cell, text in sync_cells.taught_cells(read(path)):
        assert cell.source == text, (
            "Make the change in d2lpar/ (right), not in the cell (left), then run: python book/tools/sync_cells.py (book/authors.md, Change a function)")


def test_no_function_is_taught_in_two_chapters():
    counts = Counter(text for path in NOTEBOOKS for _, text in sync_cells.taught_cells(read(path)))
    assert [text for text, count in counts.items() if count > 1 and re.match(r"@|def |class ", text)] == [], (
        "Show this in one chapter, and import it in the others (book/authors.md, The rules)")


@every_notebook
def test_no_cell_imports_the_package_by_other_names(path):
    first, *others = code_cells(read(path))
    assert first.source.count("from d2lpar import") <= 1, f"Join the lines `from d2lpar import` of the first cell {CHAPTER}"
    assert re.findall(r"\bcheck_\w+", first.source) == [], f"Do not import checks: the cells leave them out {CHAPTER}"
    named = [line for cell in (first, *others) for line in cell.source.splitlines() if re.match(r"\s*import d2lpar", line)]
    every = "\n".join(cell.source for cell in (first, *others))
    assert sorted(named) == [line for line, name in (("import d2lpar as dp", "dp"), ("import d2lpar.pages as book", "book"))
                             if re.search(rf"(?<!\w){name}\.", every)], (
        f"Import the package once, and only if it is used: `import d2lpar as dp`, `import d2lpar.pages as book` {CHAPTER}")
    # the second one stands there too, or in the first cell that needs it
    assert named[:1] == [line for line in first.source.splitlines() if line in named][:1], f"Move the first import of the package into the first cell {CHAPTER}"


@every_notebook
def test_the_notebook_was_run_once_from_top_to_bottom(path):
    notebook = read(path)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), f"Run: python book/tools/run_notebooks.py {path.stem} {CHAPTER}"


@every_notebook
def test_errors_stand_only_where_they_are_taught(path):
    for cell in code_cells(read(path)):
        fails = any(output.output_type == "error" for output in cell.outputs)
        assert fails == ("raises-exception" in cell.metadata.get("tags", [])), (
            f"Give the tag raises-exception to a cell that is meant to fail, and only to such a cell {TAGGED}:\n{cell.source}")


@every_notebook
def test_nothing_is_stored_that_belongs_to_one_run_or_one_machine(path):
    notebook = read(path)
    again = f"Store the outputs with: python book/tools/run_notebooks.py {path.stem} {CHAPTER}"
    assert "widgets" not in notebook.metadata, again
    assert [cell.source for cell in notebook.cells if "execution" in cell.metadata] == [], f"Timestamps are stored. {again}"
    text = path.read_text("utf-8")
    assert [found[0] for found in re.finditer(r".{0,40}(?:/(home|root|tmp|work|Users)/|[A-Z]:\\\\Users|site-packages).{0,40}", text)] == [], (
        "Print no path of this machine, and run the notebook again (book/authors.md, The rules)")
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.get("name") != "stderr", f"Prevent this warning, which is stored. {again}:\n{output.get('text')}"
            assert "\r" not in output.get("text", ""), f"The remains of a progress bar are stored. {again}"


@every_notebook
def test_tags_are_from_the_list(path):
    tags = [tag for cell in read(path).cells for tag in cell.metadata.get("tags", [])]
    assert [tag for tag in tags if not TAGS.fullmatch(tag)] == [], f"Use only tags from the list {TAGGED}"


def test_a_cell_is_skipped_only_if_a_weekly_test_does_the_same(notebooks: list[Path]) -> None:
    skipped = [(path.stem, "two_deaths" in cell.source) for path in notebooks
               for cell in code_cells(read(path)) if "nbval-skip" in cell.metadata.get("tags", [])]
    assert skipped == [("18_cluster_in_a_laptop", True)], f"Add a weekly test that does what the skipped cell does, and name it in this test {TAGGED}"
    assert re.search(r"@pytest.mark.weekly.*\n.*PowerOff.*\ndef test_\w+_the_run_ends_with_the_same_bits",
                     (ROOT / "tests" / "test_cluster.py").read_text("utf8"))


@every_notebook
def test_what_is_folded_on_the_site_is_folded_in_jupyterlab(path):
    for cell in code_cells(read(path)):
        folded = {f"{part}_hidden": True for part, tag in (("source", "hide-input"), ("outputs", "hide-output"))
                  if tag in cell.metadata.get("tags", [])}
        assert cell.metadata.get("jupyter", {}) == folded, (
            f"Fold the cell (hide-input, hide-output) by its tags; run_notebooks.py does the rest {TAGGED}:\n{cell.source}")


@every_chapter
def test_every_chapter_has_a_figure(path):
    assert "image/svg+xml" in path.read_text("utf-8"), f"Add a figure {PARTS}"


@every_notebook
def test_every_picture_has_words_and_a_caption(path):
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            if "image/svg+xml" in output.get("data", {}):
                alt = output.metadata.get("image/svg+xml", {}).get("alt", "")
                assert len(alt) > 40, f"Say in words what the figure of this cell shows, as the functions of d2lpar.pages.plot do {PARTS}:\n{cell.source}"
                caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
                assert caption.endswith("."), f"Write a caption, which ends in a full stop, into the metadata of this cell {PARTS}:\n{cell.source}"
            assert "image/png" not in output.get("data", {}), f"Draw the figure of this cell as SVG, with d2lpar.pages.plot {PARTS}:\n{cell.source}"


FENCED = r"^```\w+\n(.*?)^```$"


def shown_lines(cell):
    """The lines of code and of text that stand in a cell's boxes."""
    if cell.cell_type == "markdown":
        texts = re.findall(FENCED, cell.source, re.MULTILINE | re.DOTALL)
    else:
        texts = [cell.source]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            texts += [output.get("text", ""), "\n".join(output.get("traceback", []))]
            texts += re.findall(FENCED, data.get("text/markdown", ""), re.MULTILINE | re.DOTALL)
            texts += [data.get("text/plain", "")] if set(data) == {"text/plain"} else []
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(texts)).splitlines()


@every_notebook
def test_no_line_of_code_or_output_is_too_long_for_the_page(path):
    shown = [line for cell in read(path).cells for line in shown_lines(cell)]
    assert shown
    assert [line for line in shown if len(line) > WIDTH] == [], f"Shorten these lines to {WIDTH} characters (book/authors.md, How long a chapter is)"


@every_notebook
def test_the_pages_were_made_from_the_images_that_come_with_the_package(path):
    stored = read(path).metadata.get("d2lpar", {}).get("data")
    assert stored == data.provenance(data.NUM_TRAIN, data.NUM_TEST), f"Run: python book/tools/run_notebooks.py {path.stem} {CHAPTER}"


def test_normalising_takes_out_progress_bars_and_times():
    cell = nbformat.v4.new_code_cell("1", outputs=[
        nbformat.v4.new_output("stream", text="\r 0%|   |\r50%|## |\r          \repoch 1\n"),
        nbformat.v4.new_output("stream", text="\r 0%|   |\r      \r"),
    ], metadata={"execution": {"iopub.status.busy": "2026"}})
    notebook = nbformat.v4.new_notebook(cells=[cell])
    run_notebooks.normalise(notebook, {"source": "Fashion-MNIST"})
    assert [output.text for output in cell.outputs] == ["epoch 1\n"]
    assert "execution" not in cell.metadata and notebook.metadata.d2lpar.data.source == "Fashion-MNIST"


@pytest.mark.parametrize("before, after, tags, found", [
    ("0.68 in 3 s", "0.68 in 3 s", ["nbval-ignore-output"], None),
    ("0.68 in 3 s", "0.70 in 3 s", [], "0.68"),
    ("0.68 in 3 s", "0.70 in 3 s", ["nbval-ignore-output"], "0.68, twice, faster"),
    ("0.68 in 3 s", "0.68 in 4 s", ["nbval-ignore-output"], "3, twice, faster"),
    ("1,684 and 30.68", "nothing", [], None),
], ids=["unchanged", "compared", "not compared", "a whole number", "part of a number"])
def test_prose_below_a_changed_output_is_listed_up_to_the_next_code_cell(before, after, tags, found):
    def notebook(printed):
        return nbformat.v4.new_notebook(cells=[
            nbformat.v4.new_markdown_cell("0.68 was expected.", id="above"),
            nbformat.v4.new_code_cell("run()", id="run", metadata={"tags": tags},
                                      outputs=[nbformat.v4.new_output("stream", text=printed)]),
            nbformat.v4.new_markdown_cell("It gets 0.68, twice, in epoch 3.", id="below"),
            nbformat.v4.new_markdown_cell("That is faster than 68 or 0.6.", id="still-below"),
            nbformat.v4.new_code_cell("1 + 1", id="next"),
            nbformat.v4.new_markdown_cell("0.68 is half of 1.36.", id="far"),
        ])

    lines = run_notebooks.doubtful_prose(notebook(before), notebook(after))
    assert [line.partition("? ")[2] for line in lines] == ([found] if found else [])
    assert all(line.startswith("cell [1]:") for line in lines)


def test_prose_below_a_changed_figure_is_listed():
    def notebook(alt):
        shown = nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg>", "text/plain": "<Figure>"},
                                       metadata={"image/svg+xml": {"alt": alt}})
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("draw()", id="draw", outputs=[shown]),
                                               nbformat.v4.new_markdown_cell("It ends at 42%.", id="below")])

    [line] = run_notebooks.doubtful_prose(notebook("A curve, from 10% to 42%."), notebook("A curve, from 10% to 43%."))
    assert line.endswith("? 42%")


@cache
def definitions(source, taught):
    """The code of a taught cell; of other cells, that of their imports."""
    lines = ast.parse(re.sub(r"^[%!].*", "", source, flags=re.M)).body
    return compile(ast.Module([line for line in lines if taught or isinstance(line, (ast.Import, ast.ImportFrom))], []), "", "exec")


def namespace_of(notebook):
    """What the imports and the taught cells define, without running the chapter."""
    names = {"__name__": "__main__"}
    for cell in code_cells(notebook):
        exec(definitions(cell.source, any(tag.startswith("taught:") for tag in cell.metadata.get("tags", []))), names)
    return names


def solutions(notebook):
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return dict(re.findall(r"````\{solution\} ([\w-]+)\n.*?```python\n(.*?)```", text, re.DOTALL))


@pytest.fixture(scope="module")
def kept_ranks():
    """The checks that start ranks get the same ranks each time."""
    groups = {}

    def kept(k, backend):
        return contextlib.nullcontext(groups.setdefault((k, backend), RankGroup(k, backend)))

    with pytest.MonkeyPatch.context() as patch:
        for place in ("diagnosis.compare", "pages.exercises.ex_slip_through"):
            patch.setattr(f"d2lpar.{place}.RankGroup", kept)
        patch.setattr("torch.cuda.device_count", lambda: 0)  # with too few GPUs, the first line printed would say so
        yield
    for group in groups.values():
        group.close()


@pytest.mark.usefixtures("kept_ranks")
@every_notebook
def test_the_check_of_every_exercise_refuses_the_stub_and_accepts_the_solution(path):
    notebook = read(path)
    stubs, checks, solved = tagged(notebook, "exercise:"), tagged(notebook, "check:"), solutions(notebook)
    for part, labels in (("a cell tagged exercise:LABEL", stubs), ("a cell tagged check:LABEL", checks), ("a {solution} with a block of Python", solved)):
        lacking = {*stubs, *checks, *solved} - {*labels}
        assert lacking == set(), f"Add {part} to each of these exercises {EXERCISE}"
    assert stubs or path not in CHAPTERS, f"Add an exercise to {path.name} {EXERCISE}"
    for name, stub in stubs.items():
        verdicts = []
        for source in (stub.source, solved[name]):
            names = namespace_of(notebook)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(source, names)
                exec(checks[name].source, names)
            verdicts.append(printed.getvalue())
        assert verdicts[0][:9] == "Not yet: ", f"Make the check of {name} reject the stub {EXERCISE}"
        assert verdicts[1] == "Right.\n", f"{name}: let the check accept the solution {EXERCISE}"


def name_of(statement):
    """What a statement defines; imports, and what the answers share, have no name without an underscore."""
    return statement.targets[0].id if isinstance(statement, ast.Assign) else getattr(statement, "name", "_")


WRONG_ANSWERS = [(file, name) for file in sorted((ROOT / "tests" / "wrong_answers").glob("*.py"))
                 for name in map(name_of, ast.parse(file.read_text("utf-8")).body) if not name.startswith("_")]


def case(label, *values):
    """A case of an exercise, among the slow ones where its check starts ranks."""
    return pytest.param(*values, marks=[pytest.mark.slow] * (label in ("ex-count-words", "ex-slip-through")))


@cache
def exercises():
    """For each label the chapter of the exercise, and the cell that checks an answer."""
    return {label: (notebook, cell) for notebook in map(read, NOTEBOOKS)
            for label, cell in tagged(notebook, "check:").items()}


def answer_to(check):
    """The name that a reader gives her answer."""
    found = re.fullmatch(r'book\.check\("[\w-]+", (\w+)\)', check.source)
    assert found, f"Leave in the cell of the check only the line book.check(\"LABEL\", answer) {EXERCISE}:\n{check.source}"
    return found[1]


def test_every_exercise_has_wrong_answers_and_every_wrong_answer_has_an_exercise():
    answered = {file.stem for file, _ in WRONG_ANSWERS}
    assert set(exercises()) - answered == set(), f"For each of these, write a wrong answer in tests/wrong_answers/LABEL.py {EXERCISE}"
    assert answered - set(exercises()) == set(), f"Name these files in tests/wrong_answers/ after the label of an exercise, or delete them {EXERCISE}"
    assert [answer for answer, count in Counter(WRONG_ANSWERS).items() if count > 1] == [], f"Give each wrong answer a name of its own {EXERCISE}"


@pytest.mark.usefixtures("kept_ranks")
@pytest.mark.parametrize("file, wrong", [case(file.stem, file, wrong) for file, wrong in WRONG_ANSWERS], ids=[f"{file.stem}, {wrong}" for file, wrong in WRONG_ANSWERS])
def test_the_check_of_an_exercise_says_what_is_wrong_with_a_plausible_mistake(file, wrong):
    notebook, check = exercises()[file.stem]
    names = namespace_of(notebook)
    cell = [statement for statement in ast.parse(file.read_text("utf-8")).body if name_of(statement).startswith("_") or name_of(statement) == wrong]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(cell, []), str(file), "exec"), names)
        names[answer_to(check)] = names.pop(wrong)
        exec(check.source, names)
    assert printed.getvalue()[:9] == "Not yet: ", f"Make the check reject {wrong}, in tests/wrong_answers/{file.name} {EXERCISE}"


def raises(*_, **__):
    raise RuntimeError("no idea yet")


WRONG_TYPES = {"raises": raises, "is not a function": 3, "takes no argument": lambda: 1, **{
    f"gives {value!r}": lambda *_, value=value, **__: value
    for value in (None, True, -1, float("nan"), float("inf"), "3", object(), [], [None], [[1.0]], {}, torch.zeros(2), torch.full((), float("nan")))}}


@pytest.mark.usefixtures("kept_ranks")
@pytest.mark.parametrize("label", [case(label, label) for label in sorted(exercises())])
def test_the_check_of_an_exercise_refuses_in_words_what_raises_or_has_a_wrong_type(label):
    notebook, check = exercises()[label]
    for what, wrong in WRONG_TYPES.items():
        names = namespace_of(notebook)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(check.source, {**names, answer_to(check): wrong})
        assert printed.getvalue()[:9] == "Not yet: ", f"{label}: let the check refuse, in words, an answer that {what} {EXERCISE}"


AS_A_READER = """
import runpy, sys
sys.modules["vl_convert"] = None  # only those who build the site have it
import d2lpar; print("d2lpar is at", d2lpar.__file__)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder with the package as its wheel has it, and nothing of the checkout."""
    source, folder = copy_package(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index",
                    "--target", folder, source], check=True, capture_output=True)
    assert {file.name for file in folder.iterdir() if file.suffix != ".dist-info"} == {"d2lpar"}
    return folder


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(installed):
    tracked = [file.relative_to(ROOT) for file in revisions.tracked(ROOT) if file.is_relative_to(ROOT / "d2lpar")]
    assert len(tracked) > 100
    assert [file for file in tracked if not (installed / file).exists()] == [], (
        "Name the folder of these files in `packages` or `package-data` in pyproject.toml (book/authors.md, Where things are)")


# One on devices, one with processes; the others are run by nbval, and compiled.
SCRIPTS = [path for path in NOTEBOOKS if path.stem[:2] in ("03", "09")]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_of_a_chapter_runs_where_only_the_wheel_is_installed(path, installed, tmp_path):
    script = tmp_path / f"{path.stem}.py"
    script.write_text(export_script.script_of(path), "utf-8")
    run = subprocess.run([sys.executable, "-c", AS_A_READER, script], cwd=tmp_path, capture_output=True, text=True,
                         env={**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": str(installed)}, timeout=550)
    assert run.returncode == 0, run.stderr
    assert f"d2lpar is at {installed}" in run.stdout
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            if output.output_type == "error":
                assert f"{output.ename}: {output.evalue}" in run.stdout, "the script goes on after a cell that must fail"
    assert verdicts(run.stdout) == verdicts(stored_text(path)) != []


def stored_text(path):
    """What the cells have printed."""
    return "".join(output.get("text", "") for cell in code_cells(read(path)) for output in cell.outputs)


def verdicts(text):
    """The lines in which a chapter says whether a claim holds."""
    return [line for line in text.splitlines() if re.search(r": (True|False)$", line)]
