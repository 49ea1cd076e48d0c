"""Read the command line of `python -m d2lpar`, and answer whatever needs no PyTorch before PyTorch is imported.

Importing PyTorch takes seconds, so this module imports only the standard library. `d2lpar/__init__.py` calls `answer`
before its own imports, and `__main__.py` calls it again for the options.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import sys
import traceback
import warnings
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path
from typing import Any, NoReturn

MANUAL = " The rules and their limits are on the book's page \"`watch` and `diagnose`: the manual\"."
SCHEMA = 1  # of the JSON that `watch` and `diagnose` print


def answer(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of `watch` or `diagnose`, and the script to watch with its arguments.

    Everything else ends the program: help and `script` with exit code 0, and whatever cannot be run with 2.
    """
    own = _own_words(words)
    args, script = _parser().parse_args(own or ["--help"]), words[len(own):]
    if args.command == "script":
        _write_script(args.file)
    elif args.command == "diagnose":
        if not args.file.endswith(".py"):
            cannot(f"{args.file} is not a Python script (its name must end in .py)")
        _check_file(args.file)
    elif not script or script == ["-m"]:
        cannot("which script? python -m d2lpar watch train.py")
    elif script[0] == "-m":
        _check_module(script[1])
    else:
        _check_file(script[0])
    return args, script


def cannot(words: str) -> NoReturn:
    """End with exit code 2, and say why on stderr, and with --json on stdout as well."""
    if "--json" in _own_words(sys.argv[1:]):
        print(as_json(2, error=words.strip()))
    print(words.rstrip(), file=sys.stderr)
    sys.exit(2)


def as_json(exit_code: int, **more: Any) -> str:
    """What a command prints with --json, whatever its exit code."""
    versions: dict[str, str | None] = {}
    for name in ("d2lpar", "torch"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # a copy of the package that is not installed
            versions[name] = None
    nothing: dict[str, Any] = {"error": None, "compared": None, "coverage": {}, "findings": [], "unchecked": [],
                               "files": {}, "seconds": None}
    head = {"schema": SCHEMA, **versions, "exit": exit_code, "ok": exit_code == 0}
    return json.dumps(head | nothing | more, indent=1)


class _Parser(argparse.ArgumentParser):
    """One whose errors are JSON where JSON is asked for."""

    def error(self, message: str) -> NoReturn:
        cannot(f"{self.format_usage()}{self.prog}: error: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m d2lpar", description="The commands of the book's package.")
    commands = parser.add_subparsers(dest="command")
    about = "write train_ddp.py, a training script to start from; it resumes after a kill"
    options = commands.add_parser("script", help=about, description=about)
    options.add_argument("file", nargs="?", default="train_ddp.py", help="file to write (default: train_ddp.py)")
    about = "train on a single device and on ranks, and say what differs (takes seconds)"
    options = commands.add_parser("diagnose", help=about, description=about,
                                  epilog="Exit codes: 0 no fault was found, 1 a fault was found, 2 it could not be run."
                                         + MANUAL)
    options.add_argument("file", help="defines train(net, batches), make_net(), and a batch, X and y")
    options.add_argument("--ranks", type=_count, default=2, help="number of ranks (default: 2)")
    options.add_argument("--allow", action="append", default=[], metavar="NAME",
                         help="name of a finding to treat as a note, because it is intended; may be repeated")
    options.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    about = "run a data-parallel script unmodified for two shortened epochs, and report the mistakes found"
    judged = (". It judges scripts with DistributedDataParallel, also through Accelerate, transformers.Trainer, "
              "Lightning, Fabric or ignite, and scripts with fully_shard. If no fault is found, a script that saves a "
              "checkpoint is started once more with it")
    options = commands.add_parser("watch", help=about, description=about + judged, usage=(
        "python -m d2lpar watch [--ranks N] [--allow NAME] [--json] [--show] [--to-the-end] script.py [arguments]"),
        epilog="Instead of script.py you can give -m and a module. {rank} in an argument becomes the rank's number, "
        "and {checkpoint} the path of the script's first checkpoint, which only the second run is given. "
        "Exit codes: 0 no fault was found, 1 a fault was found, 2 it could not be run or took no optimizer step, 3 no "
        "fault was found, but the start, the exchange, the update, the data or a resumed run could not be judged "
        "(--allow unjudged makes it 0)." + MANUAL)
    options.add_argument("--ranks", type=_count, default=2,
                         help="number of ranks, unless the script or torchrun decides (default: 2)")
    options.add_argument("--allow", action="append", default=[], metavar="NAME",
                         help="name of a finding to treat as a note, because it is intended; may be repeated")
    options.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    options.add_argument("--show", action="store_true", help="show what the script prints")
    options.add_argument("--to-the-end", action="store_true",
                         help="let the script run to its end, unwatched, once enough has been seen")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text}")
    return int(text)


def _own_words(words: list[str]) -> list[str]:
    """The command and its options, without the script to watch and the script's own arguments."""
    if words[:1] != ["watch"]:
        return words
    end = 1
    while end < len(words) and words[end].startswith("-") and words[end] != "-m":
        end += 2 if words[end] in ("--ranks", "--allow") else 1
    return words[:end]


def _write_script(file: str) -> NoReturn:
    """Copy train_ddp.py to `file`, and say how to run it; exit with 2 if it is there already or cannot be written."""
    text = Path(__file__).with_name("train_ddp.py").read_text("utf8")
    try:
        with open(file, "x", encoding="utf8") as new:
            new.write(text)
    except FileExistsError:
        cannot(f"{file} already exists and was not changed. Give a different name: python -m d2lpar script NAME.py")
    except OSError as problem:
        cannot(f"{file} cannot be written: {problem.strerror}")
    print(f"wrote {file}. Run it on two ranks: torchrun --standalone --nproc-per-node=2 {file}")
    sys.exit(0)


def _check_file(file: str) -> None:
    """Exit with 2 if Python cannot even begin to run this file."""
    if os.path.isdir(file):
        cannot(f"{file} is a folder, not a script")
    if not os.path.isfile(file):
        cannot(f"there is no file {file}")
    try:
        text = Path(file).read_bytes()
        if pkgutil.get_importer(file) or text.startswith(MAGIC_NUMBER):  # Python also runs zip archives and .pyc files
            return
        with warnings.catch_warnings(action="ignore"):  # the script's own run will show them
            compile(text, file, "exec", dont_inherit=True)
    except OSError as problem:
        cannot(f"{file} cannot be read: {problem.strerror}")
    except (SyntaxError, ValueError) as problem:
        words = "".join(traceback.format_exception_only(problem))
        cannot(words if file in words else f"{file}: {words}")  # for a null byte, Python names no file


def _check_module(name: str) -> None:
    """Exit with 2 if there is no such module, as far as that can be known without importing its package."""
    top, _, below = name.partition(".")
    try:
        spec = find_spec(top) or PathFinder.find_spec(top, [os.getcwd()])
    except ValueError:  # "" and "__main__" have no spec
        spec = None
    if spec is None or (below and spec.submodule_search_locations is None):
        cannot(f"there is no module {name}" + ". To watch a file, leave out -m" * name.endswith(".py"))
    if spec.origin and spec.origin.endswith(".py") and os.path.isfile(spec.origin):
        _check_file(spec.origin)
