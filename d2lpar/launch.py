"""`RankGroup` and `run_ranks`: a function, called in several processes at once.

`fn` travels to a rank by its name or, where it is defined in a notebook or a script, as it is, with the functions,
classes and values that it uses; the program that started it is not run again, so a script needs no
`if __name__ == "__main__"`.
"""

from __future__ import annotations

import io
import linecache
import marshal
import math
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, process, resource_tracker, util
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Protocol

import cloudpickle
import torch
import torch.distributed as dist

from d2lpar._rank import CALL, LEAVE, live
from d2lpar.checks import check_counts
from d2lpar.devices import all_cores, device_cores
from d2lpar.interrupts import Waiting, uninterrupted

_LOOK_S = 0.02  # the caller looks this often for news
_GRACE_S = 1.0  # between asking a process to end and killing it
# What Gloo says on a rank that has lost another. Where fn itself leaves the group on its way out of an error, as by
# `finally: dist.destroy_process_group()`, such a rank may raise before the one that is to blame: nothing else tells.
_PEER_LOST = re.compile(r"[Cc]onnection (?:closed|reset) by peer|Broken pipe|remote process exited")
_ESCAPED = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")  # how faulthandler writes letters beyond ASCII
_HERE = Path(__file__).parent
_starting = threading.Lock()
# set by pytest for each test, by our figures, and by PyTorch as it loads what optimizers need
_OF_NO_MATTER = {"PYTEST_CURRENT_TEST", "SOURCE_DATE_EPOCH", "TORCHINDUCTOR_CACHE_DIR"}
_first: list = []  # the program and its environment, as they were when the fork server was started


class Hosts(Protocol):
    """What `RankGroup` needs of a set of hosts; a `d2lpar.cluster.Cluster` has it."""

    def network(self, rank: int) -> list[str]:
        """The namespace files that a rank's process must enter, in this order, to run on its host."""
        ...


class RankError(RuntimeError):
    """One of the ranks failed; the message names it and holds its traceback."""


class RankGroup:
    """`world_size` processes that form one process group, and stay for many calls.

    They are started by the first `run`, and live until `close`, or as long as this object or the program; after a call
    that failed the next one starts fresh ones. The group's backend is the one that is named, "nccl" or "gloo"; else
    NCCL where each rank can have a GPU of its own, which is then its current device, and otherwise Gloo, with the share
    of the cores that a virtual device has; if there are GPUs, but not enough, it says so.

        with RankGroup(2) as ranks:
            ranks.run(fn, X)

    The ranks keep what they have once loaded: after an edit of a module that `fn` imports, or of `os.environ`, `close`
    the group, and the next call finds all that is new.

    On Linux without GPUs a program's first group loads PyTorch into a process that stays as long as the program: the
    fork server of `multiprocessing`, with 460 MB. Ranks are its forks, in the folder that is current then, but with the
    first start's umask, limits and cores, and with one seed for the hashes of strings, other than under `torchrun`.
    Elsewhere, and where `os.environ` has changed since, which libraries read as they load, ranks are fresh Pythons:
    that takes seconds.

    On a `cluster`, rank r communicates from host r % hosts; all ranks share this machine's cores, as without one.

    Once the group is closed no rank is left, nor a process that a rank has started, but for those that have left the
    rank's process group, as daemons do. On Linux and macOS that also holds if the caller is killed, unless it was just
    starting a rank; where the caller has copies, made by `os.fork`, when they are gone too.
    """

    def __init__(self, world_size: int, backend: str | None = None, cluster: Hosts | None = None) -> None:
        check_counts(the_number_of_ranks=world_size)
        backend = backend or ("gloo" if cluster else _backend(world_size))
        if cluster and backend != "gloo":
            raise ValueError(f"on the hosts of a cluster ranks communicate by Gloo, got backend={backend!r}")
        self.world_size, self.backend, self.cluster = world_size, backend, cluster
        self._started: _Started | None = None
        self._running = threading.Lock()

    def run(self, fn: Callable, *args: Any, timeout_s: float = 300.0) -> list:
        """Run `fn(rank, *args)` on every rank; give the results in rank order.

        Blocks until all ranks have finished. What Python prints on rank 0 is shown at once, that of the others when
        all have ended, in rank order. Arguments and results are pickled: tensors travel by value. What `fn` leaves
        behind in its process, such as the state of a random generator, is there for the next call. An interrupt goes
        to the program's own handler; if that raises, as Python's does, the ranks are ended.

        Args:
            fn: any function, also one that is defined in a notebook.
            timeout_s: for everything, the start of the processes included, until the results are there to be read.

        Raises:
            ValueError: before any process is started, if `fn` or `args` cannot be sent to another process.
            RankError: if `fn` raised on a rank, or the rank's process died, or its result cannot be read here; the one
                that failed first. The others are ended at once. A deleted temporary folder raises it, too.
            TimeoutError: after `timeout_s`, with where each rank stood.
        """
        if not timeout_s > 0:  # NaN would wait for ever
            raise ValueError(f"the time-out must be more than 0 seconds, got {timeout_s}")
        deadline = time.monotonic() + timeout_s
        call = _pickle_call(fn, args)
        # an interrupt is looked for where there is time for it, so that it never finds a process that nobody knows of
        with self._running, uninterrupted(math.inf) as interrupts:
            started = self._own()
            if started is None or any(rank.has_ended() for rank in started.ranks):
                self.close()  # of a group that has lost a rank
                started = self._started = _Started()
            try:
                started.start(self.world_size, self.backend, self.cluster, deadline, timeout_s, interrupts)
                _write(Path(started.folder, "call"), call)
                for rank in started.ranks:
                    rank.tell(CALL)
                _wait_for_results(started.ranks, deadline, timeout_s, interrupts)
                for rank in started.ranks:
                    rank.show_prints()
                return [rank.result() for rank in started.ranks]
            except BaseException as error:
                self._started, is_lost = None, not os.path.isdir(started.folder)
                started.end()
                if is_lost and isinstance(error, OSError | RankError) and not isinstance(error, TimeoutError):
                    raise RankError(f"the folder {started.folder}, into which ranks write what they return, was "
                                    "deleted: the ranks were ended, and the next call starts new ones. Something on "
                                    "this machine deletes temporary files that are still in use") from error
                raise

    def close(self) -> None:
        """End the ranks, which leave their process group first; nothing happens if there are none."""
        with uninterrupted(math.inf):
            started, self._started = self._own(), None
            if started is not None:
                for rank in started.ranks:
                    rank.tell(LEAVE)
                _wait_for_ends(started.ranks, 5 * _GRACE_S)
                started.end()

    def _own(self) -> _Started | None:
        """The ranks, unless this is a copy of the process that has started them, made by os.fork."""
        return self._started if self._started and self._started.owner == os.getpid() else None

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def run_ranks(fn: Callable, world_size: int, *args: Any, timeout_s: float = 300.0) -> list:
    """Run `fn(rank, *args)` in `world_size` new processes that form one group; give the results in rank order.

    A `RankGroup` for one call: see there, and its `run` for arguments, prints, results and errors.
    """
    with RankGroup(world_size) as group:
        return group.run(fn, *args, timeout_s=timeout_s)


class _Started:
    """The processes of a group, their folder, and the reaper; ended at the latest with the last reference to it."""

    def __init__(self) -> None:
        self.owner, self.folder = os.getpid(), _temporary_folder()
        try:
            with _standard_streams():
                self.method = _start_method()
                # the server's socket is in the second
                folders = [self.folder, *[util.get_temp_dir()] * (self.method == "forkserver")]
                self.reaper = subprocess.Popen([sys.executable, "-I", "-S", _HERE / "_reaper.py", *folders], bufsize=0,
                                               stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL, process_group=0)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.ranks: list[_Rank] = []
        self.end = util.Finalize(self, _end, (self.ranks, self.reaper, self.folder), exitpriority=0)

    def start(self, world_size: int, backend: str, cluster: Hosts | None, deadline: float, timeout_s: float,
              interrupts: Waiting | None) -> None:
        """Start the processes, unless they are there."""
        assert self.reaper.stdin is not None

        def look() -> None:
            _obey(interrupts)
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s} s, only {len(self.ranks)} of {world_size} ranks had been "
                                   "started")

        for rank in range(len(self.ranks), world_size):
            look()
            network = cluster.network(rank) if cluster else []
            with _standard_streams():
                self.ranks.append(_Rank(self.method, rank, world_size, self.folder, backend, network, look))
            self.method = self.ranks[-1].method  # no more forks if there was none for this rank
            self.reaper.stdin.write(b"%d\n" % self.ranks[-1].pid)


class _Rank:
    """A rank's process as its caller sees it, and the files it writes.

    `result` or `error`, one of them, as its last act; `printed` by Python; `log` by everything beneath it, such as
    the greetings of Gloo; `stack`, where it stood when it was asked to end.
    """

    def __init__(self, method: str, rank: int, world_size: int, folder: str, backend: str, network: list[str],
                 look: Callable[[], None]) -> None:
        self.name, self._prefix, self._printed = f"rank {rank}", Path(folder, f"{rank}-"), 0
        theirs, self.words = multiprocessing.Pipe(duplex=False)
        settings = (folder, rank, world_size, backend, theirs, sys.path, multiprocessing.get_start_method(),
                    all_cores(), network)
        with theirs:
            try:
                self.method, self.process = _start_process(method, settings, look)
            except BaseException:
                self.words.close()
                raise
        # else at its end the program would wait for ranks, and so would its copies, of which they are no children
        process._children.discard(self.process)  # pyrefly: ignore[missing-attribute]
        self.pid = self.process.pid

    def tell(self, word: bytes) -> None:
        with suppress(OSError):  # it has died
            self.words.send_bytes(word)

    def has_ended(self) -> bool:
        if self.process.exitcode is None and self.method == "spawn" and hasattr(os, "killpg"):  # not on Windows
            try:
                os.kill(self.pid, 0)
            except OSError:  # where SIGCHLD is ignored, a child's end is not reported
                return True
        return self.process.exitcode is not None

    def forget(self) -> None:
        """Give back what the process had here, once it has been killed."""
        _wait_for_ends([self], 5 * _GRACE_S)
        with suppress(ValueError):  # how it ended is unknown
            self.process.close()
        self.words.close()

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        with suppress(OSError, AttributeError):  # all are gone; or this is Windows
            # Nobody holds back the number of a rank that has ended and has left no process in its group. Another
            # process gets it only after all other numbers have had their turn.
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()  # it may have left its group

    def file(self, what: str) -> Path:
        return Path(f"{self._prefix}{what}")

    def text(self, what: str) -> str:
        return self.file(what).read_bytes().decode("utf-8", "replace") if self.file(what).exists() else ""

    def show_prints(self, unfinished: bool = True) -> None:
        """Print what is new, the last line only if it is finished or nothing more will come."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        for line in re.findall(r".*\n|.+", self.text("printed")[self._printed:]):
            if not line.endswith("\n") and not unfinished:
                break
            self._printed += len(line)
            last = line.rstrip("\r\n").rpartition("\r")[2]  # of a line that was overwritten, such as a bar's
            print(f"{self.name}: {last}".encode(encoding, "backslashreplace").decode(encoding), flush=True)

    def result(self) -> Any:
        """What the function returned; asked for once."""
        try:
            return pickle.loads(self.file("result").read_bytes())
        except Exception as error:
            raise RankError(f"what {self.name} returned cannot be read here: {error!r}") from error
        finally:
            self.file("result").unlink()

    def has_lost_a_peer(self) -> bool:
        """Whether its error is about another rank's end."""
        return bool(_PEER_LOST.search(self.text("error").rpartition("\nRuntimeError: ")[2]))

    def where(self) -> str:
        """Where it stood when it was asked to end, with the lines of code that faulthandler does not know."""
        if self.file("result").exists():
            return "fn had returned"
        if not self.file("stack").exists():
            return "it was starting still"
        lines = []
        stack = _ESCAPED.sub(lambda found: chr(int(found[0][2:], 16)), self.text("stack"))
        for line in stack.partition(f'\n  File "{_HERE / "_rank.py"}"')[0].splitlines():
            place = re.match(r'  File "(.*)", line (\d+) in ', line)
            source = linecache.getline(place[1], int(place[2])).strip() if place else ""
            lines += [line, *[f"    {source}"] * bool(source)]
        return "\n".join(lines) or "it did not say where: stopped, or deaf to SIGTERM"

    def why_dead(self) -> str:
        code = self.process.exitcode
        names = {number.value: number.name for number in signal.Signals}
        if code is None:
            how = "ended (how is unknown, as this program ignores SIGCHLD)"
        else:
            how = f"was killed by {names.get(-code, f'signal {-code}')}" if code < 0 else f"ended with exit code {code}"
        when = "after" if self.file("result").exists() else "before"
        folder, full = self._prefix.parent, ""
        with suppress(OSError):  # the folder is gone
            if shutil.disk_usage(folder).free < 2**16:
                full = f". The disk with {folder}, into which ranks write what they return, is full"
        return f"{self.name} {how} {when} fn had returned{full}\n\n{self.text('log')[-2000:]}".rstrip()


def _temporary_folder() -> str:
    """A new folder for a group."""
    try:
        return tempfile.mkdtemp(prefix="d2lpar-")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"ranks need a folder for temporary files, and {tempfile.gettempdir()} is no longer "
                                "there: create it, or set TMPDIR to a different one and start again") from error


def _write(path: Path, data: bytes) -> None:
    """Write a file; unlike Python's, an error such as that of a full disk names the file."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _standard_streams() -> Iterator[None]:
    """Hold the numbers 0, 1 and 2 where the program was started without them, so that no pipe of ours gets one.

    A rank and C libraries take these for their input and output, whatever they are.
    """
    held = [os.open(os.devnull, os.O_RDWR)]
    while held[-1] <= 2:
        os.set_inheritable(held[-1], True)  # what is started in here has them, too
        held.append(os.open(os.devnull, os.O_RDWR))
    try:
        yield
    finally:
        for number in held:
            os.close(number)


def _start_process(method: str, settings: tuple, look: Callable[[], None]) -> tuple[str, Any]:
    """A new process for a rank, and the method that has started it: if the fork server fails, a fresh Python.

    While the server does not answer, `look` is called again and again. If it raises, the server is ended.
    """
    context: Any = multiprocessing.get_context(method)
    process, errors = context.Process(target=live, args=settings), []

    def start() -> None:
        try:
            with _for_children():
                process.start()
        except Exception as error:
            errors.append(error.with_traceback(None))  # which would keep its pipes open

    if method != "forkserver":
        with _for_children():
            process.start()
        return method, process
    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    try:
        while thread.join(_LOOK_S) or thread.is_alive():
            look()
    except BaseException:
        thread.join(_GRACE_S)  # the server may just have answered
        if thread.is_alive():
            _end_server()
            thread.join()
        if process.pid is not None:
            process.kill()
            process.join()
            process.close()
        raise
    if errors:
        _end_server()
        return _start_process("spawn", settings, look)
    return method, process


def _end_server() -> None:
    """Kill the fork server, and wait for its end; the next group that needs one starts it again."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        with suppress(OSError):
            os.kill(server._forkserver_pid, signal.SIGKILL)
            server._stop()


@contextmanager
def _for_children() -> Iterator[None]:
    """What a process must find that is started in here, while no other thread starts one."""
    masks = hasattr(signal, "pthread_sigmask")  # not on Windows
    with _starting:
        program, threads = sys.modules["__main__"], os.environ.get("OMP_NUM_THREADS")
        # Ctrl-C in a terminal reaches all that is started here, and must not end a process that loads
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else set()
        try:
            sys.modules["__main__"] = ModuleType("__main__")  # or multiprocessing would run the program's file again
            os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun does; and a fork has no thread but the one that forks
            yield
        finally:
            sys.modules["__main__"] = program
            os.environ.pop("OMP_NUM_THREADS")
            os.environ.update({} if threads is None else {"OMP_NUM_THREADS": threads})
            if masks:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _in_groups_of_their_own() -> Iterator[None]:
    """Start the processes that serve multiprocessing outside the caller's process group.

    An IPython kernel that is shut down waits until its group has no other process, and the resource tracker ignores
    SIGTERM. Jupyter would then kill the kernel after five seconds, and what it has yet to delete would stay.
    """
    spawn, move = util.spawnv_passfds, "import os, sys; os.setpgid(0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    util.spawnv_passfds = lambda path, args, passfds: spawn(
        path, [path, "-I", "-S", "-c", move, *args], passfds)
    try:
        yield
    finally:
        util.spawnv_passfds = spawn


def _start_method() -> str:
    """How multiprocessing is to start ranks: as forks of its server, which then runs, or else as fresh Pythons."""
    if sys.platform != "linux" or torch.cuda.device_count():  # forks of a loaded PyTorch are only tried without both
        return "spawn"
    here = os.getpid(), {name: value for name, value in os.environ.items() if name not in _OF_NO_MATTER}
    if not _first:
        # every optimizer needs torch._dynamo, which takes longer to load than a rank takes to start
        forkserver.set_forkserver_preload(["torch.distributed", "cloudpickle", "torch._dynamo", "filelock"])
        _first.append(here)
    if _first != [here]:  # in a copy of the program, made by os.fork, the server is not its child
        return "spawn"
    try:
        with _in_groups_of_their_own():
            resource_tracker.ensure_running()  # else the server's start would do it, and let SIGINT through again
            with _for_children():
                forkserver.ensure_running()
    except OSError:  # the name of the folder for temporary files is too long for a socket in it
        return "spawn"
    return "forkserver"


def _obey(interrupts: Waiting | None) -> None:
    """Call the program's own handler for interrupts that wait; it need not raise."""
    if interrupts is not None and interrupts.count:
        interrupts.count = 0
        interrupts.handler(signal.SIGINT, interrupts.frame)


def _wait_for_results(ranks: Sequence[_Rank], deadline: float, timeout_s: float, interrupts: Waiting | None) -> None:
    while waiting := [rank for rank in ranks if not rank.file("result").exists()]:
        _obey(interrupts)
        ranks[0].show_prints(unfinished=False)
        failed = [rank for rank in waiting if rank.file("error").exists()]
        if failed:
            time.sleep(0.1)  # the end of a process can show later than the error of a rank that lost it as a peer
            if all(rank.has_lost_a_peer() for rank in failed):
                time.sleep(1.0)  # and so can the error of a process that has left the group on its way out
        for rank in ranks:
            if rank.has_ended() and not rank.file("error").exists():
                raise RankError(rank.why_dead())
        if failed:
            failed = [rank for rank in waiting if rank.file("error").exists()]
            first = min(failed, key=lambda rank: (rank.has_lost_a_peer(), rank.file("error").stat().st_mtime_ns))
            raise RankError(f"{first.name} raised an exception\n\n{first.text('error')}".rstrip())
        if time.monotonic() > deadline:
            _ask_to_end(ranks)
            stood = [f"{rank.name}: {rank.where()}" for rank in ranks]
            raise TimeoutError(f"after {timeout_s} s, {', '.join(rank.name for rank in waiting)} of {len(ranks)} ranks "
                               "had not finished\n\n" + "\n\n".join(stood))
        time.sleep(_LOOK_S)


def _end(ranks: Sequence[_Rank], reaper: subprocess.Popen, folder: str) -> None:
    """Leave no process, whatever it is doing, and no file."""
    try:
        _ask_to_end(ranks)
        for rank in ranks:
            rank.kill()
        reaper.kill()  # before the ranks are forgotten: it must not know numbers that may be somebody else's
        reaper.communicate()
        for rank in ranks:
            rank.forget()
            rank.show_prints()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ask_to_end(ranks: Sequence[_Rank]) -> None:
    for rank in ranks:
        rank.process.terminate()  # it writes down where it stands, unless it takes the signal for itself
    _wait_for_ends(ranks, _GRACE_S)


def _wait_for_ends(ranks: Sequence[_Rank], patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not all(rank.has_ended() for rank in ranks) and time.monotonic() < end:
        time.sleep(_LOOK_S)


def _backend(world_size: int) -> str:
    """NCCL if each rank can have a GPU, otherwise Gloo; where there are too few GPUs it is said."""
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if 0 < gpus < world_size:
        print(f"{world_size} ranks, but GPUs: {gpus}. NCCL needs one for each rank, so all of them compute on the CPU "
              "and talk by Gloo.")
    return "nccl" if gpus >= world_size else "gloo"


class _Pickler(cloudpickle.Pickler):
    """Code keeps the name of its file, which tracebacks show; cloudpickle writes down another one, from 3.1.3 on."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            return marshal.loads, (marshal.dumps(obj),)  # for one and the same Python, which the ranks' is
        return super().reducer_override(obj)


def _pickle_call(fn: Callable, args: tuple) -> bytes:
    """`fn` and `args`, and the source of what has no file, such as a notebook's cells, for tracebacks."""
    cells = {name: entry for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None}
    written = io.BytesIO()
    try:
        _Pickler(written).dump((fn, args, cells, device_cores()))
    except Exception as error:
        raise ValueError(f"fn and its arguments must be such that they can be pickled: {error}") from error
    return written.getvalue()
