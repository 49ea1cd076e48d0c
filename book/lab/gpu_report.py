"""How the book runs on your GPUs, as Markdown for an issue: `make gpu-report`, or `python book/lab/gpu_report.py`.

Runs the tests marked gpu and the rows of the bench that say something about GPUs, and prints one block. Progress goes
to stderr. The block names no host, no user and no folder of the machine.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import torch
import torch.distributed as dist
from tabulate import tabulate

from bench import FULL, group_rows, group_times
from bench_cases import CALLS, in_blocks, resnet_step
from bench_report import Row, ratio_row, table
from d2lpar.devices import make_gpus_reproducible, try_devices
from d2lpar.timing import describe_machine, time_each_repeat

ROOT = Path(__file__).resolve().parents[2]
# in a process of its own, so that what ends it, a time-out or a crash, is one failure, and the others still run
PYTEST = [sys.executable, "-m", "pytest", "-m", "gpu", "--nbval", "-n", "1", "tests"]
NO_GPU = ("PyTorch finds no GPU here. On a machine with a GPU, this command runs the tests for GPUs, times steps, and "
          "prints a report to paste into an issue.")
PATH = re.compile(r"""(?<![\w./\\])(?:[A-Za-z]:)?(?:[/\\]+[^/\\\s:"'<>|]+)+[/\\]+(?=[^/\\\s])""")  # up to the file
BUILDS, REPEATS, LINES, WIDTH = 4, 4, 12, 200  # of a failure: its last lines, and as much of each


class Result(NamedTuple):
    """One test: how it ended, and why it was skipped or what it said when it failed."""

    name: str
    outcome: str
    words: str


def machine() -> dict[str, str]:
    """The machine, its GPUs, and all that stands between them and the book."""
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    try:
        ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
        driver = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    return describe_machine() | {
        "GPUs": f"{len(gpus)}: " + ", ".join(f"{gpu.name} ({gpu.total_memory / 1e9:.0f} GB)" for gpu in gpus),
        "driver": driver,
        "CUDA": str(torch.version.cuda),
        "NCCL": ".".join(map(str, torch.cuda.nccl.version())) if dist.is_nccl_available() else "none",
    }


def run_tests() -> list[Result]:
    """Run the tests for GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.xml"
        code = subprocess.run([*PYTEST, f"--junitxml={file}"], cwd=ROOT, stdout=2).returncode
        if not file.exists():
            return [Result("pytest", "failed", f"ended with {code} and left no results")]
        return results(file.read_text("utf8"))


def results(xml: str) -> list[Result]:
    """What pytest wrote down."""
    found = []
    for case in ElementTree.fromstring(xml).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('tests.')}.py::{case.get('name')}"
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if bad is None:
            found.append(Result(name, "passed", ""))
        elif bad.tag == "skipped":
            found.append(Result(name, "skipped", bad.get("message", "")))
        else:
            found.append(Result(name, "failed", bad.text or bad.get("message", "")))
    return found


def bench_rows() -> list[Row]:
    """Steps of ResNet-18 on devices of one process, and all that processes with a GPU each are timed with."""
    torch.manual_seed(0)
    make_gpus_reproducible()
    gpus, X, y, rows = torch.cuda.device_count(), torch.rand(256, 1, 28, 28), torch.randint(10, (256,)), []
    for k in (2, 4):
        runs = []
        for _ in range(BUILDS):
            steps = {name: resnet_step(X, y, count)[0] for name, count in (("one", 1), ("k", k))}
            runs.append(time_each_repeat(in_blocks(steps, CALLS["resnet"], lambda: None), REPEATS, 1, try_devices(k)))
        what = f"DataParallel, ResNet-18, batch 256, {k} devices on GPUs: {min(k, gpus)}"
        rows.append(ratio_row("training step", what, "1 device", runs, "k", "one", float(min(k, gpus))))
    enough = gpus if dist.is_nccl_available() else 0
    return rows + [row for k, parts in FULL.items() if k <= enough
                   for row in group_rows(k, [group_times(k, parts, REPEATS, turn) for turn in range(BUILDS)])]


def block(facts: dict[str, str], tests: list[Result], measured: str) -> str:
    """The report: the machine, the tests, what failed with its last lines, and the bench."""
    ended = Counter(test.outcome for test in tests)
    lines = Counter((test.name.partition("[")[0], test.outcome, test.words if test.outcome == "skipped" else "")
                    for test in tests)
    listed = [(name, f"{count} {outcome}", anonymous(words)) for (name, outcome, words), count in lines.items()]
    failed = [f"{test.name}\n\n~~~text\n{last_lines(test.words)}\n~~~\n" for test in tests if test.outcome == "failed"]
    return "\n".join([
        "### Report from GPUs\n", *(f"- {name}: {value}" for name, value in facts.items()),
        "\n#### Tests: " + ", ".join(f"{ended[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped")),
        "", tabulate(listed, ["test", "result", "reason"], tablefmt="pipe"), "", *failed,
        "#### Times, ours against another's\n", measured])


def last_lines(text: str) -> str:
    """How a failure ends."""
    return "\n".join(line[:WIDTH] for line in anonymous(text).strip().splitlines()[-LINES:])


def anonymous(text: str) -> str:
    """The text with paths of the book and of packages relative, of others only the file, and no host or user."""
    for folder in (sysconfig.get_path("purelib"), ROOT):
        text = text.replace(f"{folder}{os.sep}", "")
    for name, word in ((platform.node(), "HOST"), (os.path.basename(os.path.expanduser("~")), "USER")):
        text = re.sub(rf"\b{re.escape(name)}\b", word, text) if name else text
    return PATH.sub("…/", text)


def main() -> None:
    if not torch.cuda.device_count():
        sys.exit(NO_GPU)
    with redirect_stdout(sys.stderr):
        tests = run_tests()
        try:
            measured = table(bench_rows())
        except Exception:  # what the tests said is still worth a report
            measured = f"Nothing was measured:\n\n~~~text\n{last_lines(traceback.format_exc())}\n~~~"
    print(block(machine(), tests, measured))


if __name__ == "__main__":
    main()
