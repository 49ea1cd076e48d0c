"""From nothing to a verdict: the package alone in an empty environment, then a chapter with the extra `pages`.

`python book/tools/try_install.py` says what was installed, how large it is and how long it took, and stops at the
first thing that is not as the book's pages store it. The environment is deleted at the end. It downloads PyTorch.

`python book/tools/try_install.py 2.8.0` installs this version of PyTorch. Instead of the chapter, whose outputs belong
to a newer one, it then runs `watch`, `diagnose` and a kill test of the training script, and stops at a wrong verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "02_data_parallelism_from_scratch"
WATCHED = "import sys, d2lpar; print(d2lpar.watch(sys.argv[1:]))"
TRAINED = """\
import d2lpar as dp
replicas, _ = dp.train(num_devices=2, batch_size=64, lr=0.03, num_epochs=2)
assert dp.same_bits(replicas)
"""
FAULTS = "import sys, d2lpar; print(list(d2lpar.watch(sys.argv[1:]).faults))"
# the catalogue of the manual of watch and diagnose, without the other scripts of the tuned set
DIAGNOSED = "import gate; gate.cases = lambda _: {}; print(*gate.rows(gate.run_set(gate.TUNED, (2,))), sep='\\n')"


def copy_package(folder: Path) -> Path:
    """All that the wheel is built from, and nothing else of the checkout, which stays as it is."""
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "d2lpar", folder / "d2lpar", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def code_of(path: Path) -> list[dict]:
    """The code cells of a notebook."""
    return [cell for cell in json.loads(path.read_text("utf8"))["cells"] if cell["cell_type"] == "code"]


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


def sharded(folder: Path) -> dict[Path, list[str]]:
    """A right and a wrong script that use `fully_shard` on GPUs, each with the faults that `watch` must find."""
    right = (ROOT / "tests/watch/tuned/right_25.py").read_text("utf8")
    right = right.replace('"gloo"', '"nccl"').replace('init_device_mesh("cpu"', 'init_device_mesh("cuda"')
    texts = {"right": right, "wrong": right.replace("sampler.set_epoch(epoch)", "pass")}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, "utf8")
    return {folder / "right.py": [], folder / "wrong.py": ["same order in every epoch"]}


def try_verdicts(folder: Path, run: Callable[..., str]) -> None:
    """Stop at a verdict that differs from what the tests of this version of the book expect."""
    for file, wanted in sharded(folder).items():
        if (found := run("-c", FAULTS, file).strip()) != str(wanted):
            sys.exit(f"watch finds {found} in the {file.stem} script with fully_shard, not {wanted}")
        print(f"watch finds {found} in the {file.stem} script with fully_shard", flush=True)
    run("-m", "pip", "install", "-q", "matplotlib", "psutil")  # the tools below import d2lpar.pages
    tools = ROOT / "book" / "tools"
    for name, words in {"watch": ("gate_watch.py", "bugs", "--ranks", "2"), "diagnose": ("-c", DIAGNOSED)}.items():
        said = re.sub(r"^(\[Gloo\]|rank \d:).*\n", "", run(*words, cwd=tools), flags=re.M)  # PyTorch 2.8 prints much
        print(f"{name}:\n{said}", end="", flush=True)
        if " on 2 ranks, " in said:
            sys.exit(f"{name} does not name what is wrong in the scripts above")
    print(run("-m", "d2lpar.pages.kill_tests", "1"), end="")


def main(folder: Path, version: str | None) -> None:
    (folder / "source").mkdir()
    source, run = copy_package(folder / "source"), environment(folder)

    def install(extra: str, *more: str) -> None:
        began = time.monotonic()
        run("-m", "pip", "install", "-q", f"d2lpar{extra} @ {source.as_uri()}", *more)
        took, size = time.monotonic() - began, sum(file.lstat().st_size for file in (folder / "venv").rglob("*"))
        count = len(json.loads(run("-m", "pip", "list", "--format=json")))
        words = " ".join((f"d2lpar{extra}", *more))
        print(f"pip install {words}: {took:.0f} s, {count} distributions, {size / 1e9:.1f} GB", flush=True)

    def compare(name: str, wanted: list[str], said: list[str]) -> None:
        if not wanted or [line for line in wanted if line not in said]:
            sys.exit("\n".join([*said, f"{name} does not say what is stored:", *wanted]))
        print(f"{name}: {len(wanted)} lines as they are stored", flush=True)

    install("", *[f"torch=={version}"] * bool(version))
    [verdict] = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text("utf8"), re.M | re.S)
    said = run("-c", WATCHED, ROOT / "d2lpar" / "pages" / "stored" / "ring.py")
    compare("The README's verdict on ring.py", verdict.splitlines(), said.splitlines())
    print(f"{CHAPTER}: its functions train two equal replicas. {run('-c', TRAINED).splitlines()[0]}", flush=True)

    if version:
        try_verdicts(folder, run)
        return
    install("[pages]", "nbconvert", "ipykernel")
    chapter = ROOT / "notebooks" / f"{CHAPTER}.ipynb"
    run("-m", "nbconvert", "--to", "notebook", "--execute", chapter, "--output-dir", folder)
    compare(CHAPTER, printed(code_of(chapter)), printed(code_of(folder / f"{CHAPTER}.ipynb")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Try the package in an empty environment.")
    parser.add_argument("version", nargs="?", help="of PyTorch, such as 2.8.0 (the newest)")
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder), parser.parse_args().version)
