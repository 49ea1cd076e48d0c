"""The keeper of a group: a small process that outlives its caller, if only to end what the caller has started.

    python keeper.py FOLDERS

It reads the numbers of the ranks' processes from its input. When that ends, the caller is gone, killed perhaps: then
the keeper kills every rank with all that the rank has started, and deletes the folders. A caller that ends as it should
kills the keeper first.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress

if __name__ == "__main__":  # to load it must harm nobody
    for number in [int(line) for line in sys.stdin]:
        for end in [getattr(os, "killpg", os.kill), os.kill]:  # a rank may have left its group
            with suppress(OSError):
                end(number, getattr(signal, "SIGKILL", signal.SIGTERM))
    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)
