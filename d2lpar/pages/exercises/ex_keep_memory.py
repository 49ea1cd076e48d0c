"""The check of the exercise `ex-keep-memory`."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

TRAIN = """
import os
import sys


def page_faults():
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return 0
    return getrusage(RUSAGE_SELF).ru_minflt


def step():
    before, blocks = page_faults(), [b"x" * 40_000_000 for _ in range(4)]
    return page_faults() - before


if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: one page fault for each page
print([step() for _ in range(3)][-1])
print(*[f"{name}={value}" for name, value in os.environ.items() if name.startswith("MALLOC_")], sep=" and ")
"""


def check(command):
    """What is not right yet of the answer, in words, or "Right."."""
    with TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(TRAIN, "utf8")
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        env = {name: value for name, value in os.environ.items()  # without what else changes how memory is allocated
               if not name.startswith("MALLOC_") and name not in ("LD_PRELOAD", "GLIBC_TUNABLES")} | {"PATH": path}
        ended = subprocess.run(command("train.py"), shell=True, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=60)
    try:
        faults, seen = ended.stdout.splitlines()
        faults = int(faults)
    except ValueError:
        said = (ended.stderr or ended.stdout).strip() or "nothing"
        return f"Not yet: your command does not run train.py. It says: {said}"
    sees = f"It sees {seen or 'none of the variables'}."
    if platform.libc_ver()[0] == "glibc":
        if faults >= 200:  # of 2,442 pages of 64 kB, or 39,063 of 4 kB
            return f"Not yet: a step of train.py, which allocates 160 MB, still has {faults:,} page faults.\n{sees}"
    else:  # names and values have to do
        values = dict(setting.split("=", 1) for setting in seen.split(" and ") if setting)
        threshold = values.get("MALLOC_TRIM_THRESHOLD_", "")
        if values.get("MALLOC_MMAP_MAX_") != "0" or not threshold.isdecimal() or int(threshold) < 160_000_000:
            return f"Not yet: train.py must start with MALLOC_MMAP_MAX_=0 and a threshold of at least 160 MB.\n{sees}"
    return "Right."
