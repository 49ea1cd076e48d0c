"""The files around the book: what they promise is there, and what must not be in them is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from revisions import tracked

MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home/[a-z]\w*|Users/[A-Za-z]\w*)/")
REGISTRY = re.compile(r"\b(?:test\.)?pypi\.(?:org|python)|pythonhosted\.org|download\.pytorch\.org|registry\.npmjs", re.I)


def texts(root: Path) -> dict[str, str]:
    """Every file of the book that is text, by name."""
    found = {}
    for file in tracked(root):
        if b"\0" not in (data := file.read_bytes()):  # else a picture
            found[file.relative_to(root).as_posix()] = data.decode("utf8")
    return found


def commands(text: str) -> list[str]:
    """The lines of the fenced shell blocks."""
    blocks = re.findall(r"^```(?:bash|powershell)\n(.*?)^```", text, re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("#")]


def targets(root: Path) -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.M)
    return set(phony[1].split())


TREE, TOOLS = "(book/authors.md, Where things are)", "(book/authors.md, The tools)"


@pytest.mark.parametrize("pattern", [MACHINE, REGISTRY], ids=["a path of a machine", "a package registry"])
def test_no_file_names(pattern: re.Pattern, root: Path) -> None:
    found = {name: hits for name, text in texts(root).items() if (hits := pattern.findall(text))}
    found.pop("tests/test_project.py", None)  # its patterns
    assert found == {}, "Take the path of a machine or the address of a registry out of these files (book/authors.md, The rules)"


def test_the_requirements_install_all_and_pin_what_stored_outputs_and_pages_depend_on(root: Path) -> None:
    *exact, book = [line for line in (root / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf8"))["project"]
    extras = project["optional-dependencies"]
    assert book == f"-e .[{','.join(extras)}]", f"Name every extra of pyproject.toml in the last line of requirements.txt {TREE}"
    named = [*exact, *(line for lines in extras.values() for line in lines)]
    pinned = {line.split("==")[0] for line in named if "==" in line}
    assert {"torch", "torchvision", "d2l", "matplotlib", "jupyter-book", "sphinx-book-theme", "jupyterlab",
            "jupyterlab-myst", "nbval", "pytest", "ruff", "pyrefly"} - pinned == set(), f"Give each of these an exact version {TREE}"
    assert {"d2l", "vl-convert-python"} & {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]} == set(), (
        f"Move these from `dependencies` to an extra {TREE}")


def test_make_installs_again_only_for_a_choice_of_pytorch_that_is_new(root: Path, tmp_path: Path) -> None:
    """What install.py then does is the subject of test_install.py."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for program, says in (("pip", ""), ("python", "install.py) shift; echo installs with $@; test ! -e fail || exit 1"), ("jupyter-book", "")):
        (tmp_path / ".venv" / "bin" / program).write_text(f'#!/bin/sh\ncase "$1" in *{says or ")"};; esac\n')
        (tmp_path / ".venv" / "bin" / program).chmod(0o755)
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)

    def installs(*words: str) -> list[str]:
        said = subprocess.run(["make", "book", f"PYTHON={sys.executable}", *words], cwd=tmp_path, capture_output=True, text=True).stdout
        return re.findall("^installs with (.*)", said, re.M)

    assert installs("PIP_EXTRA=--no-index -v") == ["--torch= --no-index -v"]
    assert installs() == []
    assert installs("TORCH=cpu") == ["--torch=cpu"] and installs("TORCH=cpu") == installs() == []
    assert installs("TORCH=../my wheels/a") == ["--torch=../my wheels/a"] and installs("TORCH=../my wheels/a") == []
    assert installs("TORCH=wheels/a") == ["--torch=wheels/a"]
    (tmp_path / "fail").touch()
    assert installs("TORCH=cuda") == ["--torch=cuda"]
    (tmp_path / "fail").unlink()
    assert installs() == ["--torch=wheels/a"], "what failed is not taken for done, and the last choice that worked is kept"
    assert installs("TORCH=") == ["--torch="] and installs("TORCH=") == installs() == []
    os.utime(tmp_path / "pyproject.toml", (time.time() + 9, time.time() + 9))
    assert installs() == ["--torch="]


def test_make_alone_lists_every_target(root: Path) -> None:
    listed = subprocess.run(["make", "-s"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert targets(root) == set(re.findall(r"^make ([a-z-]+) +\S", listed, re.M)), (
        f"Name each target of the Makefile in .PHONY (left), and say after `##` what it does (right) {TOOLS}")
    assert targets(root) >= {"help", "book", "test", "lab", "edit", "run", "diff", "gpu-report", "clean"}


def test_the_plain_commands_are_those_of_the_makefile(root: Path) -> None:
    makefile = (root / "Makefile").read_text()
    lines = commands((root / "book" / "setup.md").read_text("utf8"))
    for command in ("jupyter-book build . -W -n --keep-going", "pytest --nbval"):
        assert command in lines and f".venv/bin/{command}" in makefile, f"Write `{command}` both in book/setup.md and in the Makefile {TOOLS}"


def test_links_of_the_readme_lead_to_files(root: Path) -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", (root / "README.md").read_text("utf8"))
    assert [link for link in linked if "://" not in link and not (root / link).exists()] == [], "Fix these links in README.md (book/authors.md, Fix a typo)"


@pytest.mark.parametrize("python, said", [
    ("import sys; sys.version_info = (3, 10, 14); exec(sys.argv[1])", "Python 3.10"),
    ("import sys; sys.version_info = (3, 15, 0); exec(sys.argv[1])", "Python 3.15"),
    ("import sys, pip; pip.__version__ = '20.1.1'; exec(sys.argv[1])", "pip 20.1.1"),
    ("import sys; sys.modules['pip'] = None; exec(sys.argv[1])", "has no pip"),
    (None, "does not run"),
], ids=["an old Python", "a new Python", "an old pip", "no pip", "a Python that is gone"])
def test_make_book_says_in_one_line_what_is_wrong_with_the_environment(python: str | None, said: str, root: Path,
                                                                       tmp_path: Path) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pip").write_text("#!/bin/sh\n")
    (programs / "pip").chmod(0o755)
    if python is None:
        (programs / "python").symlink_to("/no/such/python")
    else:
        (tmp_path / "python.py").write_text(f"import sys; sys.argv[1:] = sys.argv[2:]\n{python}\n")
        # not `#!{sys.executable}`, whose path may hold a space
        (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/python.py" "$@"\n')
        (programs / "python").chmod(0o755)
    error = make_in_a_copy(root, tmp_path, f"PYTHON={sys.executable}")
    assert len(error) == 1, error
    assert said in error[0] and ".venv" in error[0] and "network" not in error[0]


@pytest.mark.parametrize("found", ["3.10", "3.15", "no-such-python"])
def test_make_book_says_in_one_line_which_python_it_found_and_which_it_needs(found: str, root: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
exec python3 -c "import sys; sys.version_info = ({found.replace('.', ', ')}, 0); exec(sys.argv[1])" "$2"
""")
    python.chmod(0o755)
    error = make_in_a_copy(root, tmp_path, f"PYTHON={python if found[0] == '3' else found}")
    assert len(error) == 1 and not (tmp_path / ".venv").exists()
    assert "3.11 to 3.14" in error[0] and found in error[0]


@pytest.mark.parametrize("target", ["book", "test", "lab"])
@pytest.mark.parametrize("fault", ["moved", "upgraded"])
def test_a_clone_that_was_moved_or_whose_python_was_upgraded_is_told_so_in_one_line(
        target: str, fault: str, root: Path, tmp_path: Path) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable if fault == "moved" else "/no/such/python")
    (programs / "pip").touch()
    (tmp_path / ".venv" / "installed").write_text("/elsewhere\n" if fault == "moved" else f"{tmp_path}\n")
    error = make_in_a_copy(root, tmp_path, target=target)
    assert len(error) == 1 and "moved or copied, or its Python was upgraded" in error[0] and "Delete .venv" in error[0]


def test_a_folder_in_which_jupyter_book_cannot_build_is_named_in_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "[2024] a book").mkdir()
    [error] = make_in_a_copy(root, tmp_path / "[2024] a book")
    assert "Rename the folder" in error and "[2024] a book" in error


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_without_a_browser_the_last_line_says_how_many_tests_were_not_run(processes: str, root: Path, tmp_path: Path) -> None:
    for name in ("conftest.py", "pyproject.toml", "tests/conftest.py", "tests/helpers/ports.py", "tests/nbval_sanitize.cfg",
                 "book/tools/revisions.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "tests" / "test_two.py").write_text("def test_one(browser):\n    pass\n\ndef test_two(browser):\n    pass\n")
    run = subprocess.run([sys.executable, "-m", "pytest", "-n", processes, "-p", "no:cacheprovider", "tests"], cwd=tmp_path,
                         env={**os.environ, "PATH": str(tmp_path / "empty")}, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout.endswith("\n2 browser tests NOT run: no Chromium\n"), run.stdout + run.stderr


@pytest.mark.slow
def test_pytest_passes_where_it_cannot_keep_its_cache(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(root / "pyproject.toml", tmp_path)
    shutil.copy(root / "tests" / "nbval_sanitize.cfg", tmp_path / "tests")
    (tmp_path / "tests" / "test_one.py").write_text("def test_one():\n    pass\n")
    (tmp_path / ".pytest_cache").touch()  # nobody can write below a file, as in a checkout that is read-only
    run = subprocess.run([sys.executable, "-m", "pytest", "-n", "0"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and "1 passed in" in run.stdout, run.stdout + run.stderr


def make_in_a_copy(root: Path, folder: Path, *arguments: str, target: str = "book") -> list[str]:
    """What make prints, without make's own lines, in a folder where it cannot install anything."""
    stamp = folder / ".venv" / "installed"
    before = stamp.exists()
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        (folder / name).write_text((root / name).read_text())
    done = subprocess.run(["make", target, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode != 0 and stamp.exists() == before
    return [line for line in (done.stdout + done.stderr).splitlines() if not re.match(r"make(\[\d+\])?: ", line)]


@pytest.mark.parametrize("what, asked_for", [("site", r"site: Path|pages: list"), ("ranks", "group_of")])
def test_all_tests_that_share_something_costly_run_in_one_process_so_that_it_is_made_once(what: str, asked_for: str, root: Path) -> None:
    sharing = {path.stem.removeprefix("test_") for path in root.glob("tests/test_*.py")
               if re.search(rf"^def \w+\([^)]*\b({asked_for})", path.read_text("utf8"), re.M)}
    named = re.search(rf'^TOGETHER = {{(?:.*\n){{0,2}}.*"{what}": "(.*?)"', (root / "conftest.py").read_text("utf8"), re.M)
    assert named and sharing
    assert sharing - set(named[1].split()) == set(), f"Add these test files to `{what}` in TOGETHER in conftest.py {TREE}"
