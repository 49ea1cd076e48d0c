"""What the process of a rank runs: join the group; then call a function, write down the result, and wait for more."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import io
import linecache
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import traceback
import weakref
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist

from d2lpar.devices import set_all_cores

CALL, LEAVE = b"call", b"leave"  # the words of the caller


def live(folder: str, rank: int, world_size: int, backend: str, caller: Connection, path: list[str],
         start_method: str, cores: int, network: list[str]) -> None:
    """The life of a rank: call after call; what a function raises is written down for the caller."""
    try:
        move_to(network)
        settle(f"{folder}/{rank}", path, start_method, cores)
        stack = open(f"{folder}/{rank}-stack", "w")
    except FileNotFoundError:
        if os.path.isdir(folder):
            raise
        return  # the caller is gone, and its reaper has deleted the folder
    with stack:
        if hasattr(faulthandler, "register"):  # not on Windows
            faulthandler.register(signal.SIGTERM, stack, all_threads=False, chain=True)
            os.register_at_fork(after_in_child=partial(faulthandler.unregister, signal.SIGTERM))
        joined = False
        while next_word(caller) == CALL:
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
    finish()


def move_to(network: list[str]) -> None:
    """Leave this machine's network for that of a cluster's host, by the namespaces that it names."""
    for path in network:
        libc = ctypes.CDLL(None, use_errno=True)  # from Python 3.12 on, this is os.setns
        with open(path) as namespace:
            if libc.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), "a rank could not enter its host", path)
    if network:
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"


def settle(files: str, path: list[str], start_method: str, cores: int) -> None:
    """Begin as a fresh Python that the caller has started does, where multiprocessing does not see to it."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C reaches the caller alone, which ends the rank with all that it has started
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gc.freeze()  # what the fork server has loaded stays, and is not searched again and again, nor copied for that
    for one in list(getattr(weakref.finalize, "_registry", ())):  # nor is it taken apart at the end
        one.atexit = False
    atexit.unregister(getattr(sys.modules.get("torch._dynamo.utils"), "dump_compile_times", finish))
    sys.path[:] = path
    multiprocessing.set_start_method(start_method, force=True)  # a DataLoader in a rank is to work as in the caller
    torch.seed()
    set_all_cores(cores)
    torch.set_num_threads(cores)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    log = os.open(f"{files}-log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)  # of all beneath Python
    for file, number in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(file, number)
    sys.stdout = sys.stderr = open(f"{files}-printed", "w", 1, "utf-8", "backslashreplace")


def finish() -> None:
    """Do what every Python does at its end: a fork ends by `os._exit`, which loses what is not written yet."""
    atexit._run_exitfuncs()
    for one in gc.get_objects():
        if issubclass(type(one), io.IOBase):
            with suppress(Exception):  # it is closed
                one.flush()


def next_word(caller: Connection) -> bytes:
    """What the caller says next; LEAVE if it is gone."""
    try:
        return caller.recv_bytes()
    except (EOFError, OSError):
        return LEAVE


def join_group(folder: str, rank: int, world_size: int, backend: str) -> None:
    """Make this process one of the group; blocks until all ranks are there."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
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
    return cloudpickle.dumps(fn(rank, *args))


def loopback() -> str:
    """The network interface of this machine with itself, which spares Gloo to look up a host name; "" if unknown."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "")
