"""The check of the exercise `ex-keep-memory`."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

NAMES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_")
TRAIN = f"""
import os


def page_faults():
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return 0
    return getrusage(RUSAGE_SELF).ru_minflt


def step():
    before, blocks = page_faults(), [b"x" * 40_000_000 for _ in range(4)]
    return page_faults() - before


print([step() for _ in range(3)][-1], *[f"{{name}}={{os.environ[name]}}" for name in {NAMES} if name in os.environ])
"""


def check(command):
    """What is not right yet of the answer, in words, or "Right."."""
    with TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(TRAIN, "utf8")
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        env = {name: value for name, value in os.environ.items() if name not in NAMES} | {"PATH": path}
        ended = subprocess.run(command("train.py"), shell=True, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=60)
    try:
        faults, *seen = ended.stdout.split()
        faults = int(faults)
    except ValueError:
        said = (ended.stderr or ended.stdout).strip() or "nothing"
        return f"Not yet: your command does not run train.py. It says: {said}"
    sees = f"It sees {' and '.join(seen) or 'none of the variables'}."
    if faults >= 1000:
        return f"Not yet: a step of train.py, which needs 160 MB, still has {faults:,} page faults.\n{sees}"
    values = dict(setting.split("=") for setting in seen)
    enough = int(values.get("MALLOC_TRIM_THRESHOLD_") or 0) >= 160_000_000 and values.get("MALLOC_MMAP_MAX_") == "0"
    if platform.libc_ver()[0] != "glibc" and not enough:  # names and values have to do
        return f"Not yet: train.py must start with MALLOC_MMAP_MAX_=0 and a threshold of at least 160 MB.\n{sees}"
    return "Right."
