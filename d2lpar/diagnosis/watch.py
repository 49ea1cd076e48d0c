"""A data-parallel script as it is: run it on k ranks, watch it, and say in words what is wrong, with its line.

`python -m d2lpar watch train.py` starts the script's ranks, each with the hooks of `watching`, and ends them when
enough was seen; `judging` says what the records mean. Where a factor may be the script's own, it is run once more as a
single process, which shows whether the factor depends on the number of ranks.
"""

from __future__ import annotations

import json
import linecache
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from d2lpar.diagnosis.compare import Diagnosis
from d2lpar.diagnosis.judging import UNCHECKED, Ran, Scale, judge, scale_fault
from d2lpar.diagnosis.recording import NOT_THE_SCRIPT
from d2lpar.diagnosis.watching import ROOT, SETTINGS, Settings
from d2lpar.processes.rank import loopback

LOOK_S = 0.1
IDLE_S = 10.0  # without a record and without work, while a rank waits in PyTorch
PATIENCE_S = 5.0  # for the other ranks, when one has seen enough or has ended
LAST_LINES = 12  # of the script's output, shown after an error
KEEPER = Path(ROOT, "d2lpar", "processes", "keeper.py")
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.M)
WAITS = re.compile(rf"{re.escape(os.sep)}torch{re.escape(os.sep)}(?!utils|hub)")


class NotRun(Exception):
    """The script cannot be run, or makes no step; the text says why."""


def watch(words: Sequence[str], ranks: int = 2, allow: Iterable[str] = (), show: bool = False,
          to_the_end: bool = False) -> Diagnosis:
    """Run a script on so many ranks of this machine, and say what is wrong with it.

    Args:
        words: the script and its arguments, or "-m", a module, and its arguments.
        ranks: how many, if the script leaves that to torchrun.
        allow: names of findings that are intended, and count as notes.
        show: let the script print; by default its output is shown only after an error.
        to_the_end: let the script end by itself, after enough was seen.

    Raises:
        NotRun: if it ends before it makes a step, and for no reason that has to do with ranks.
    """
    found, scale, ran = _watch_once(words, ranks, allow, show, to_the_end)
    if scale and not scale.is_clear and not found.is_decided:
        alone, again = None, None
        with suppress(NotRun):
            _, alone, again = _watch_once(words, 1, allow, False, False)
        scale_fault(scale, ran.k, alone if again and again.k == 1 else None, found)
    return found


def _watch_once(words: Sequence[str], k: int, allow: Iterable[str], show: bool,
                to_the_end: bool) -> tuple[Diagnosis, Scale | None, Ran]:
    ran = run_watched(words, k, show, to_the_end)
    if ran.crashed and not any(ran.steps) and not ran.stands:
        without = run_watched(words, k, show, to_the_end, pretend=False)  # no GPU instead of one that is not there
        ran = without if any(without.steps) or not without.crashed else ran
    name = next((os.path.basename(word) for word in words if word != "-m"), "?")
    steps = [len(steps) for steps in ran.steps]
    most = max(steps, default=0)
    about = f"watched {name} on {ran.k} ranks, for {most} step{'s' * (most != 1)}"
    found = Diagnosis(about, allow, UNCHECKED, watched=True)
    scale = judge(ran, found)
    if not most and found.ok:
        raise NotRun(_why(ran))
    return found, scale, ran


def _why(ran: Ran) -> str:
    error = next((data["error"] for rank in ran.of("end") for data in rank if data["error"]), "")
    return (f"the script ended before it made a step: {error}\n{ran.output}" if ran.crashed else
            "the script made no step with an optimizer of torch.optim").rstrip()


def run_watched(words: Sequence[str], k: int, show: bool = False, to_the_end: bool = False,
                pretend: bool = True) -> Ran:
    """Run a script on k ranks, and give what was noted."""
    with _Run(k, show) as run:
        run.start(words, Settings(str(run.folder), k, _free_port(), pretend, to_the_end, spawns=False))
        run.attend()
        if any(rank and rank[0][0] == "spawns" for rank in run.records()):
            run.end()
            run.clear()
            run.start(words, Settings(str(run.folder), k, _free_port(), pretend, to_the_end, spawns=True))
            run.attend()
        return run.ran()


class _Run:
    """The processes of a run, and the folder with their records; nothing is left of either at the end."""

    def __init__(self, k: int, show: bool) -> None:
        self.k, self.show, self.folder = k, show, Path(tempfile.mkdtemp(prefix="d2lpar-watch-"))
        self.keeper = subprocess.Popen([sys.executable, "-I", "-S", str(KEEPER), str(self.folder)], bufsize=0,
                                       stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       process_group=0)
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        for file in self.folder.iterdir():
            file.unlink()
        self.processes: list[subprocess.Popen] = []
        self.spawns, self.stands = False, ""
        self.killed: set[int] = set()
        self._read: dict[int, tuple[int, list]] = {}  # by rank: up to where, and what

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        self.keeper.kill()
        self.keeper.wait()
        assert self.keeper.stdin is not None
        self.keeper.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, words: Sequence[str], settings: Settings) -> None:
        """Start the script as torchrun would, or once if it starts its ranks itself."""
        code = (f"import sys; sys.path.insert(0, {ROOT!r}); from d2lpar.diagnosis.watching import run_script; "
                f"del sys.path[0]; run_script(sys.argv[1:])")
        self.spawns = settings.spawns
        common = {SETTINGS: json.dumps(settings._asdict()), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
                  "GLOO_SOCKET_IFNAME": loopback(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(settings.port)}
        of_ranks = [{"RANK": r, "LOCAL_RANK": r, "WORLD_SIZE": self.k, "LOCAL_WORLD_SIZE": self.k, "GROUP_RANK": 0,
                     "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0}
                    for r in range(1 if settings.spawns else self.k)]
        assert self.keeper.stdin is not None
        for r, variables in enumerate(of_ranks):
            env = os.environ | common | {} if settings.spawns else os.environ | common | {
                name: str(value) for name, value in variables.items()}
            output = None if self.show else open(self.folder / f"{r}.output", "wb")  # noqa: SIM115
            self.processes.append(subprocess.Popen(
                [sys.executable, "-c", code, *(word.replace("{rank}", str(r)) for word in words)], env=env, stdin=subprocess.DEVNULL, stdout=output or sys.stderr,
                stderr=output or sys.stderr, start_new_session=True))
            self.keeper.stdin.write(b"%d\n" % self.processes[-1].pid)
            if output:
                output.close()

    def attend(self) -> None:
        """Wait until all ranks have ended or seen enough, or wait for one another; then end them."""
        size, since, work, first_end = -1, time.monotonic(), 0.0, 0.0
        while any(process.poll() is None for process in self.processes):
            time.sleep(LOOK_S)
            now = sum(file.stat().st_size for file in self.folder.iterdir())
            spent = self._work_s()
            if now != size or spent > work + 0.5:
                size, since, work = now, time.monotonic(), spent
            idle, enough = time.monotonic() - since, self._have_seen_enough()
            has_failed = any(process.poll() for process in self.processes)
            first_end = first_end or (time.monotonic() if enough or has_failed else 0.0)
            if enough and enough == self._expected():
                break
            if first_end and time.monotonic() - first_end > PATIENCE_S and idle > PATIENCE_S / 2:
                break
            if idle > IDLE_S and (self._stand() or idle > 60 * IDLE_S):
                break
        self.end()

    def _expected(self) -> int:
        return self.k if not self.spawns else max((data["world_size"] for rank in self.records() for kind, data in rank
                                                   if kind == "group"), default=self.k)

    def _have_seen_enough(self) -> int:
        """How many ranks."""
        return sum(any(kind == "end" and data["enough"] for kind, data in rank) for rank in self.records())

    def _work_s(self) -> float:
        """How long the processes have worked, with those they have started."""
        total = 0.0
        for process in Path("/proc").glob("[0-9]*/stat") if sys.platform == "linux" else ():
            with suppress(OSError, ValueError, IndexError):
                fields = process.read_text().rpartition(")")[2].split()
                if int(fields[3]) in {one.pid for one in self.processes}:  # the session
                    total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def _stand(self) -> bool:
        """Ask all ranks where they stand; whether one waits in PyTorch."""
        pids = {r: data["pid"] for r, rank in enumerate(self.records()) for kind, data in rank if kind == "group"}
        for pid in pids.values():
            with suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        stands, waits = [], False
        for r, rank in enumerate(self.records()):
            if any(kind == "end" for kind, _ in rank):
                stands.append(f"rank {r} has ended")
                continue
            file = self.folder / f"{r}.stack"
            frames = FRAME.findall(file.read_text("utf8", "replace")) if file.exists() else []
            file.unlink(missing_ok=True) if not frames else None
            own = [frame for frame in frames
                   if not frame[0].startswith((*NOT_THE_SCRIPT, "<")) and "site-packages" not in frame[0]]
            waits = waits or bool(frames and WAITS.search(frames[0][0]))
            line = self.folder / f"{r}.line"
            if own:
                code = linecache.getline(own[0][0], int(own[0][1])).strip()
                stands.append(f"rank {r} stands in `{code}`, line {own[0][1]} of {os.path.basename(own[0][0])}")
            else:
                stands.append(f"rank {r} reached {line.read_text('utf8')} last" if line.exists() else
                              f"rank {r} has not begun")
        self.stands = "; ".join(stands) if waits else ""
        return waits

    def end(self) -> None:
        """Kill what is still running, with all that it has started."""
        for process in self.processes:
            if process.poll() is None:
                self.killed.add(process.pid)
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def records(self) -> list[list[tuple[str, dict[str, Any]]]]:
        """What the ranks have noted until now, as far as it is whole."""
        for path in self.folder.glob("*.records"):
            read, known = self._read.setdefault(int(path.stem), (0, []))
            if path.stat().st_size > read:
                with open(path, "rb") as file:
                    file.seek(read)
                    with suppress(EOFError, pickle.UnpicklingError):
                        while True:
                            known.append(pickle.load(file))
                            read = file.tell()
                self._read[int(path.stem)] = read, known
        return [self._read.get(r, (0, []))[1] for r in range(max(self._read, default=-1) + 1)]

    def ran(self) -> Ran:
        """The run as it ended."""
        codes = [process.returncode if process.pid not in self.killed else 0 for process in self.processes]
        output = "\n".join(file.read_text("utf8", "replace") for file in sorted(self.folder.glob("*.output")))
        records = self.records()
        files = [self.folder / f"{r}.line" for r in range(len(records))]
        lines = [file.read_text("utf8") if file.exists() else "" for file in files]
        if any(code < 0 for code in codes):
            output += "\n" + ", ".join(signal.Signals(-code).name for code in codes if code < 0)
        crashed = any(codes) and not self.stands
        tail = "\n".join(output.rstrip().splitlines()[-LAST_LINES:])
        return Ran(len(records) or self.k, records, self.stands, crashed, tail, lines, self.spawns)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
