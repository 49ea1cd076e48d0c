"""What users have set for matplotlib, IPython, Python and the book changes neither a figure nor the verdict of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook, new_output

MATPLOTLIBRC = """\
figure.dpi: 60
figure.autolayout: True
figure.figsize: 3, 3
savefig.bbox: tight
savefig.pad_inches: 1
axes.xmargin: 0.3
text.usetex: True
font.family: monospace
"""
IPYTHON_CONFIG = """\
c.InlineBackend.rc = {"figure.dpi": 200, "axes.ymargin": 0.4}
c.InlineBackend.figure_formats = {"retina"}
c.InlineBackend.print_figure_kwargs = {"bbox_inches": None, "facecolor": "red"}
c.InlineBackend.close_figures = False
c.PlainTextFormatter.float_precision = "%.2f"
"""
VARIABLES = ("MPLCONFIGDIR", "IPYTHONDIR", "MATPLOTLIBRC", "MPLBACKEND", "PYTHONSTARTUP", "PYTHONPATH", "PYTEST_PLUGINS",
             "PIP_USER", "JUPYTER_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of somebody who has set a lot."""
    home = tmp_path / "home"
    for name, text in {".config/matplotlib/matplotlibrc": MATPLOTLIBRC, "matplotlibrc": MATPLOTLIBRC,
                       ".ipython/profile_default/ipython_config.py": IPYTHON_CONFIG,
                       ".ipython/profile_default/startup/00.py": "print('hello')",
                       "startup.py": "print('hello')"}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment of this user, without what the tests have set themselves."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES} | {"HOME": str(home)} | variables


FIGURES = """\
from matplotlib import pyplot as plt
from d2lpar.pages.plot import draw_curves, show, use_book_style
use_book_style()
show(draw_curves({"1 device": [0.1, 0.5, 0.7], "2 devices": [0.1, 0.4, 0.8]}, "epoch", "test accuracy"))
plt.plot([1, 3, 2])
plt.show()
"""


@pytest.mark.slow
def test_the_book_style_draws_the_same_whatever_the_reader_has_set(home: Path, tmp_path: Path) -> None:
    def figures(home: Path) -> list[str]:
        notebook = new_notebook(cells=[new_code_cell(FIGURES), new_code_cell("plt.get_fignums()")])
        NotebookClient(notebook, kernel_name="python3", timeout=120).execute(env=environment(home))
        *shown, numbers = [output.data for cell in notebook.cells for output in cell.outputs if "data" in output]
        assert numbers["text/plain"] == "[]", "figures of one cell are left to the next"
        return [data["image/svg+xml"] for data in shown]

    (tmp_path / "plain").mkdir()
    plain = figures(tmp_path / "plain")
    assert len(plain) == 2 and figures(home) == plain


@pytest.fixture
def book(root: Path, tmp_path: Path) -> Path:
    """A book of one notebook, with the settings of ours."""
    book = tmp_path / "book"
    (book / "tests" / "helpers").mkdir(parents=True)
    (book / "book" / "tools").mkdir(parents=True)
    for name in ("conftest.py", "pyproject.toml", "tests/helpers/ports.py", "tests/nbval_sanitize.cfg",
                 "book/tools/revisions.py"):
        shutil.copy(root / name, book / name)
    cells = [new_code_cell("1 / 3", execution_count=1, outputs=[new_output("execute_result", {"text/plain": "0.3333333333333333"})]),
             new_code_cell("import matplotlib\nfrom matplotlib import pyplot as plt\n"
                           "print(matplotlib.rcParams['figure.dpi'], 'inline' in matplotlib.get_backend())", execution_count=2,
                           outputs=[new_output("stream", name="stdout", text="100.0 True\n")]),
             new_code_cell(ENVIRONMENT, execution_count=3, outputs=[new_output("stream", name="stdout", text="[]\n")])]
    (book / "notebooks").mkdir()
    nbformat.write(new_notebook(cells=cells), book / "notebooks" / "01_one.ipynb")
    return book


ENVIRONMENT = """\
import os
print([name for name in os.environ if name.startswith("D2LPAR") or name.lower().endswith("_proxy")
       or "older" in os.environ[name]])
"""


def nbval(book: Path, env: dict[str, str], *arguments: str) -> str:
    run = subprocess.run([sys.executable, "-m", "pytest", "--nbval", "-n", "0", "-p", "no:cacheprovider", *arguments], cwd=book, env=env,
                         capture_output=True, text=True, timeout=120)
    return run.stdout + run.stderr


@pytest.mark.slow
def test_pytest_runs_the_notebooks_without_the_readers_settings_and_one_of_her_own_only_where_she_names_it(home: Path, book: Path) -> None:
    env = environment(home, MATPLOTLIBRC=str(home), MPLBACKEND="agg", PYTHONSTARTUP=str(home / "startup.py"),
                      D2LPAR_FULL="1", D2LPAR_DATA="nowhere", http_proxy="http://127.0.0.1:9", ALL_PROXY="socks5://127.0.0.1:9",
                      PYTHONPATH=str(home / "older"))
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=book, check=True)
    nbformat.write(new_notebook(cells=[new_code_cell("1 / 0", execution_count=1)]), book / "notebooks" / "Untitled.ipynb")
    said = nbval(book, env)
    assert "3 passed" in said and "failed" not in said, said
    said = nbval(book, env, "notebooks/01_one.ipynb", "notebooks/Untitled.ipynb")
    assert "3 passed" in said and "1 failed" in said, said


LEAVES = """\
import multiprocessing.util, os, pathlib, signal, tempfile
from hypothesis import configuration

def test_leaves(tmp_path):
    (tmp_path / "file").touch()
    tempfile.mkdtemp()
    multiprocessing.util.get_temp_dir()
    configuration.storage_directory("some").create_if_missing()
    pathlib.Path(os.environ["REACHED"]).touch()
    {}
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes, last, said", [
    ("1", "assert False", "1 failed, 1 passed"), ("0", "os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt")], ids=["fails", "is interrupted"])
def test_nothing_is_left_in_the_folder_for_temporary_files(home: Path, book: Path, root: Path, tmp_path: Path, ctrl_c_is_obeyed: None,
                                                           processes: str, last: str, said: str) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    shutil.copy(root / "tests" / "conftest.py", book / "tests")
    (book / "tests" / "test_leaves.py").write_text(LEAVES.format(last))
    cell = f"import tempfile\ntempfile.mkdtemp().startswith({str(temporary)!r})"
    output = new_output("execute_result", {"text/plain": "True"})
    nbformat.write(new_notebook(cells=[new_code_cell(cell, execution_count=1, outputs=[output])]), book / "notebooks" / "01_one.ipynb")
    env = environment(home, TMPDIR=str(temporary), REACHED=str(tmp_path / "reached"))
    ended = nbval(book, env, "-n", processes, "notebooks/01_one.ipynb", "tests/test_leaves.py")
    assert said in ended and "Traceback" not in ended and (tmp_path / "reached").exists(), ended
    assert list(temporary.iterdir()) == [], ended


@pytest.mark.parametrize("target, program", [("test", "pytest"), ("run", "python"), ("lab", "jupyter"), ("edit", "jupyter"),
                                             ("book", "jupyter-book")])
def test_make_keeps_the_readers_settings_out(target: str, program: str, root: Path, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a book"
    (folder / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(root / "Makefile", folder)
    for name in ("python", program):  # python also makes the copy for `make lab`
        (folder / ".venv" / "bin" / name).write_text(f'#!/bin/sh\nenv > "{tmp_path}/env"\n')
        (folder / ".venv" / "bin" / name).chmod(0o755)
    env = environment(home, MATPLOTLIBRC=str(home), MPLBACKEND="agg", PYTHONSTARTUP="x", MPLCONFIGDIR="x", IPYTHONDIR="x",
                      PYTHONPATH="x", PYTEST_PLUGINS="x", PIP_USER="1")
    subprocess.run(["make", "-o", ".venv/installed", "-o", "usable", target], cwd=folder, env=env, check=True, capture_output=True)
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    settings = folder / ".venv" / "settings"
    assert {name: seen[name] for name in VARIABLES[:8] if name in seen} == {
        "MPLCONFIGDIR": str(settings / "matplotlib"), "IPYTHONDIR": str(settings / "ipython")}
