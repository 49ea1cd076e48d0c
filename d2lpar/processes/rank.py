"""What the process of a rank runs: join the group; then call a function, write down the result, and wait for the next.

    python rank.py FOLDER RANK WORLD_SIZE BACKEND

It is started as a file, not imported, so that a rank loads no more of the book than its function needs.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import linecache
import os
import pickle
import signal
import sys
import traceback
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

gc.disable()  # the search for garbage, while PyTorch is loaded: that is a fifth sooner
import cloudpickle  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

atexit.register(gc.unfreeze)
gc.freeze()  # what is loaded now stays, and is not searched again and again while more is loaded
gc.enable()


def main(folder: str, rank: int, world_size: int, backend: str) -> None:
    """The life of a rank: call after call; what a function raises is written down for the caller."""
    caller = os.dup(0)  # its word comes here; children of this process inherit nothing that could keep them
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr = open(f"{folder}/{rank}-printed", "w", 1, "utf-8", "backslashreplace")
    with open(f"{folder}/{rank}-stack", "w") as stack:
        if hasattr(faulthandler, "register"):  # not on Windows
            faulthandler.register(signal.SIGTERM, stack, all_threads=False, chain=True)
            os.register_at_fork(after_in_child=partial(faulthandler.unregister, signal.SIGTERM))
        joined = False
        while os.read(caller, 1) == b"c":  # else it is told to leave, or nobody is there any more
            try:
                if not joined:
                    join_group(folder, rank, world_size, backend)
                joined = True
                kind, report = "result", run_call(folder, rank)
            except BaseException:  # a failed rank waits too, for its end: its peers must not fail because of it
                kind, report = "error", traceback.format_exc().encode("utf-8", "backslashreplace")
            with suppress(Exception):  # fn may have closed it
                sys.stdout.flush()
            Path(f"{folder}/{rank}-unfinished").write_bytes(report)
            os.replace(f"{folder}/{rank}-unfinished", f"{folder}/{rank}-{kind}")  # there at once, and whole
    if dist.is_initialized():  # unless fn has left the group itself
        dist.destroy_process_group()


def join_group(folder: str, rank: int, world_size: int, backend: str) -> None:
    """Make this process one of the group; blocks until all ranks are there."""
    gpu = torch.device("cuda", rank) if backend == "nccl" else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    # the ranks find one another by a file: no port that somebody else could have taken; the caller watches the time
    dist.init_process_group(backend, store=dist.FileStore(f"{folder}/store", world_size), rank=rank,
                            world_size=world_size, timeout=timedelta(days=365), device_id=gpu)


def run_call(folder: str, rank: int) -> bytes:
    """Call the function that the caller has written down; the result as bytes."""
    if not dist.is_initialized():
        raise RuntimeError("this rank has left its group in an earlier call (dist.destroy_process_group)")
    fn, args, cells, cores = pickle.loads(Path(folder, "call").read_bytes())
    linecache.cache.update(cells)
    torch.set_num_threads(cores)
    return pickle_result(fn(rank, *args))


def pickle_result(result: Any) -> bytes:
    """The result as bytes; if that cannot be, the error gets a note that says of what type it is."""
    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        error.add_note(f"what fn returned cannot be pickled: {type(result)}")
        raise


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
