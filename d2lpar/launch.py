"""Processes that form one group: the ranks of `torch.distributed`, started from a notebook, a script or a test.

Chapter 3 calls `run_ranks(fn, 3)` and gets what `fn` returned on each rank. Every rank is a fresh Python that imports
`fn` by its name; the program that started it is not run again, so a script needs no `if __name__ == "__main__"`.
Whatever happens to a rank or to the caller, no process is left.
"""

from __future__ import annotations

import faulthandler
import io
import math
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist

_LOOK_S = 0.02  # the caller looks this often for news
_GRACE_S = 1.0  # between asking a process to end and killing it


class RankError(RuntimeError):
    """One of the ranks failed; the message names it and holds its traceback."""


def run_ranks(fn: Callable, world_size: int, *args: Any, timeout_s: float = 60.0) -> list:
    """Run `fn(rank, *args)` in `world_size` processes that form one process group; give the results in rank order.

    The group's backend is NCCL where each rank can have a GPU of its own, which is then its current device, and
    otherwise Gloo, with the share of the cores that a virtual device has. Blocks until all ranks have finished, then
    prints what they printed, in rank order. Arguments and results are pickled: tensors travel by value.

    Args:
        fn: a function at the top level of a module that a new Python can import from where this one finds it.
        timeout_s: for everything, the start of the processes (some seconds) included.

    Raises:
        ValueError: before any process is started, if `world_size` or `timeout_s` make no sense, or `fn` or `args`
            cannot be sent to another process.
        RankError: if `fn` raised on a rank, or the rank's process died; the one that failed first. The others are
            ended at once.
        TimeoutError: after `timeout_s`, with where the ranks stood that had not finished.
    """
    _check(fn, world_size, timeout_s)
    call = _pickle_call(fn, args)
    deadline = time.monotonic() + timeout_s
    with TemporaryDirectory(prefix="d2lpar-") as folder:
        Path(folder, "call").write_bytes(call)
        ranks: list[_Rank] = []
        try:
            for rank in range(world_size):
                ranks.append(_Rank(rank, world_size, folder, timeout_s))
            _wait_for_results(ranks, deadline, timeout_s)
            _release(ranks)
            return [pickle.loads(rank.file("result").read_bytes()) for rank in ranks]
        finally:
            _end(ranks)
            for rank in ranks:
                rank.show_prints()


class _Rank:
    """A rank as its caller sees it: a process and the files it writes.

    `result` or `error`, one of them, as its last act; `printed` by Python; `log` by everything beneath it, such as
    the greetings of Gloo; `stack`, where it stood when it was asked to end.
    """

    def __init__(self, rank: int, world_size: int, folder: str, timeout_s: float) -> None:
        from d2lpar import devices  # here, because a rank runs this file and need not load the book for it

        self.name, self._prefix = f"rank {rank}", Path(folder, f"{rank}-")
        cores = devices._cores_per_device
        settings = [folder, rank, world_size, timeout_s, cores]
        environment = {"GLOO_SOCKET_IFNAME": _loopback()} | os.environ | {
            "OMP_NUM_THREADS": str(cores),
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),  # "" is the current folder
        }
        with self.file("log").open("wb") as log:
            # -P: no path but the caller's; a group of its own: Ctrl-C reaches the caller, which ends the ranks
            self.process = subprocess.Popen([sys.executable, "-P", __file__, *map(str, settings)], env=environment,
                                            stdin=subprocess.PIPE, stdout=log, stderr=log, bufsize=0, process_group=0)

    def file(self, what: str) -> Path:
        return Path(f"{self._prefix}{what}")

    def text(self, what: str) -> str:
        return self.file(what).read_text("utf-8", "replace") if self.file(what).exists() else ""

    def show_prints(self) -> None:
        for line in self.text("printed").splitlines():
            print(f"{self.name}: {line}")

    def why_dead(self) -> str:
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self.name} {how} before fn had returned\n\n{self.text('log')[-2000:]}".rstrip()


def _wait_for_results(ranks: Sequence[_Rank], deadline: float, timeout_s: float) -> None:
    while waiting := [rank for rank in ranks if not rank.file("result").exists()]:
        failed = [rank for rank in waiting if rank.file("error").exists()]
        if failed:
            time.sleep(0.1)  # the end of a process can show later than the error of a rank that lost it as a peer
        for rank in waiting:
            if rank.process.poll() is not None and not rank.file("error").exists():
                raise RankError(rank.why_dead())
        if failed:
            first = min(failed, key=lambda rank: rank.file("error").stat().st_mtime_ns)
            raise RankError(f"{first.name} raised an exception\n\n{first.text('error')}".rstrip())
        if time.monotonic() > deadline:
            _end(ranks)
            stood = [f"{rank.name}: {rank.text('stack') or 'nobody knows where'}".rstrip() for rank in waiting]
            raise TimeoutError(f"after {timeout_s} s, {', '.join(rank.name for rank in waiting)} of {len(ranks)} ranks "
                               "had not finished\n\n" + "\n\n".join(stood))
        time.sleep(_LOOK_S)


def _release(ranks: Sequence[_Rank]) -> None:
    """Let the ranks go, which have waited for one another so that none loses a peer that it still needs."""
    for rank in ranks:
        with suppress(OSError):  # one that died after its result was in
            rank.process.stdin.write(b".")
    _reap(ranks, 5 * _GRACE_S)


def _end(ranks: Sequence[_Rank]) -> None:
    """Leave no process, whatever it is doing."""
    for rank in ranks:
        rank.process.terminate()
    _reap(ranks, _GRACE_S)
    for rank in ranks:
        rank.process.kill()
        rank.process.wait()
        rank.process.stdin.close()


def _reap(ranks: Sequence[_Rank], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    for rank in ranks:
        with suppress(subprocess.TimeoutExpired):
            rank.process.wait(max(0, deadline - time.monotonic()))


def _check(fn: Callable, world_size: int, timeout_s: float) -> None:
    if not callable(fn):
        raise ValueError(f"ranks run a function, got {fn!r}")
    if not isinstance(world_size, int) or isinstance(world_size, bool) or world_size < 1:
        raise ValueError(f"the number of ranks must be a whole number of at least 1, got {world_size!r}")
    if not 0 < timeout_s < math.inf:
        raise ValueError(f"the time-out must be a finite number of seconds greater than 0, got {timeout_s!r}")


class _Pickler(pickle.Pickler):
    """Refuses what a new process could not import."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType | type) and (obj.__module__ == "__main__" or "<" in obj.__qualname__):
            raise ValueError("a function that runs in processes of its own, and every class and function that it is "
                             "given, must be defined at the top level of a module, not in a notebook, a script or "
                             f"another function: got {obj.__module__}.{obj.__qualname__}")
        return NotImplemented


def _pickle_call(fn: Callable, args: tuple) -> bytes:
    call = io.BytesIO()
    try:
        _Pickler(call).dump((fn, args))
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"fn and its arguments must be such that they can be pickled: {error}") from error
    return call.getvalue()


def _loopback() -> str:
    """The network interface of this machine with itself, which spares Gloo to look up a host name; "" if unknown."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "")


# From here on, what runs in the process of a rank


def _main(folder: str, rank: int, world_size: int, timeout_s: float, cores: int) -> None:
    released = threading.Event()
    threading.Thread(target=_end_with_caller, args=(folder, released), daemon=True).start()
    sys.stdin = open(os.devnull)
    sys.stdout = sys.stderr = open(f"{folder}/{rank}-printed", "w", 1, "utf-8", "backslashreplace")
    with open(f"{folder}/{rank}-stack", "w") as stack:
        if hasattr(faulthandler, "register"):  # not on Windows
            faulthandler.register(signal.SIGTERM, stack, all_threads=False, chain=True)
        torch.set_num_threads(cores)
        try:
            _join_group(folder, rank, world_size, timeout_s)
            fn, args = pickle.loads(Path(folder, "call").read_bytes())
            kind, report = "result", _pickle_result(fn(rank, *args))
        except BaseException:
            kind, report = "error", traceback.format_exc().encode("utf-8", "backslashreplace")
        sys.stdout.flush()
        Path(f"{folder}/{rank}-unfinished").write_bytes(report)
        os.replace(f"{folder}/{rank}-unfinished", f"{folder}/{rank}-{kind}")  # there at once, and whole
        released.wait()  # a failed rank waits too, for its end: its peers must not fail because of it
    if dist.is_initialized():  # unless fn has left the group itself
        dist.destroy_process_group()


def _join_group(folder: str, rank: int, world_size: int, timeout_s: float) -> None:
    nccl = dist.is_nccl_available() and torch.cuda.device_count() >= world_size
    if nccl:
        torch.cuda.set_device(rank)
    # the ranks find one another by a file: no port that somebody else could have taken
    dist.init_process_group("nccl" if nccl else "gloo", store=dist.FileStore(f"{folder}/store", world_size), rank=rank,
                            world_size=world_size, timeout=timedelta(seconds=timeout_s),
                            device_id=torch.device("cuda", rank) if nccl else None)


def _pickle_result(result: Any) -> bytes:
    try:
        return pickle.dumps(result)
    except Exception as error:
        error.add_note(f"what fn returned cannot be pickled: {type(result)}")
        raise


def _end_with_caller(folder: str, released: threading.Event) -> None:
    """Wait for the caller's word that all have finished; at the caller's end, however it came, end too."""
    while os.read(0, 1):
        released.set()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
