"""The package's commands: `python -m d2lpar watch`, `diagnose` and `script`; each has a --help."""

from __future__ import annotations

import argparse
import errno
import os
import re
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import TracebackType

from d2lpar._command_line import answer, as_json, cannot

ADVICE = ("Here `batches` is a list of pairs X, y, and everything runs on the CPU: leave out what only a loader or a "
          "GPU has, such as sampler.set_epoch.")
OF_DEVICES = re.compile(r"cuda|nccl|gpu|device|set_epoch|sampler|loader", re.I)


def main() -> None:
    """Do what the words behind `python -m d2lpar` ask for."""
    args, script = answer(sys.argv[1:])
    if args.command == "diagnose":
        _diagnose(args.file, args.ranks, args.allow, args.json)
    else:
        _watch(args, script)


def _diagnose(file: str, ranks: int, allow: list[str], wants_json: bool) -> None:
    """Print the diagnosis of a file's training; exit with 1 if it has a fault, and with 2 if it cannot be run."""
    from d2lpar.diagnosis import diagnose

    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # as Python does for a script
    sys.argv[:] = [file]
    try:
        defined = runpy.run_path(file)
    except SyntaxError as problem:  # in a module that the file imports
        cannot("".join(traceback.format_exception_only(problem)))
    except SystemExit:
        cannot(f'{file} exited while it was being imported: put the code that starts training under '
               'if __name__ == "__main__":')
    except Exception as problem:
        lines = traceback.format_exception(type(problem), problem, _of_file(problem, file))
        cannot("".join(lines) + f'{file} was being imported: put the code that starts training under '
               'if __name__ == "__main__":')
    needed = "train", "make_net", "X", "y"
    if missing := [name for name in needed if name not in defined]:
        cannot(f"{file} does not define {', '.join(missing)}. It has to define train(net, batches), make_net(), and "
               "examples, X and y")
    train, make_net, X, y = (defined[name] for name in needed)
    try:
        begin = time.monotonic()
        with _stdout_as_stderr() if wants_json else nullcontext():
            found = diagnose(train, make_net, X, y, ranks, allow=allow)
    except Exception as problem:
        lines = traceback.format_exception_only(problem)
        if of_file := [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == file]:
            lines = ["A single device cannot run this training:\n", *traceback.format_list(of_file), *lines]
            lines += [ADVICE] * bool(OF_DEVICES.search(lines[-1]))
        cannot("".join(lines))
    print(as_json(found.exit_code, seconds=_seconds(begin), **found.as_dict()) if wants_json else found)
    sys.exit(found.exit_code)


@contextmanager
def _stdout_as_stderr() -> Iterator[None]:
    """Keep stdout for JSON: what is printed meanwhile, by C++ code too (Gloo in PyTorch 2.8), goes to stderr."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def _watch(args: argparse.Namespace, script: list[str]) -> None:
    """Print what is wrong with a script, and exit with the code that says so."""
    from d2lpar.diagnosis.scripts import NotRun, watch

    begin = time.monotonic()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # to put files back before it ends
    try:
        found = watch(script, args.ranks, args.allow, args.show, args.to_the_end, progress=not args.json)
    except (NotRun, ValueError) as problem:
        cannot(str(problem))
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
            cannot(f"{problem}. watch writes its records, and copies of small files, to {tempfile.gettempdir()}: make "
                   "room there, or set TMPDIR to a different folder")
        cannot(f"watch itself has failed:\n{traceback.format_exc()}")
    if isinstance(found, int):  # torchrun's first rank prints it
        sys.exit(found)
    print(as_json(found.exit_code, seconds=_seconds(begin), **found.as_dict()) if args.json else found)
    if "TORCHELASTIC_RUN_ID" in os.environ and not args.json:  # torchrun turns every code but 0 into 1
        print(f"exit code {found.exit_code}")
    sys.exit(found.exit_code)


def _seconds(begin: float) -> float:
    return round(time.monotonic() - begin, 1)


def _of_file(problem: BaseException, file: str) -> TracebackType | None:
    """The part of the traceback that begins in the user's file."""
    trace = problem.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    main()
