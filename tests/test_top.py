"""Tests of the top of the package: it loads at once, every name is found, and what people are told to type works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import torch
import yaml

import d2lpar
from d2lpar.checks import OLDEST_TORCH, _refuse_old_torch
from revisions import tracked

TORCH, TOOLS, RENAME = (f"(book/authors.md, {section})" for section in ("Upgrade PyTorch", "The tools", "Change a function"))

SLOW_TO_LOAD = {"matplotlib", "d2l", "torchvision", "pandas", "torch._dynamo", "IPython"}
LOADED = "import torch, sys; before = set(sys.modules); import d2lpar; print(*(set(sys.modules) - before))"


@pytest.mark.slow
def test_the_package_loads_little_more_than_pytorch_does() -> None:
    run = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    inside = "Import these inside the function that needs them, so that `import d2lpar` is quick (book/authors.md, The rules)"
    assert "d2lpar.scratch" in loaded
    assert SLOW_TO_LOAD & loaded == set(), inside
    assert {name for name in loaded if re.match(r"d2lpar\.(diagnosis|cluster|pages)\b", name)} == set(), inside
    assert len(more := sorted(name for name in loaded if not name.startswith("d2lpar"))) <= 60, f"{inside}: {more}"


BLOCKED = """\
import sys
sys.modules.update(dict.fromkeys(("matplotlib", "torchvision", "tabulate", "psutil", "d2l")))
"""


@pytest.fixture
def core_alone(root: Path, tmp_path: Path) -> Callable[..., str]:
    """Run Python with these words where only the core's requirements can be imported; what it prints."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)  # for ranks too
    blocked = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=blocked, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with pytest.raises(AssertionError, match="ModuleNotFoundError"):
        run("-c", "import torchvision")
    return run


@pytest.mark.slow
def test_the_examples_of_the_readme_and_the_script_need_the_core_alone(root: Path, tmp_path: Path, core_alone: Callable[..., str]) -> None:
    readme = (root / "README.md").read_text("utf8")
    [printed] = re.findall(r"^```text\n(.*?)^```", readme, re.M | re.S)
    shutil.copy(root / "d2lpar" / "pages" / "stored" / "ring.py", tmp_path)
    both = core_alone("-c", "import d2lpar as dp; print(dp.watch(['ring.py'])); dp.train(2, 64, 0.1, 1, num_train=128)")
    assert both.startswith(f"{printed}Fashion-MNIST, 128 training")
    assert all(f"python -m d2lpar {word}" in readme for word in ("watch", "diagnose", "script"))
    core_alone("-m", "d2lpar", "script")
    ended = core_alone("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "train_ddp.py", "--checkpoints", "runs", "--epochs", "1")
    assert "test accuracy" in ended and list((tmp_path / "runs").glob("step-*.pt")), ended


@pytest.mark.slow
def test_with_an_older_pytorch_the_last_line_says_which_it_is_and_which_is_needed() -> None:
    older = "import torch; torch.__version__ = '2.7.1+cu126'; import d2lpar"
    run = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    assert run.stderr.splitlines()[-1].startswith("ImportError: d2lpar needs PyTorch 2.8 or newer, and this is PyTorch 2.7.1+cu126: ")


@pytest.mark.parametrize("version", ["2.8.0", "2.8.0+cpu", "2.8.0a0+5228986c39.nv25.06", "2.9.0a0+50eac811a6.nv25.09", "2.10.0",
                                     "2.16.0.dev20261101+cu132", "3.0.0", torch.__version__])
def test_no_version_of_pytorch_that_is_new_enough_is_refused(version: str) -> None:
    _refuse_old_torch(version)


def test_the_oldest_version_of_pytorch_is_the_same_wherever_it_is_named(root: Path) -> None:
    oldest = ".".join(map(str, OLDEST_TORCH))
    everywhere = f"Name the same oldest version in checks.py, pyproject.toml, setup.md, weekly.yml, authors.md and try_install.py {TORCH}"
    assert f"torch>={oldest}" in tomllib.loads((root / "pyproject.toml").read_text("utf8"))["project"]["dependencies"], everywhere
    assert re.findall(r"PyTorch (\S+) or newer", (root / "book" / "setup.md").read_text("utf8")) == [oldest], everywhere
    weekly = yaml.safe_load((root / ".github" / "workflows" / "weekly.yml").read_text("utf8"))
    tried = weekly["jobs"]["older"]["strategy"]["matrix"]["torch"]
    assert tried[0] == f"{oldest}.0" and len(tried) == 2, everywhere
    tools = (root / "book" / "authors.md").read_text("utf8"), (root / "book" / "tools" / "try_install.py").read_text("utf8")
    assert {version for text in tools for version in re.findall(r"try_install\.py (\d\S*?)`", text)} == {tried[0]}, everywhere


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'd2lpar' has no attribute 'allreduse'"):
        d2lpar.allreduse
    assert re.fullmatch(r"\d+\.\d+\.\d+", d2lpar.__version__)


def texts(root: Path) -> dict[str, str]:
    """What people read: pages, the README, the strings of the package and of its tools, and what chapters say."""
    found = {}
    for file in tracked(root):
        name = file.relative_to(root)
        if file.suffix == ".ipynb":
            found[file.name] = "\n".join(cell.source for cell in nbformat.read(file, as_version=4).cells)
        elif file.name not in ("CHANGELOG.md", "README.zh.md") and (name.parts[0], file.suffix) in {(file.name, ".md"), ("book", ".md"), ("d2lpar", ".py")}:
            found[str(name)] = file.read_text("utf8")
    return found


def test_every_name_of_the_package_that_people_are_told_is_there(root: Path) -> None:
    told = {(place, name) for place, text in texts(root).items()
            for name in re.findall(r"(?<![\w./~-])(?:d2lpar|dp)((?:\.[A-Za-z_]\w*)+)", text)}
    assert len(told) > 100
    lost = []
    for place, name in told:
        try:
            exec(f"import d2lpar\nd2lpar{name}", {})
        except AttributeError:
            try:
                exec(f"import d2lpar{name}", {})
            except ImportError:
                lost.append((place, name))
    assert lost == [], f"Write the name as it is now: d2lpar and dp have none of these {RENAME}"


HELPS = """\
import runpy, sys
for word in sys.argv[1:]:
    sys.argv[1:] = [word, "--help"]
    try:
        runpy.run_module("d2lpar", run_name="__main__")
    except SystemExit as ended:
        assert ended.code == 0, ended.code
"""


def test_every_command_of_the_package_that_people_are_told_is_one_and_needs_the_core_alone(
        root: Path, core_alone: Callable[..., str]) -> None:
    named = {(place, word) for place, text in texts(root).items() for word in re.findall(r"python -m d2lpar (?!-)([a-z]+)", text)}
    told, there = {word for _, word in named}, re.search(r"\{([a-z,]+)\}", core_alone("-m", "d2lpar", "--help"))[1].split(",")
    assert {"watch", "diagnose", "script"} <= told
    assert {(place, word) for place, word in named if word not in there} == set(), f"Name a command of `python -m d2lpar` that exists {RENAME}"
    said = core_alone("-c", HELPS, *sorted(told))
    assert re.findall(r"^usage: python -m d2lpar ([a-z]+)", said, re.M) == sorted(told)


def test_every_target_of_make_and_every_tool_that_people_are_told_is_one(root: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text("utf8"), re.M))
    told = {(place, word) for place, text in texts(root).items()
            for word in re.findall(r"(?:`|^ *)make ([a-z-]+)" if place.endswith(".md") else r"`make ([a-z-]+)", text, re.M)}
    assert len({word for _, word in told}) > 5
    assert {(place, word) for place, word in told if word not in targets} == set(), f"Name a target of make that exists {TOOLS}"
    tools = {(place, tool) for place, text in texts(root).items() for tool in re.findall(r"\bbook/tools/\w+\.py", text)}
    assert len({tool for _, tool in tools}) > 10
    assert {(place, tool) for place, tool in tools if not (root / tool).exists()} == set(), f"Name a tool that exists {TOOLS}"
