"""What the process of a rank runs: join the group; then call a function, write down the result, and wait for the next.

    python rank.py FOLDER RANK WORLD_SIZE BACKEND
    python rank.py

It is started as a file, not imported, so that a rank loads no more of the book than its function needs. Without
arguments it makes copies of itself, each of which is a rank's process.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import io
import json
import linecache
import os
import pickle
import signal
import socket
import sys
import traceback
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

_is_done = False  # whether nothing is left to do but to end


def end_at_once() -> None:
    """End the process after all exit functions of what is loaded below, but do not take that apart.

    To do so, object by object, takes longer than many a rank lives. Python does it as ever where something went wrong,
    and where a file or a connection is still open, because something may not be written to it yet. (What only `__del__`
    or an exit function of C would do is not done.)
    """
    with suppress(Exception):  # of what somebody closes just now
        if _is_done and not any(
            issubclass(type(one), io.RawIOBase) and not one.closed and one.writable() for one in gc.get_objects()
        ):
            sys.stdout.flush()  # what exit functions have printed
            os._exit(0)


atexit.register(end_at_once)  # the first one, which is called last
gc.disable()  # the search for garbage, while PyTorch is loaded: that is a fifth sooner
import cloudpickle  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

gc.freeze()  # what is loaded now stays, and is not searched again and again while more is loaded
gc.enable()


_IDLE_S = 300.0  # without copies for so long, the loaded process ends


def make_copies() -> list[str]:
    """Make a copy of this process for each rank that is asked for; comes back in the copy, with its arguments.

    Who asks sends, through the socket that is the input here, the modules to load and the arguments, with three files:
    one for the answer, which is the copy's number, the copy's input and its output. Or the number of a copy that has
    ended, with a file for the answer, which is how it ended; from then on the number is free.
    """
    caller = socket.socket(fileno=os.dup(0))
    caller.settimeout(_IDLE_S)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # so that a copy's number is its own until it shall be forgotten
    with open(os.devnull, "wb") as nowhere:  # the file that is there now is the first group's, and goes with it
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    copies = 0
    while True:
        try:
            asked, files, *_ = socket.recv_fds(caller, 2**16, 3)
        except TimeoutError:
            if copies:
                continue
            os._exit(0)
        if not asked:  # the caller is gone
            os._exit(0)
        what, *arguments = json.loads(asked)
        if isinstance(what, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(what, 0)[1])
            copies -= 1
        else:
            load(what)
            answer = os.fork()
            if answer == 0:
                caller.close()
                become_a_rank(*files)
                return arguments
            copies += 1
            with suppress(OSError):  # the copy does so too, because nobody knows which of the two is first
                os.setpgid(answer, answer)
        try:
            os.write(files[0], b"%d" % answer)
        except BrokenPipeError:  # nobody waits any more
            if not isinstance(what, int):
                os.killpg(answer, signal.SIGKILL)
                os.waitpid(answer, 0)
                copies -= 1
        for file in files:
            os.close(file)


def become_a_rank(asker: int, its_input: int, its_output: int) -> None:
    """What a copy does first: it has files, a group of processes and random numbers of its own, as a fresh Python."""
    os.setpgid(0, 0)
    os.dup2(its_input, 0)
    os.dup2(its_output, 1)
    os.dup2(its_output, 2)
    for file in (asker, its_input, its_output):
        os.close(file)
    invalidate_caches()  # a folder to import from may be there only now
    torch.default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def load(modules: list[str]) -> None:
    """Load modules, as PyTorch above: they stay."""
    if any(name not in sys.modules for name in modules):
        gc.disable()
        for name in modules:
            import_module(name)
        gc.freeze()
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
        gc.freeze()  # with its own files, for which end_at_once does not wait
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
    dist.barrier()  # now all have joined, and none loses a peer that leaves at once


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
    if not sys.argv[1:]:
        sys.argv += make_copies()
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    _is_done = True
