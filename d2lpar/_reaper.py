"""The reaper of a group: a small process that outlives its caller, if only to end what the caller has started.

    python _reaper.py FOLDERS

It reads the numbers of the ranks' processes from its input. When that ends, the caller is gone, killed perhaps: then
the reaper kills every rank with all that the rank has started, puts files back that a watched run has changed, and
deletes the folders. A caller that ends as it should kills the reaper first.
"""

import os
import runpy
import shutil
import signal
import sys
import time
from contextlib import suppress

PUT_BACK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "diagnosis", "put_back.py")


def put_back(folder):
    """Leave the files that d2lpar.diagnosis.kept_files noted in this folder as they were before the run."""
    return runpy.run_path(PUT_BACK)["put_back"](folder)  # here is no package to import it from


def _runs(number):
    """Whether a process still does; one that has ended may be waited for by nobody."""
    with suppress(OSError):
        os.kill(number, 0)
        with suppress(FileNotFoundError), open(f"/proc/{number}/stat") as file:  # on Linux
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
        return sys.platform != "linux"
    return False


if __name__ == "__main__":  # to load it must harm nobody
    numbers = [int(line) for line in sys.stdin]
    for number in numbers:
        for end in [getattr(os, "killpg", os.kill), os.kill]:  # a rank may have left its group
            with suppress(OSError):
                end(number, getattr(signal, "SIGKILL", signal.SIGTERM))
    for folder in sys.argv[1:]:
        until = time.monotonic() + 5 * os.path.exists(os.path.join(folder, "files.json"))  # of a watched run
        while time.monotonic() < until and any(map(_runs, numbers)):
            time.sleep(0.01)
        put_back(folder)
        shutil.rmtree(folder, ignore_errors=True)
