"""The package's commands: `python -m d2lpar watch`, `diagnose` and `script`; each has a --help."""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn

ADVICE = ("Here `batches` is a list of pairs X, y, and everything runs on the CPU: leave out what only a loader or a "
          "GPU has, such as sampler.set_epoch.")
MOVED = {"bench": "is now `make bench` in a clone of the book",
         "study": "is now `python book/lab/study.py` in a clone of the book",
         "data": "is no longer needed: the images are in the package",
         "train": "is now a script of your own: `python -m d2lpar script` writes train_ddp.py, for torchrun"}
OF_DEVICES = re.compile(r"cuda|nccl|gpu|device|set_epoch|sampler|loader", re.I)


def main() -> None:
    """Do what the words behind `python -m d2lpar` ask for."""
    parser = argparse.ArgumentParser(prog="python -m d2lpar", description="The commands of the book's package.")
    commands = parser.add_subparsers(dest="command")
    about = "write train_ddp.py, a training script to start from that resumes after a kill"
    options = commands.add_parser("script", help=about, description=about)
    options.add_argument("file", nargs="?", default="train_ddp.py", help="where to (train_ddp.py)")
    about = "run a training on a single device and on ranks, and say what differs (seconds)"
    options = commands.add_parser("diagnose", help=about, description=about,
                                  epilog="exit codes: 0 no fault was found, 1 a fault was found, 2 it could not be run")
    options.add_argument("file", help="defines train(net, batches), make_net(), and a batch, X and y")
    options.add_argument("--ranks", type=int, default=2, help="how many (2)")
    options.add_argument("--allow", action="append", default=[], metavar="NAME",
                         help="a finding that is intended and counts as a note; may be repeated")
    options.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    about = "run a data-parallel script unmodified, and say what is wrong with it (takes seconds)"
    options = commands.add_parser("watch", help=about, description=about, usage=(
        "python -m d2lpar watch [--ranks N] [--allow NAME] [--json] [--show] [--to-the-end] script.py [arguments]"),
        epilog="Instead of script.py you can give -m and a module. {rank} in an argument becomes the rank's number. "
        "Exit codes: 0 no fault was found, 1 a fault was found, 2 it could not be run")
    options.add_argument("--ranks", type=int, default=2,
                         help="number of ranks, unless the script or torchrun decides (default: 2)")
    options.add_argument("--allow", action="append", default=[], metavar="NAME",
                         help="a finding that is intended and counts as a note; may be repeated")
    options.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    options.add_argument("--show", action="store_true", help="show what the script prints")
    options.add_argument("--to-the-end", action="store_true",
                         help="let the script run to its end, unwatched, once enough was seen")
    if sys.argv[1:] and sys.argv[1] in MOVED:
        sys.exit(f"`python -m d2lpar {sys.argv[1]}` {MOVED[sys.argv[1]]}.")
    own = _own_words(sys.argv[1:])
    args = parser.parse_args(own or ["--help"])
    if args.command == "diagnose":
        _diagnose(args.file, args.ranks, args.allow, args.json)
        return
    if args.command == "script":
        _write_script(args.file)
        return
    _watch(args, sys.argv[1 + len(own):])


def _cannot(words: str) -> NoReturn:
    """End with exit code 2, saying why on stderr."""
    print(words.rstrip(), file=sys.stderr)
    sys.exit(2)


def _write_script(file: str) -> None:
    """Copy train_ddp.py to `file`, and say how to run it; exit with 2 if it is there already or cannot be written."""
    text = Path(__file__).with_name("train_ddp.py").read_text("utf8")
    try:
        with open(file, "x", encoding="utf8") as new:
            new.write(text)
    except FileExistsError:
        _cannot(f"{file} is there already, and stays as it is. Give a different name: python -m d2lpar script NAME.py")
    except OSError as problem:
        _cannot(f"{file} cannot be written: {problem.strerror}")
    print(f"wrote {file}. Run it on two ranks: torchrun --standalone --nproc-per-node=2 {file}")


def _diagnose(file: str, ranks: int, allow: list[str], as_json: bool) -> None:
    """Print the diagnosis of a file's training; exit with 1 if it has a fault, and with 2 if it cannot be run."""
    from d2lpar.diagnosis import diagnose

    if not file.endswith(".py"):
        _cannot(f"{file} is not a Python script (its name must end in .py)")
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # as Python does for a script
    sys.argv[:] = [file]
    try:
        defined = runpy.run_path(file)
    except OSError as problem:
        _cannot(str(problem))
    except SyntaxError as problem:
        _cannot("".join(traceback.format_exception_only(problem)))
    except SystemExit:
        _cannot(f'{file} exited while it was being imported: put the code that starts training under '
                'if __name__ == "__main__":')
    except Exception as problem:
        lines = traceback.format_exception(type(problem), problem, _of_file(problem, file))
        _cannot("".join(lines) + f'{file} was being imported: put the code that starts training under '
                'if __name__ == "__main__":')
    needed = "train", "make_net", "X", "y"
    if missing := [name for name in needed if name not in defined]:
        _cannot(f"{file} does not define {', '.join(missing)}. It has to define train(net, batches), make_net(), and "
                "examples, X and y")
    train, make_net, X, y = (defined[name] for name in needed)
    try:
        found = diagnose(train, make_net, X, y, ranks, allow=allow)
    except Exception as problem:
        lines = traceback.format_exception_only(problem)
        if of_file := [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == file]:
            lines = ["A single device cannot run this training:\n", *traceback.format_list(of_file), *lines]
            lines += [ADVICE] * bool(OF_DEVICES.search(lines[-1]))
        _cannot("".join(lines))
    print(json.dumps(found.as_dict(), indent=1) if as_json else found)
    sys.exit(not found.ok)


def _own_words(words: list[str]) -> list[str]:
    """The command and its options, without the script to watch and the script's own arguments."""
    if words[:1] != ["watch"]:
        return words
    end = 1
    while end < len(words) and words[end].startswith("-") and words[end] != "-m":
        end += 2 if words[end] in ("--ranks", "--allow") else 1
    return words[:end]


def _watch(args: argparse.Namespace, script: list[str]) -> None:
    """Print what is wrong with a script; exit with 1 if anything is, and with 2 if it cannot be run."""
    from d2lpar.diagnosis.scripts import NotRun, watch

    if not script or script == ["-m"]:
        _cannot("which script? python -m d2lpar watch train.py")
    if script[0] != "-m" and not os.path.isfile(script[0]):
        _cannot(f"there is no file {script[0]}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # to put files back before it ends
    try:
        found = watch(script, args.ranks, args.allow, args.show, args.to_the_end)
    except (NotRun, ValueError) as problem:
        _cannot(str(problem))
    if isinstance(found, int):  # torchrun's first rank prints it
        sys.exit(found)
    print(json.dumps(found.as_dict(), indent=1) if args.json else found)
    sys.exit(not found.ok)


def _of_file(problem: BaseException, file: str) -> TracebackType | None:
    """The part of the traceback that begins in the user's file."""
    trace = problem.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    main()
