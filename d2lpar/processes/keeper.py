"""The keeper of a group: a small process that outlives its caller, if only to end what the caller has started.

    python keeper.py FOLDER

It reads the numbers of the ranks' processes from its input. When that ends, the caller is gone, killed perhaps: then
the keeper kills every rank with all that the rank has started, and deletes the folder. A caller that ends as it should
kills the keeper first.
"""

import os
import shutil
import signal
import sys

if __name__ == "__main__":  # to load it must harm nobody
    numbers = [int(line) for line in sys.stdin]
    for number in numbers:
        try:
            if hasattr(os, "killpg"):
                os.killpg(number, signal.SIGKILL)
            else:
                os.kill(number, signal.SIGTERM)
        except OSError:
            pass  # it is gone already
    shutil.rmtree(sys.argv[1], ignore_errors=True)
