"""Run an unmodified data-parallel script on k ranks, watch it, and report what is wrong and on which line.

`python -m d2lpar watch train.py` starts the script's ranks, each with the hooks of `watching`, and ends them when
enough was seen; `judging` says what the records mean. Where a factor may be the script's own, it is run once more as a
single process, which shows whether the factor depends on the number of ranks.
"""

from __future__ import annotations

import json
import linecache
import math
import os
import pickle
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from d2lpar._rank import loopback
from d2lpar.checks import check_counts
from d2lpar.diagnosis.compare import UNJUDGED, Diagnosis, about_files
from d2lpar.diagnosis.feed import FEED_NAMES
from d2lpar.diagnosis.judging import UNCHECKED, Ran, Scale, judge, raised, scale_fault
from d2lpar.diagnosis.kept_files import KEEPS, KeptFiles, keep, locked, watched_folders
from d2lpar.diagnosis.put_back import put_back
from d2lpar.diagnosis.recording import TORCH, of_the_script
from d2lpar.diagnosis.resuming import compare_resumed, with_checkpoint
from d2lpar.diagnosis.rules import NAMES
from d2lpar.diagnosis.some_ranks import saves_on_all_ranks, under_rank_test
from d2lpar.diagnosis.watching import COPIED, COPIES, ROOT, SETTINGS, STACK_SIGNAL, Settings

LOOK_S = 0.1
PROGRESS_S = 2.0  # before the first line of progress
WORK_LOOK_S = 1.0  # between looks at the CPU time, for which all of /proc is read
IDLE_S = 10.0  # without a record and without work, while all ranks wait in PyTorch
LONG_IDLE_S = 60.0  # the same while only some do, and another may be downloading something
MOST_IDLE_S = 600.0  # the same while none does
LEAVING_S = 3.0  # for what a script does at its end, such as deleting temporary files
PATIENCE_S = 5.0  # for the other ranks, when one has seen enough or has ended
LAST_LINES = 12  # of the script's output, shown after an error
REAPER = Path(ROOT, "d2lpar", "_reaper.py")
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.M)
OF_GPUS = re.compile(r"NVIDIA driver|CUDA error|compiled with CUDA|CUDA-capable")
MAY_BE_OF_GPUS = re.compile(r"cuda|gpu|nvidia|nccl", re.I)
RANK_OPTION = re.compile(r"--?(nr|(node|machine|global|local)?[-_]?rank)$")
FROM_IMPORT = re.compile(r"(ModuleNotFoundError|ImportError)\b")
WAITS = re.compile(rf"{re.escape(TORCH)}(?!utils|hub)")


class NotRun(Exception):
    """The script cannot be run, or takes no optimizer step; the text says why."""


def watch(script: Sequence[str | os.PathLike], ranks: int = 2, allow: Iterable[str] = (), show: bool = False,
          to_the_end: bool = False, progress: bool = False) -> Diagnosis | int:
    """Run a script on this many ranks on this machine, and report what is wrong with it.

    Args:
        script: the script and its arguments, or "-m", a module, and its arguments.
        ranks: how many, if the script leaves that to torchrun.
        allow: names of findings that are intended, and count as notes; with "unjudged", the diagnosis is `ok` even if
            something without which there is no all-clear could not be judged.
        show: let the script print; by default its output is shown only after an error.
        to_the_end: once enough was seen, let the script run to its own end.
        progress: say on a terminal how far the script is, unless it prints itself.

    Started by torchrun, each process runs its own rank of the script. The first one says what is wrong; the others get
    its exit code.

    Raises:
        NotRun: if the script ends before its first step, for a reason that has nothing to do with ranks.
        ValueError: for an unknown name in `allow`, or an invalid number of ranks.
    """
    allow = list(allow)
    known = dict.fromkeys((*NAMES, *FEED_NAMES, UNJUDGED))
    if unknown := [name for name in allow if name not in known]:
        raise ValueError(f"there is no finding {unknown[0]!r} to allow; the names are: {', '.join(known)}")
    check_counts(ranks=ranks)
    if not hasattr(os, "killpg"):
        raise NotRun("watch needs Linux or macOS; on Windows, use WSL")
    words = [str(word) for word in script]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _watch_under_torchrun(words, allow, show, to_the_end)
    first = with_checkpoint(words, "")
    ran = _run(first, ranks, show, to_the_end, progress=progress)
    found, scale = _judge(ran, words, allow)
    _confirm(found, scale, ran, first, ranks)
    _resume(found, ran, words, ranks)
    _look_for_saves(found, ran, words)
    return found


def _watch_under_torchrun(words: Sequence[str], allow: list[str], show: bool, to_the_end: bool) -> Diagnosis | int:
    run = _UnderTorchrun(show, () if to_the_end else watched_folders(words))
    if run.rank:
        return run.follow(words, to_the_end)
    code = 2
    with run:
        try:
            ran = run.lead(words, to_the_end)
            found, scale = _judge(ran, words, allow)
            _confirm(found, scale, ran, words, 1)  # torchrun's ranks saw all GPUs
            code = found.exit_code
        finally:
            run.tell("verdict", code, "over")
    return found


def _judge(ran: Ran, words: Sequence[str], allow: Iterable[str] = ()) -> tuple[Diagnosis, Scale | None]:
    name = _name(words)
    most = max(map(len, ran.steps), default=0)
    epochs = max((count for rank in ran.of("pass") for count in Counter(
        data["number"] for data in rank if data["trained"]).values()), default=0)
    about = f"watched {name} on {ran.k} rank{'s' * (ran.k != 1)}, for {most} step{'s' * (most != 1)}"
    about += f" of the first {epochs} epochs" * (epochs > 1)
    found = Diagnosis(about, allow, UNCHECKED, watched=True)
    found.files, of_files = ran.files, "".join(f"\n{line}" for line in about_files(ran.files))
    for error in (data["error"] for rank in ran.of("end") for data in rank if KEEPS in data["error"]):
        raise NotRun(error[error.rindex(KEEPS):] + of_files)  # it is not the script's fault
    scale = judge(ran, found)
    if any(ran.of("DataParallel")) and not any(ran.of("group")):
        raise NotRun("the script trains with nn.DataParallel, in a single process. watch compares processes, one for "
                     f"each device, as DistributedDataParallel has{of_files}")
    if not most and (not found.faults or found.faults.keys() == {"no group"} or _would_fail_alone(ran)):
        raise NotRun(_why(ran) + of_files)
    return found, scale


def _confirm(found: Diagnosis, scale: Scale | None, ran: Ran, words: Sequence[str], gpus: int) -> None:
    """Run the script as a single process, if the scale of its gradients may be wrong, on the ranks' kind of device."""
    if scale is None:
        found.cover("scale", "not judged", "a different fault was found first" if found.is_decided else
                    "the gradient is not a multiple of the ranks' average, or the loss compares examples")
    elif scale.is_clear:
        is_known = scale.exchange is not None
        found.cover("scale", "judged" if is_known else "in part",
                    "" if is_known else "only the factor in the loss, not the exchange")
    elif not ran.stands:
        alone = None
        with suppress(NotRun):
            again = _run(words, 1, gpus=gpus)
            found.files = _merged(found.files, again.files)
            alone = _judge(again, words)[1] if again.k == 1 else None
        scale_fault(scale, ran.k, alone, found)
        is_known = bool(scale.weights) and alone is not None
        found.cover("scale", "judged" if is_known else "in part",
                    "" if is_known else "only the exchange, not the factor in the loss" if not scale.weights else
                    "the script could not be run as a single process")


def _resume(found: Diagnosis, ran: Ran, words: Sequence[str], ranks: int) -> None:
    """Start the script once more with its first checkpoint, and compare that run with the first one."""
    kept = next((rank[0] for rank in ran.of("checkpoint") if rank), None)
    if kept is None or not ran.of("checkpoint")[0]:
        return
    if found.is_decided:
        found.cover("resuming", "not judged", "a fault was found first")
        return
    if not kept["is_small"]:
        found.cover("resuming", "not judged", "the checkpoint is too large to be kept")
        return
    try:
        again = _run(with_checkpoint(words, kept["path"]), ranks, checkpoint=ran.checkpoint, epochs=1)
    except NotRun as problem:
        found.cover("resuming", "not judged", str(problem).partition("\n")[0])
        return
    found.files = _merged(found.files, again.files)
    compare_resumed(ran, again, found)
    if found.coverage["resuming"].state != "not judged":
        resumed = Diagnosis("", found.allow, watched=True)
        judge(again, resumed)
        for name, (seen, cure, line) in resumed.parts.items():
            if name not in found.parts:
                found.add(name, f"in the resumed run, {seen}", cure, f" [{line}]" * bool(line), name in resumed.faults)


def _look_for_saves(found: Diagnosis, ran: Ran, words: Sequence[str]) -> None:
    """Note a call of `torch.save` after the steps that were watched, if all ranks would reach it."""
    seen = {int(line) for rank in ran.of("save") for data in rank for line in re.findall(r"line (\d+)", data["line"])}
    left = [line for line in saves_on_all_ranks(words[0]) if line not in seen]
    if left and ran.k > 1:
        code = linecache.getline(words[0], left[0]).strip()
        found.add("all ranks save", "no rank had reached this line when the run was ended, and no `if` keeps a rank "
                  "from it, so all ranks will write the same file", "Save on rank 0 only",
                  f" [{os.path.basename(words[0])}, line {left[0]}: `{code}`]", fault=False)


def _would_fail_alone(ran: Ran) -> bool:
    """Whether a single process would have met the error as well: rank 0 raised it, or all ranks did, or an import."""
    errors = [next((data["error"] for data in rank if data["error"]), "") for rank in ran.of("end")]
    if not ran.crashed or not any(errors):
        return ran.crashed and not any(ran.of("group"))
    own = dict(raised(ran))
    of_rank_0 = 0 in own and "FileExistsError" not in errors[0]  # a rank that makes the same folder later gets this
    return of_rank_0 or len(set(errors)) == 1 or any(FROM_IMPORT.match(data["error"]) for data in own.values())


def _why(ran: Ran) -> str:
    if ran.crashed:
        ends = [data for _, data in raised(ran)] or [data for rank in ran.of("end") for data in rank if data["error"]]
        error = ends[0]["error"] if ends else ""
        said = ran.output if error in ran.output else f"{error}\n{ran.output}"
        if error and said.count(error.rpartition("\n")[2]) > 1:  # the ranks printed different lines before it
            said = "".join(said.rpartition("Traceback (most recent")[1:])
        return f"the script ended before its first optimizer step:\n{said}".rstrip()
    said = f" Its output ends with:\n{ran.output}" * bool(ran.output)
    if any(data.get("backwards") for rank in ran.of("end") for data in rank):
        return ("the script computes gradients, but takes no step with a subclass of torch.optim.Optimizer: what a "
                f"loop of its own does to the parameters is not watched.{said}")
    return ("the script took no step with a subclass of torch.optim.Optimizer. Did it resume a run that had ended?"
            f"{said}")


def _name(words: Sequence[str]) -> str:
    return next((os.path.basename(word) for word in words if word != "-m"), "?")


def _run(words: Sequence[str], k: int, show: bool = False, to_the_end: bool = False, gpus: int = 0,
         progress: bool = False, **how: Any) -> Ran:
    """Run a script as if there were GPUs; if it fails, without any, or without making it shorter."""
    runs: list[Ran] = []

    def run(**kwargs: Any) -> Ran:
        runs.append(run_watched(words, k, show, to_the_end, gpus=gpus, progress=progress, **how, **kwargs))
        return runs[-1]

    ran = run()
    needs_gpus = any(OF_GPUS.search(data["error"]) for rank in ran.of("end") for data in rank)
    if ran.crashed and not ran.stands and (needs_gpus or (not any(ran.steps) and _may_be_of_gpus(ran))):
        without = run(pretend=False)
        if needs_gpus and not any(without.steps):
            raise NotRun(f"the script needs a GPU:\n{ran.output}")
        ran = without if any(without.steps) or not without.crashed else ran
    may_count = ran.crashed or ran.stands or any(ran.of("begun again"))  # its minibatches, to know where an epoch ends
    if may_count and any(ran.of("shortened")):
        whole = run(shortens=False)
        ran = ran if whole.crashed or whole.stands else whole
    return ran._replace(files=_merged(*(one.files for one in runs)))


def _merged(*every: dict[str, list[str]]) -> dict[str, list[str]]:
    """What there is to say about files after several runs."""
    kinds = dict.fromkeys(kind for files in every for kind in files)
    return {kind: sorted({path for files in every for path in files.get(kind, [])}) for kind in kinds}


def _may_be_of_gpus(ran: Ran) -> bool:
    """Whether an error before the first step may be due to GPUs that are not there."""
    shown = re.sub(r"^ *File .*$", "", ran.output, flags=re.M)  # without the names of files
    said = "".join(data["error"] for rank in ran.of("end") for data in rank)  # sys.exit's words are not in the output
    return not _would_fail_alone(ran) or bool(MAY_BE_OF_GPUS.search(shown + said))


def run_watched(words: Sequence[str], k: int, show: bool = False, to_the_end: bool = False,
                pretend: bool = True, shortens: bool = True, gpus: int = 0, progress: bool = False,
                checkpoint: dict[str, bytes] | None = None, epochs: int = 2) -> Ran:
    """Run a script on k ranks, and return what was recorded. With fewer than `gpus` GPUs, or than k, it sees none.

    The files of a checkpoint are there before it starts.
    """
    files: dict[str, list[str]] = {}
    for spawns in (False, True):
        with Run(k, show, watched=() if to_the_end else watched_folders(words)) as run:
            if progress and not show:
                run.progress = Progress(f"watching {_name(words)} on {k} rank{'s' * (k > 1)}")
            settings = Settings(str(run.folder), k, _free_port(), pretend, to_the_end, spawns, shortens, epochs)
            if checkpoint:
                KeptFiles(run.folder).place(checkpoint)
            run.start(words, settings, gpus or k)
            run.attend()
            ran = run.ran()
            if run.joining:
                raise NotRun(who_is_missing(run.joining, words))
        files = _merged(files, run.files)
        if not any(rank and rank[0][0] == "spawns" for rank in ran.records):
            break
    if launched := [data["command"] for rank in ran.of("launches") for data in rank]:
        raise NotRun(f"the script starts ranks itself, with `{launched[0]}`: watch the script in that command")
    return ran._replace(files=files)


class Progress:
    """One line on a terminal that says how far a run is, renewed once a second; nothing where stderr is a file."""

    def __init__(self, about: str) -> None:
        self.about, self.shown = about, ""
        self._next = time.monotonic() + PROGRESS_S if sys.stderr.isatty() else math.inf

    def say(self, steps: int) -> None:
        """Write the line, if it is time."""
        if time.monotonic() > self._next:
            self.erase()
            columns = shutil.get_terminal_size().columns
            self.shown = f"{self.about}: {steps} step{'s' * (steps != 1)} so far"[:columns - 1]
            self._next = time.monotonic() + 1
            print(self.shown, end="", flush=True, file=sys.stderr)

    def erase(self) -> None:
        """Leave an empty line."""
        if self.shown:
            print("\r" + " " * len(self.shown), end="\r", flush=True, file=sys.stderr)
            self.shown = ""


def who_is_missing(joining: Sequence[dict[str, Any]], words: Sequence[str]) -> str:
    """Say that a process group never becomes complete, and how to start the script instead."""
    ranks, first = [given["rank"] for given in joining], joining[0]
    who = f"rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))}"
    line = f" [{first['line']}]" if first["line"] else ""
    seen = f"{who} waited in init_process_group for {first['world_size']} ranks, and no other process called it{line}. "
    if any("{rank}" in word for word in words):
        return seen + "Let --ranks be the number of processes that the script expects you to start"
    of_rank = next((i for i, word in enumerate(words[:-1]) if RANK_OPTION.match(word)), None)
    example = "" if of_rank is None else ": watch " + " ".join(
        [*map(shlex.quote, words[:of_rank + 1]), "{rank}", *map(shlex.quote, words[of_rank + 2:])])
    return (f"{seen}Tell the script that there is one node; or, in its arguments, replace the number of the node or "
            f"of the rank by {{rank}}{example}")


class Run:
    """The processes of a run, and the folder with their records; nothing is left of either at the end."""

    def __init__(self, k: int, show: bool, shared: Path | None = None, watched: Sequence[str] = ()) -> None:
        """Keep the files in the watched folders, which no different watch may do at the same time."""
        self.k, self.show, self.folder = k, show, shared or Path(tempfile.mkdtemp(prefix="d2lpar-watch-"))
        self.files: dict[str, list[str]] = {}  # what there is to say about them in the end
        self._stack = ExitStack()
        locks = self._stack.enter_context(locked(watched)) if watched else []
        self.reaper = subprocess.Popen([sys.executable, "-I", "-S", str(REAPER), str(self.folder)], bufsize=0,
                                       stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       process_group=0, pass_fds=locks)
        if watched:
            keep(self.folder, watched)
        self.processes: list[Any] = []  # subprocess.Popen, or objects like it
        self.killed: set[int] = set()
        self.spawns = self.to_the_end = self._has_asked_to_leave = False
        self.stands = ""
        self.progress: Progress | None = None
        self.joining: list[dict[str, Any]] = []  # the ranks that wait for a group that never becomes complete
        self._noted: dict[int, tuple[int, list]] = {}  # by rank: the offset read so far, and the records

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        if self.progress:
            self.progress.erase()
        self.leave_files()
        self._end_keeper()
        shutil.rmtree(self.folder, ignore_errors=True)
        if error[0] is not None:  # there will be no verdict
            print(*about_files(self.files), sep="\n", end="\n" * bool(self.files), file=sys.stderr)

    def leave_files(self) -> None:
        """End the run, and put files back, because it was cut short; a different run may then have them."""
        self.end()
        self.files = _merged(self.files, put_back(str(self.folder)))
        self._stack.close()

    def _end_keeper(self) -> None:
        self.reaper.kill()
        self.reaper.wait()
        assert self.reaper.stdin is not None
        self.reaper.stdin.close()

    def start(self, words: Sequence[str], settings: Settings, gpus: int) -> None:
        """Start the script as torchrun would; or once, if it starts its ranks itself and does not ask for {rank}.

        With fewer than `gpus` GPUs, it sees none.
        """
        self.spawns, self.to_the_end = settings.spawns, settings.to_the_end
        common = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
        if torch.cuda.device_count() < gpus:
            common["CUDA_VISIBLE_DEVICES"] = ""  # too few GPUs count as none
        common |= {SETTINGS: json.dumps(settings._asdict()), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
                   "GLOO_SOCKET_IFNAME": loopback(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(settings.port)}
        for rank in range(1 if settings.spawns and not any("{rank}" in word for word in words) else self.k):
            variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.k, "LOCAL_WORLD_SIZE": self.k,
                         "GROUP_RANK": 0, **(_slurm(rank, self.k) if _asks_for_slurm(words) else {})}
            own = {} if settings.spawns else {name: str(value) for name, value in variables.items()}
            self.start_rank(words, common | own, rank)

    def start_rank(self, words: Sequence[str], env: dict[str, str], rank: int) -> None:
        """Start one process."""
        code = (f"import sys; sys.path.insert(0, {ROOT!r}); from d2lpar.diagnosis.watching import run_script; "
                f"del sys.path[0]; run_script(sys.argv[1:])")
        words = [word.replace("{rank}", str(rank)) for word in words]
        with open(self.folder / f"{rank}.output", "wb") as file:
            output: Any = sys.stderr if self.show else file
            self.processes.append(subprocess.Popen([sys.executable, "-c", code, *words], env=env, stdout=output,
                                                   stderr=output, stdin=subprocess.DEVNULL, start_new_session=True))
        assert self.reaper.stdin is not None
        self.reaper.stdin.write(b"%d\n" % self.processes[-1].pid)

    def attend(self) -> None:
        """Wait until all ranks have ended, have seen enough, or hang; then kill them."""
        size, since, looked, work, first_end = -1, time.monotonic(), 0.0, 0.0, 0.0
        while any(process.poll() is None for process in self.processes):
            time.sleep(LOOK_S)
            if self.progress:
                self.progress.say(max((sum(kind == "step" for kind, _ in rank) for rank in self.records()), default=0))
            now = sum(file.stat().st_size for file in self.folder.glob("*.records"))
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - max(since, looked) > WORK_LOOK_S:
                looked, spent = time.monotonic(), self._work_s()
                if spent > work + 0.5:
                    since, work = looked, spent
            idle, enough = time.monotonic() - since, self._have_seen_enough()
            has_failed = any(process.poll() for process in self.processes)
            first_end = first_end or (time.monotonic() if enough or has_failed else 0.0)
            if enough and enough == self._expected():
                break
            if first_end and time.monotonic() - first_end > PATIENCE_S and idle > PATIENCE_S / 2:
                if enough and not has_failed:  # if they were in step, all ranks would have seen enough
                    self._stand()
                break
            if idle > IDLE_S:
                self.joining = self._incomplete_group(idle)
                if self.joining:
                    break
                waiting = self._stand()
                if waiting == 1 or (waiting and idle > LONG_IDLE_S) or idle > MOST_IDLE_S:
                    break
                self.stands = ""
        self.end()

    def _expected(self) -> int:
        """How many ranks there are."""
        sizes = [data["world_size"] for rank in self.records() for kind, data in rank if kind == "group"]
        return max(sizes, default=self.k) if self.spawns else self.k

    def _have_seen_enough(self) -> int:
        """How many ranks have seen enough; 0 if that must not end the run."""
        return 0 if self.to_the_end else sum(any(kind == "end" and data["enough"] for kind, data in rank)
                                             for rank in self.records())

    def _work_s(self) -> float:
        """The CPU time of the processes and their children, in seconds."""
        total, sessions = 0.0, {process.pid for process in self.processes}
        for process in Path("/proc").glob("[0-9]*/stat") if sys.platform == "linux" else ():
            with suppress(OSError, ValueError, IndexError):
                fields = process.read_text().rpartition(")")[2].split()
                if int(fields[3]) in sessions:
                    total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def _incomplete_group(self, idle: float) -> list[dict[str, Any]]:
        """What each rank in init_process_group gave it, if all processes wait there, and they are too few or alike."""
        joining = {file.stem: json.loads(text) for file in self.folder.glob("*.joining") if (text := _read(file))}
        ranks = {given["rank"] for given in joining.values()}
        begun = {file.stem for file in self.folder.glob("*.begun")}
        if self.spawns:
            begun -= {str(process.pid) for process in self.processes}  # they wait for the ranks
        is_complete = ranks >= set(range(max((given["world_size"] for given in joining.values()), default=0)))
        has_all = begun <= joining.keys() or idle > LONG_IDLE_S  # another one may be downloading something
        return [] if is_complete or not has_all else sorted(joining.values(), key=lambda given: given["rank"])

    def _stand(self) -> float:
        """Find out which line each rank is at, and return what share of the running ranks waits inside PyTorch."""
        pids = {r: data["pid"] for r, rank in enumerate(self.records()) for kind, data in rank if kind == "group"}
        for r, pid in pids.items():
            with suppress(OSError):
                os.truncate(self.folder / f"{r}.stack", 0)
                os.kill(pid, STACK_SIGNAL)
        time.sleep(0.5)
        stands: list[str] = []
        waits: list[bool] = []
        for r, rank in enumerate(self.records()):
            frames = FRAME.findall(_read(self.folder / f"{r}.stack"))
            own = [frame for frame in frames if of_the_script(frame[0]) and not frame[0].startswith("<")]
            last = _read(self.folder / f"{r}.line")
            end = next((data for kind, data in rank if kind == "end"), None)
            if end:
                stands.append(f"rank {r} has {'moved on to the next epoch' if end['enough'] else 'ended'}")
            elif own:
                code = linecache.getline(own[0][0], int(own[0][1])).strip()
                waits.append(bool(WAITS.match(frames[0][0])) or ".wait(" in code)
                under = under_rank_test((file, int(line)) for file, line, _ in own) if waits[-1] else ""
                stands.append(f"rank {r} is at `{code}`, line {own[0][1]} of {os.path.basename(own[0][0])}{under}")
            else:
                stands.append(f"rank {r} was last seen at {last}" if last else f"rank {r} has not begun")
        self.stands = "; ".join(stands) if any(waits) else ""
        return sum(waits) / len(waits) if waits else 0.0

    def end(self) -> None:
        """Let ranks that have seen enough leave the script; kill what still runs then, and its children."""
        own = [process for process in self.processes if not isinstance(process, _Elsewhere)]
        leaving = [next((data["pid"] for kind, data in rank if kind == "group"), 0) for rank in self.records()
                   if any(kind == "end" and data["enough"] for kind, data in rank)]
        self.killed |= {process.pid for process in own if process.poll() is None}
        if not self._has_asked_to_leave and any(leaving):
            self._has_asked_to_leave = True
            for pid in filter(None, leaving):
                with suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + LEAVING_S
            while time.monotonic() < deadline and any(process.poll() is None for process in own):
                time.sleep(LOOK_S / 2)
        for process in own:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in own:
            process.wait()

    def records(self) -> list[list[tuple[str, dict[str, Any]]]]:
        """All complete records that the ranks have written so far."""
        for path in self.folder.glob("*.records"):
            read, known = self._noted.setdefault(int(path.stem), (0, []))
            if path.stat().st_size > read:
                with open(path, "rb") as file:
                    file.seek(read)
                    with suppress(EOFError, pickle.UnpicklingError):
                        while True:
                            known.append(pickle.load(file))
                            read = file.tell()
                self._noted[int(path.stem)] = read, known
        return [self._noted.get(r, (0, []))[1] for r in range(max(self._noted, default=-1) + 1)]

    def ran(self) -> Ran:
        """The run as it ended."""
        codes = [process.poll() or 0 if process.pid not in self.killed else 0 for process in self.processes]
        outputs = {int(file.stem): _read(file) for file in sorted(self.folder.glob("*.output"))}
        records = self.records()
        first = next((r for r, _ in raised(Ran(self.k, records))), 0)  # its output comes last
        output = "\n".join(dict.fromkeys(outputs[r] for r in sorted(outputs, key=lambda r: (r == first, r))))
        lines = [_read(self.folder / f"{r}.line") for r in range(len(records))]
        if any(code < 0 for code in codes):
            output += "\n" + ", ".join(signal.Signals(-code).name for code in codes if code < 0)
        has_raised = any(data["error"] for rank in records for kind, data in rank if kind == "end")
        crashed = (any(codes) or has_raised) and not self.stands
        tail = "\n".join(output.rstrip().splitlines()[-LAST_LINES:])
        copies = [json.loads(_read(file)) for file in self.folder.glob(f"*{COPIED}")]
        checkpoint = {path: (self.folder / COPIES / name).read_bytes()
                      for names in copies for path, name in names.items()}
        return Ran(len(records) or self.k, records, self.stands, crashed, tail, lines, checkpoint=checkpoint)


def _asks_for_slurm(words: Sequence[str]) -> bool:
    """Whether the script's text names a variable of Slurm; libraries would behave differently if they saw these."""
    with suppress(OSError):
        return b"SLURM_" in Path(words[0]).read_bytes()
    return False


def _slurm(rank: int, k: int) -> dict[str, Any]:
    """What Slurm tells a rank: k tasks on this machine."""
    return {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": k, "SLURM_NTASKS_PER_NODE": k,
            "SLURM_GPUS_ON_NODE": k, "SLURM_CPUS_PER_TASK": 1, "SLURM_JOB_ID": 1, "SLURM_NNODES": 1, "SLURM_NODEID": 0,
            "SLURM_NODELIST": "localhost", "SLURM_JOB_NODELIST": "localhost"}


class _Elsewhere:
    """A rank that was started by a different process of torchrun."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank

    @property
    def pid(self) -> int:
        return int(_read(self.folder / f"{self.rank}.pid") or 0)

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        code = _read(self.folder / f"{self.rank}.code")
        return int(code) if code else None


class _UnderTorchrun(Run):
    """A run whose ranks torchrun's processes start, one each; the first of these watches them all."""

    def __init__(self, show: bool, watched: Sequence[str]) -> None:
        if os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]:
            raise NotRun("the ranks are on several machines, and watch needs them on one")
        self.rank, k = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        shared = Path(tempfile.gettempdir(), f"d2lpar-watch-{_agent()}-{os.environ['TORCHELASTIC_RESTART_COUNT']}")
        with suppress(FileExistsError):
            shared.mkdir(mode=0o700)
        is_now = shared.lstat()
        if is_now.st_uid != os.getuid() or not stat.S_ISDIR(is_now.st_mode) or stat.S_IMODE(is_now.st_mode) != 0o700:
            raise NotRun(f"{shared} is not a folder of your own that is closed to others")
        super().__init__(k, show, shared, () if self.rank else watched)

    def _start_own(self, words: Sequence[str], to_the_end: bool) -> None:
        self.to_the_end = to_the_end
        if self.rank == 0:
            _write(self.folder / "kept", "")  # the files are
        while self.rank and self.folder.exists() and not (self.folder / "kept").exists():
            time.sleep(LOOK_S / 2)
        settings = Settings(str(self.folder), self.k, 0, True, to_the_end, spawns=False)
        self.start_rank(words, os.environ | {SETTINGS: json.dumps(settings._asdict())}, self.rank)
        _write(self.folder / f"{self.rank}.pid", self.processes[0].pid)

    def lead(self, words: Sequence[str], to_the_end: bool) -> Ran:
        """Run the first rank, and watch all."""
        self._start_own(words, to_the_end)
        self.processes += [_Elsewhere(self.folder, rank) for rank in range(1, self.k)]
        self.attend()
        ran = self.ran()
        self.tell("enough", "", "ended")
        self.leave_files()
        if self.joining:
            raise NotRun(who_is_missing(self.joining, words))
        return ran._replace(files=self.files)

    def tell(self, name: str, value: object, answer: str) -> None:
        """Tell the others something, and wait until they have answered."""
        _write(self.folder / name, value)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not all(
                (self.folder / f"{r}.{answer}").exists() for r in range(1, self.k)):
            time.sleep(LOOK_S)

    def follow(self, words: Sequence[str], to_the_end: bool) -> int:
        """Run this rank until the first process has a verdict, and return its exit code."""
        try:
            self._start_own(words, to_the_end)
            process, code = self.processes[0], self.folder / f"{self.rank}.code"
            while self.folder.exists() and not (self.folder / "verdict").exists():
                if process.poll() is not None and not code.exists():
                    _write(code, process.returncode)
                if (self.folder / "enough").exists() and not (self.folder / f"{self.rank}.ended").exists():
                    self.end()
                    _write(self.folder / f"{self.rank}.ended", "")
                time.sleep(LOOK_S)
            return int(_read(self.folder / "verdict") or 1)
        finally:
            self.end()
            with suppress(OSError):  # the first process has gone
                _write(self.folder / f"{self.rank}.over", "")
            self._end_keeper()


def _agent() -> str:
    """A name for the torchrun process that started this one, different from every earlier one's."""
    agent = os.getppid()
    with suppress(OSError):
        return f"{agent}-{Path(f'/proc/{agent}/stat').read_text().rpartition(')')[2].split()[19]}"  # its start
    start = subprocess.run(["ps", "-o", "lstart=", "-p", str(agent)], capture_output=True, text=True, check=True)
    return re.sub(r"\W+", "", f"{agent}-{start.stdout}")


def _read(file: Path) -> str:
    with suppress(FileNotFoundError):
        return file.read_text("utf8", "replace")
    return ""


def _write(file: Path, value: object) -> None:
    """Write atomically, so that no reader sees half a file."""
    whole = file.with_name(f"{file.name}.new")
    whole.write_text(str(value), "utf8")
    whole.replace(file)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
