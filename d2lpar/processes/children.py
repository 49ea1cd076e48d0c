"""The processes of ranks: fresh Pythons or, on Linux without GPUs, copies of Pythons that have loaded PyTorch.

To load PyTorch takes some seconds of a core. So a process that has loaded it waits for each rank r, and every process
that becomes rank r is a copy of it. Ranks are not copies of one another: as under `torchrun`, each has hashes and
addresses of its own, so a set has another order on each.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
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
_BIRTH, _STATUS = 19, 49  # when a process was started, and how it ended: places in its /proc stat, from the state on
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
        self._reaped, self._birth = False, self._told()[_BIRTH]
        self._code: int | None = None

    def tell(self, word: bytes) -> None:
        """Send it a word."""
        with suppress(OSError):  # it has died
            self._caller.write(word)

    def has_ended(self) -> bool:
        """Whether the process is over."""
        return self._reaped or self._state() in "XZ"

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return not self._reaped and self._state() in "Tt"

    def kill_group(self) -> None:
        """Kill the process and all that it has started."""
        if not self._reaped and self._state() != "X":
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int | None:
        """Wait for its end, and forget it; its exit code, or None if nobody knows it."""
        if not self._reaped:
            while not self.has_ended():
                time.sleep(_LOOK_S)
            if (told := self._told())[0] == "Z" and told[_BIRTH] == self._birth:
                self._code = os.waitstatus_to_exitcode(int(told[_STATUS]))
            self._loaded.forget(self.pid)
            deadline = time.monotonic() + _PATIENCE_S
            while self._state() != "X":
                if time.monotonic() > deadline:  # it has been stopped by a signal, or worse
                    self._loaded.end()
                    break
                time.sleep(_LOOK_S / 10)
            self._reaped = True
            self._caller.close()
        return self._code

    def _state(self) -> str:
        """A letter of /proc; X if its number is nobody's any more, or another's."""
        told = self._told()
        return told[0] if told[_BIRTH] == self._birth else "X"

    def _told(self) -> list[str]:
        """What /proc says of the process, from its state on."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
        except (FileNotFoundError, ProcessLookupError):
            return ["X"] * 50


class Lost(Exception):
    """A loaded process has ended."""


class Loaded:
    """A process that has loaded PyTorch, and makes copies of itself.

    It ends with this object, with the program, or when it has had no copy for some minutes.
    """

    def __init__(self, surroundings: tuple, environment: Mapping[str, str], log: IO[bytes]) -> None:
        self.surroundings, self._alone = surroundings, threading.Lock()
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
        self.end.atexit = False  # pyrefly: ignore[missing-attribute]  # at the end of the program they all end, after the ranks

    def is_there(self) -> bool:
        """Whether nobody has ended it."""
        return self._process.poll() is None

    def copy(self, settings: list[str], log: IO[bytes], look: Callable[[], None]) -> Copy:
        """A copy of the process as the rank that `settings` describe.

        Args:
            look: called while this waits; what it raises ends the waiting, and the loaded process.

        Raises:
            Lost: if somebody has killed it.
        """
        asked = json.dumps([[name for name in _PASSED_ON if name in sys.modules], *settings]).encode()
        while not self._alone.acquire(timeout=_LOOK_S):
            look()
        theirs, ours = os.pipe()
        caller = os.fdopen(ours, "wb", buffering=0)
        try:
            self._send(asked, theirs, log.fileno())
            while not select.select([self._control], [], [], _LOOK_S)[0]:
                look()
            return Copy(self._answer(), caller, self)
        except BaseException:  # a copy that has been made nevertheless has nobody to tell it anything, and leaves
            caller.close()
            self.end()
            raise
        finally:
            os.close(theirs)
            self._alone.release()

    def forget(self, pid: int) -> None:
        """Let a copy that has ended go, so that its number is free."""
        with suppress(Lost):
            self._send(b"%d" % pid)

    def _send(self, word: bytes, *files: int) -> None:
        try:
            socket.send_fds(self._control, [word], files, socket.MSG_DONTWAIT)
        except OSError as error:
            raise Lost from error

    def _answer(self) -> int:
        try:
            return int(self._control.recv(100))
        except (OSError, ValueError) as error:  # ValueError: it says nothing any more
            raise Lost from error


def _end(owner: int, process: subprocess.Popen, control: socket.socket) -> None:
    control.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()
    else:
        process.returncode = 0  # this is a copy of the caller, made by os.fork: it is not ours


_loaded: dict[int, Loaded] = {}  # by rank
every_loaded: weakref.WeakSet[Loaded] = weakref.WeakSet()  # those too that make no more copies


def _end_all() -> None:
    for loaded in list(every_loaded):
        loaded.end()


weakref.finalize(Loaded, _end_all)  # made first, so called last: after those of the ranks


def copies_can_be_made(backend: str) -> bool:
    """Whether a copy of a loaded process works as a fresh one does."""
    if sys.platform != "linux" or backend != "gloo" or torch.cuda.is_available():  # a GPU's driver cannot be copied
        return False
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # /proc tells how the copies are, if it is ours
    except OSError:
        return False


def load(rank: int, backend: str, environment: Mapping[str, str], log: Path) -> None:
    """Let a process load PyTorch, of which `start` makes rank `rank`, unless it is there or copies cannot be made."""
    if not copies_can_be_made(backend):
        _loaded.pop(rank, None)
        return
    surroundings = _surroundings(environment)
    there = _loaded.get(rank)
    if there is None or there.surroundings != surroundings or not there.is_there():
        _loaded.pop(rank, None)
        with suppress(OSError), log.open("wb") as file:  # what cannot be started here is tried once more by `start`
            _loaded[rank] = Loaded(surroundings, environment, file)
            every_loaded.add(_loaded[rank])


def _surroundings(environment: Mapping[str, str]) -> tuple:
    """All that a process takes over from the one that starts it."""
    here = os.stat(".")
    status = [line for line in Path("/proc/thread-self/status").read_text("utf-8", "replace").splitlines()
              if line.startswith(("Umask", "SigBlk", "SigIgn", "Cpus_allowed:"))]
    return (os.getpid(), here.st_dev, here.st_ino, os.getpriority(os.PRIO_PROCESS, 0), status,
            Path("/proc/self/limits").read_bytes(), dict(environment))


def start(rank: int, settings: list[str], environment: Mapping[str, str], log: Path,
          look: Callable[[], None]) -> Child | Copy:
    """Start the process of a rank: a copy, if a process has been loaded for it; see `Loaded.copy`."""
    with log.open("ab") as file:
        if rank in _loaded:
            with suppress(Lost):
                return _loaded[rank].copy(settings, file, look)
        return Child(settings, environment, file)
