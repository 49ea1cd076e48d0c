"""From nothing to a verdict: the package alone in an empty environment, then a chapter with what its extra adds.

`python book/tools/try_install.py` says what was installed, how large it is and how long it took, and stops at the
first thing that is not as the book's pages store it. The environment is gone at the end. It downloads PyTorch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST, CHAPTER = "17_is_my_script_right", "02_data_parallelism_from_scratch"


def copy_package(folder: Path) -> Path:
    """All that the wheel is built from, and nothing else of the checkout, which stays as it is."""
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "d2lpar", folder / "d2lpar", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def code_of(name: str) -> list[dict]:
    """The cells of code of a chapter."""
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text("utf8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cells: list[dict]) -> list[str]:
    """The lines that the cells have stored, but for those that differ from run to run."""
    return [line for cell in cells if "nbval-ignore-output" not in cell["metadata"].get("tags", [])
            for output in cell["outputs"] for line in "".join(output.get("text", [])).splitlines()]


def environment(folder: Path) -> Callable[..., str]:
    """An empty environment in `folder`, as a function that runs its Python on words and gives back what that prints."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    setting = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    setting |= {"MPLBACKEND": "agg"}

    def run(*words: str | Path, cwd: Path = folder) -> str:
        done = subprocess.run([python, *words], cwd=cwd, env=setting, text=True, capture_output=True)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}\nThis has failed: python {' '.join(map(str, words))}")
        return done.stdout

    return run


def main(folder: Path) -> None:
    (folder / "source").mkdir()
    source, run = copy_package(folder / "source"), environment(folder)
    for extra, name in (("", FIRST), ("[pages]", CHAPTER)):
        began = time.monotonic()
        run("-m", "pip", "install", "-q", f"d2lpar{extra} @ {source.as_uri()}")
        took, size = time.monotonic() - began, sum(file.lstat().st_size for file in (folder / "venv").rglob("*"))
        count = len(json.loads(run("-m", "pip", "list", "--format=json")))
        print(f"pip install d2lpar{extra}: {took:.0f} s, {count} distributions, {size / 1e9:.1f} GB")
        cells = code_of(name)[:1] if not extra else code_of(name)
        script = folder / f"{name}.py"
        script.write_text("\n\n".join("".join(cell["source"]) for cell in cells), "utf8")
        began = time.monotonic()
        said = run(script).splitlines()
        wanted = [line for line in printed(cells) if not extra or line.endswith((": True", ": False"))]
        if not wanted or [line for line in wanted if line not in said]:
            sys.exit("\n".join([*said, f"{name} does not say what is stored:", *wanted]))
        print(f"{name}: {len(wanted)} lines as they are stored, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
