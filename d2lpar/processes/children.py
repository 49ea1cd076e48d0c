"""The processes of ranks: fresh Pythons or, on Linux without GPUs, copies of Pythons that have loaded PyTorch.

To load PyTorch takes some seconds of a core. So a process that has loaded it waits for each rank r, and every process
that becomes rank r is a copy of it. Ranks are not copies of one another: as under `torchrun`, each has hashes and
addresses of its own, so a set of words may have another order on each.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import torch

_RANK = Path(__file__).with_name("rank.py")
_LOOK_S = 0.02  # while it waits, the caller looks this often whether it should go on
_PATIENCE_S = 2.0  # with a loaded process that shall forget a copy
_PASSED_ON = ["torch._dynamo"]  # large, and needed by every optimizer; loaded where the caller has loaded it


class Child:
    """A rank's process that is a fresh Python."""

    def __init__(self, settings: list[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
        # -P: no path but the caller's; a group of its own: Ctrl-C reaches the caller, which ends the ranks
        self._process = subprocess.Popen([sys.executable, "-P", _RANK, *settings], env=environment, bufsize=0,
                                         stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0)
        self.pid = self._process.pid

    def tell(self, word: bytes) -> None:
        """Send it a word."""
        with suppress(OSError):  # it has died
            assert self._process.stdin is not None
            self._process.stdin.write(word)

    def has_ended(self) -> bool:
        """Whether the process is over; it is not reaped yet, so its number belongs to nobody else."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # it was reaped at once, because this program ignores SIGCHLD
            return True

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        with suppress(ChildProcessError, AttributeError):  # it has ended; or this is no Unix
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def kill_group(self) -> None:
        """Kill the process and all that it has started, unless it is reaped: then its number may be another's."""
        if self._process.returncode is not None:
            return
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL) if hasattr(os, "killpg") else self._process.kill()

    def reap(self) -> int | None:
        """Wait for its end, and forget it; its exit code, or minus the number of the signal that killed it."""
        code = self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        return code


class Copy:
    """A rank's process that is a copy of a loaded one, whose child it is; see `Child` for the methods."""

    def __init__(self, pid: int, caller: IO[bytes], loaded: Loaded) -> None:
        self.pid, self._caller, self._loaded = pid, caller, loaded
        self._reaped = False
        self._code: int | None = None
        try:
            self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # this process's for ever, and never another's
        except OSError as error:
            raise Lost from error

    def tell(self, word: bytes) -> None:
        """Send it a word."""
        with suppress(OSError):  # it has died
            self._caller.write(word)

    def has_ended(self) -> bool:
        """Whether the process is over."""
        return self._reaped or self._state() in b"XZ"

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return not self._reaped and self._state() in b"Tt"

    def kill_group(self) -> None:
        """Kill the process and all that it has started, unless it is reaped."""
        if not self._reaped and self._state() != b"X":
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int | None:
        """Wait for its end, and forget it; its exit code, or None if nobody knows it."""
        if not self._reaped:
            while not self.has_ended():
                time.sleep(_LOOK_S)
            with suppress(Lost):
                self._code = self._loaded.forget(self.pid)
            self._reaped = True
            os.close(self._stat)
            self._caller.close()
        return self._code

    def _state(self) -> bytes:
        """A letter of /proc, X if it is reaped."""
        try:
            return os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()[0]
        except ProcessLookupError:
            return b"X"


class Lost(Exception):
    """A loaded process has ended, or does not answer."""


class Loaded:
    """A process that has loaded PyTorch, and makes copies of itself.

    It ends with this object, with the program, or when it has had no copy for some minutes.
    """

    def __init__(self, surroundings: tuple, environment: Mapping[str, str], log: IO[bytes]) -> None:
        self.surroundings = surroundings
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen([sys.executable, "-P", _RANK], env=environment, stdin=theirs.fileno(),
                                             stdout=log, stderr=log, process_group=0)
        except BaseException:
            self._control.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.end = weakref.finalize(self, _end, os.getpid(), self._process, self._control)
        # pyrefly: ignore[missing-attribute]
        self.end.atexit = False  # at the end of the program all are ended together, after the ranks

    def is_there(self) -> bool:
        """Whether nobody has ended it."""
        return self._process.poll() is None

    def copy(self, settings: list[str], log: IO[bytes], look: Callable[[], None]) -> Copy:
        """A copy of the process as the rank that `settings` describe.

        Args:
            look: called while this waits; what it raises ends the waiting, and the copy that nobody has waited for.

        Raises:
            Lost: if it has ended.
        """
        theirs, ours = os.pipe()
        caller = os.fdopen(ours, "wb", buffering=0)
        try:
            modules = [name for name in _PASSED_ON if name in sys.modules]
            return Copy(self._ask([modules, *settings], look, theirs, log.fileno()), caller, self)
        except BaseException:  # a copy that nobody will tell anything leaves
            caller.close()
            raise
        finally:
            os.close(theirs)

    def forget(self, pid: int) -> int:
        """Let a copy that has ended go, so that its number is free; its exit code.

        Raises:
            Lost: if the process has ended, or has been stopped: then it does so when it goes on.
        """
        looks = itertools.count(1)  # and no clock, which goes on where the whole machine stands still

        def look() -> None:
            if next(looks) * _LOOK_S > _PATIENCE_S:
                raise Lost

        return self._ask([pid], look)

    def _ask(self, what: list, look: Callable[[], None], *files: int) -> int:
        """The answer, through a pipe of its own: nobody gets another's, whoever asks at the same time or gives up."""
        answer, theirs = os.pipe()
        try:
            try:
                socket.send_fds(self._control, [json.dumps(what).encode()], [theirs, *files], socket.MSG_DONTWAIT)
            except OSError as error:
                raise Lost from error
            finally:
                os.close(theirs)
            news = select.poll()
            news.register(answer, select.POLLIN)
            while not news.poll(1000 * _LOOK_S):
                look()
            if word := os.read(answer, 100):
                return int(word)
            raise Lost
        finally:
            os.close(answer)


def _end(owner: int, process: subprocess.Popen, control: socket.socket) -> None:
    control.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()
    else:
        process.returncode = 0  # this is a copy of the caller, made by os.fork: it is not ours


_loaded: dict[int, Loaded] = {}  # by rank, those that make copies
every_loaded: weakref.WeakSet[Loaded] = weakref.WeakSet()  # those too that make no more


def _end_all() -> None:
    for loaded in list(every_loaded):
        loaded.end()


weakref.finalize(Loaded, _end_all)  # made first, so called last: after those of the ranks


def copies_can_be_made(backend: str) -> bool:
    """Whether a copy of a loaded process works as a fresh one does."""
    if sys.platform != "linux" or backend != "gloo" or torch.cuda.device_count():  # a GPU's driver cannot be copied
        return False
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # /proc tells how the copies are, if it is ours
    except OSError:
        return False


def load(rank: int, backend: str, environment: Mapping[str, str], log: Path) -> Loaded | None:
    """Let a process load PyTorch, so that `start` can copy it as rank `rank`, unless one is there already.

    None if copies cannot be made.
    """
    if not copies_can_be_made(backend):
        return None
    with suppress(OSError):  # what cannot be started or found out here is told by `start`
        surroundings = _surroundings(environment)
        there = _loaded.get(rank)
        if there is None or there.surroundings != surroundings or not there.is_there():
            with log.open("wb") as file:
                there = _loaded[rank] = Loaded(surroundings, environment, file)
            every_loaded.add(there)
        return there
    return None


def _surroundings(environment: Mapping[str, str]) -> tuple:
    """What a process takes over from the one that starts it, as far as a program changes it."""
    here, status = os.stat("."), Path("/proc/thread-self/status").read_text("utf-8", "replace")
    names = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "NoNewPrivs", "Seccomp:", "Cpus_allowed:")
    return (os.getpid(), here.st_dev, here.st_ino, os.getpriority(os.PRIO_PROCESS, 0), dict(environment),
            Path("/proc/self/limits").read_bytes(), [line for line in status.splitlines() if line.startswith(names)])


def start(loaded: Loaded | None, settings: list[str], environment: Mapping[str, str], log: Path,
          look: Callable[[], None]) -> Child | Copy:
    """Start the process of a rank: a copy of `loaded`, see `Loaded.copy`, or a fresh Python."""
    with log.open("ab") as file:
        if loaded is not None:
            with suppress(Lost):
                return loaded.copy(settings, file, look)
        return Child(settings, environment, file)
