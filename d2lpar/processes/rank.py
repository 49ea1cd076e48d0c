"""What the process of a rank runs: join the group, call the function, write down the result, wait to be released.

    python rank.py FOLDER RANK WORLD_SIZE TIMEOUT_S CORES

It is started as a file, not imported, so that a rank loads no more of the book than its function needs.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import pickle
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist


def main(folder: str, rank: int, world_size: int, timeout_s: float, cores: int) -> None:
    """The life of a rank; what its function raises is written down for the caller."""
    caller = os.dup(0)  # its word comes here; children of this process inherit nothing that could keep them
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr = open(f"{folder}/{rank}-printed", "w", 1, "utf-8", "backslashreplace")
    with open(f"{folder}/{rank}-stack", "w") as stack:
        if hasattr(faulthandler, "register"):  # not on Windows
            faulthandler.register(signal.SIGTERM, stack, all_threads=False, chain=True)
        torch.set_num_threads(cores)
        try:
            join_group(folder, rank, world_size, timeout_s)
            fn, args, cells = pickle.loads(Path(folder, "call").read_bytes())
            linecache.cache.update(cells)
            kind, report = "result", pickle_result(fn(rank, *args))
        except BaseException:
            kind, report = "error", traceback.format_exc().encode("utf-8", "backslashreplace")
        sys.stdout.flush()
        Path(f"{folder}/{rank}-unfinished").write_bytes(report)
        os.replace(f"{folder}/{rank}-unfinished", f"{folder}/{rank}-{kind}")  # there at once, and whole
        os.read(caller, 1)  # a failed rank waits too, for its end: its peers must not fail because of it
    if dist.is_initialized():  # unless fn has left the group itself
        dist.destroy_process_group()


def join_group(folder: str, rank: int, world_size: int, timeout_s: float) -> None:
    """Make this process one of the group; blocks until all ranks are there."""
    nccl = dist.is_nccl_available() and torch.cuda.device_count() >= world_size
    if nccl:
        torch.cuda.set_device(rank)
    # the ranks find one another by a file: no port that somebody else could have taken
    dist.init_process_group("nccl" if nccl else "gloo", store=dist.FileStore(f"{folder}/store", world_size), rank=rank,
                            world_size=world_size, timeout=timedelta(seconds=timeout_s),
                            device_id=torch.device("cuda", rank) if nccl else None)


def pickle_result(result: Any) -> bytes:
    """The result as bytes; if that cannot be, the error gets a note that says of what type it is."""
    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        error.add_note(f"what fn returned cannot be pickled: {type(result)}")
        raise


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
