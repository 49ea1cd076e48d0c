"""Long runs, each recorded as one line of a file: after a kill at any moment, the same command does the missing runs.

A file of records is JSON Lines: first a line that says where the records come from, then one line per run, written in
one piece when that run has ended. `python book/lab/study.py FILE` writes one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import torch
from tqdm import tqdm

from d2lpar.pages.results import RecordError, parsed_records, run_key

# the command that writes a file, and its name when the files that are stored were written
CALLED = {"python book/lab/lenet_runs.py": "python book/tools/run_trainings.py",
          "python book/lab/study.py": "python -m d2lpar study",
          "python book/lab/branches.py": "python -m d2lpar study --only branches",
          "python book/lab/batch_sizes.py": "python book/tools/run_batch_sizes.py"}

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def run_missing(path: str | Path, about: Mapping[str, Any], runs: Sequence[Mapping[str, Any]],
                function: Callable[..., Mapping[str, Any]], num_processes: int) -> None:
    """Call `function(**run)` for each of `runs` that has no record in `path`, and add one: the run and what came of it.

    Each process runs in one thread, and all runs of one "seed" go to the same process. A bar shows how far it is.
    When this ends, by whatever cause, its processes end too.

    Args:
        about: where the records come from; a file that says otherwise is not added to.
        runs: arguments of `function`, among them a "seed", which JSON can hold.
        function: at the top of a module, so that another process finds it.

    Raises:
        ValueError: before anything is written, if a run is there twice, or for NaN; or for a result that JSON cannot
            hold, or NaN.
        RecordError: if the file cannot be written, holds other records, or another process is adding to it.
        Exception: what `function` raised; the records of the runs that have ended by then are kept.
    """
    check_runs(about, runs)
    with _opened(Path(path), about) as (file, records):
        known = {run_key(record["run"]) for record in records}
        missing = [run for run in runs if run_key(run) not in known]
        with _processes(num_processes) as pools, tqdm(total=len(runs), initial=len(runs) - len(missing), unit="run",
                                                      file=sys.stderr, smoothing=0) as bar:
            waiting = {pools[run["seed"] % num_processes].submit(function, **run): run for run in missing}
            for future in as_completed(waiting):
                _write(file, {"run": waiting[future]} | {**future.result(), "run": waiting[future]})
                bar.update()


def check_runs(about: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> None:
    """Raise what JSON raises for what it cannot hold, and ValueError if a run is there twice."""
    json.dumps(about, allow_nan=False)
    keys = [json.dumps(run, sort_keys=True, allow_nan=False) for run in runs]
    if twice := [key for n, key in enumerate(keys) if key in keys[:n]]:
        raise ValueError(f"runs must differ from each other, but {twice[0]} is there twice")


def _write(file: IO[bytes], line: Mapping[str, Any]) -> None:
    file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _opened(path: Path, about: Mapping[str, Any]) -> Generator[tuple[IO[bytes], list[dict[str, Any]]]]:
    """The file, at its end and for this process alone, and its records; a last line that is cut off goes."""
    try:
        file = open(path, "a+b")  # noqa: SIM115 (it is closed below)
    except OSError as problem:
        raise RecordError(f"{path} cannot be written: {problem.strerror}") from problem
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RecordError(f"another process is adding to {path}: wait for it, or name another file") from None
        file.seek(0)
        text = file.read()
        whole = text[:text.rfind(b"\n") + 1]
        records = []
        if whole:
            there, records = parsed_records(path, whole)
            here = json.loads(json.dumps(about))
            if there.get("command") == CALLED.get(here.get("command"), ""):
                here["command"] = there["command"]
            if other := [name for name in {**there, **here} if there.get(name) != here.get(name)]:
                raise RecordError(f"{path} holds records of another origin, it differs in {', '.join(other)}: "
                                  "name another file")
        elif text and not json.dumps({"about": about}).encode().startswith(text):
            raise RecordError(f"{path} holds no records. Name another file.")
        file.truncate(len(whole))
        file.seek(len(whole))
        if not whole:
            _write(file, {"about": about})
        yield file, records


@contextmanager
def _processes(count: int) -> Iterator[list[ProcessPoolExecutor]]:
    """So many processes, each an executor of its own, which end with this block or with this process."""
    ears, leash = Pipe(duplex=False)  # closed with this process, and the others hear it
    with ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"), _begin, (ears,)))
                 for _ in range(count)]
        stack.callback(leash.close)  # first of all: nothing waits for a run that nobody needs
        yield pools


def _begin(ears: Connection) -> None:
    """One thread for PyTorch, and one that ends this process as soon as the other end is closed."""
    torch.set_num_threads(1)

    def listen() -> None:
        try:
            ears.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
