"""The reaper of a group: a small process that outlives its caller, if only to end what the caller has started.

    python _reaper.py FOLDERS

It reads the numbers of the ranks' processes from its input. When that ends, the caller is gone, killed perhaps: then
the reaper kills every rank with all that the rank has started, puts files back that a watched run has changed, and
deletes the folders. A caller that ends as it should kills the reaper first.
"""

import glob
import os
import shutil
import signal
import sys
from contextlib import suppress


def put_back(folder: str) -> None:
    """Leave the files that d2lpar.diagnosis.kept_files marked in this folder as they were before the run."""
    for mark in glob.glob(os.path.join(glob.escape(folder), "*.file")):
        with suppress(OSError):
            with open(mark, encoding="utf8") as file:
                path, _, copy = file.read().partition("\n")
            if not copy:
                os.unlink(path)
            elif os.path.lexists(copy):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.replace(copy, path)


if __name__ == "__main__":  # to load it must harm nobody
    for number in [int(line) for line in sys.stdin]:
        for end in [getattr(os, "killpg", os.kill), os.kill]:  # a rank may have left its group
            with suppress(OSError):
                end(number, getattr(signal, "SIGKILL", signal.SIGTERM))
    for folder in sys.argv[1:]:
        put_back(folder)
        shutil.rmtree(folder, ignore_errors=True)
