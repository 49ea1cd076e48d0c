"""The package's commands: `python -m d2lpar train`, `diagnose`, `bench` and `study`; each has a --help."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback

ADVICE = ("It runs on the CPU, with a list of pairs X, y for a loader: leave out .cuda(), .to(rank), device_ids and "
          "sampler.set_epoch, or ask first whether they are there.")


def main() -> None:
    """Do what the words behind `python -m d2lpar` ask for."""
    parser = argparse.ArgumentParser(prog="python -m d2lpar", description="The commands of the book's package.")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("train", add_help=False, help="train a network, so that it can be killed and go on")
    about = "run a training on one worker and on ranks, and say what differs (seconds)"
    options = commands.add_parser("diagnose", help=about, description=about)
    options.add_argument("file", help="defines train(net, batches), make_net(), and a batch, X and y")
    options.add_argument("--ranks", type=int, default=2, help="how many (2)")
    about = "measure how fast it is here, as a table of ratios (two minutes on two cores)"
    options = commands.add_parser("bench", help=about, description=about)
    options.add_argument("--quick", action="store_true", help="fewer rows and rounds (half a minute)")
    options.add_argument("--json", nargs="?", const="-", metavar="FILE",
                         help="write JSON into FILE too, or print it instead of the table")
    about = "train one recipe under every suspect, ten seeds each (an hour and a quarter on two cores)"
    options = commands.add_parser("study", help=about, description=about)
    options.add_argument("file", help="where the results go; stopped, the same command goes on from there")
    options.add_argument("--seeds", type=int, default=10, help="how many (10)")
    options.add_argument("--only", choices=("branches",),
                         help="in place of them, single steps of many kinds from ten trained networks (twenty minutes)")
    options.add_argument("--full-size", action="store_true",
                         help="width 64, 60,000 images, batches of 256 and 512, as published (for a GPU)")
    if sys.argv[1:2] == ["train"]:
        agent = os.getppid()  # before the seconds of imports, in which it may be killed
        from d2lpar.trainer import command as train

        train(sys.argv[2:], agent)
        return
    args = parser.parse_args(sys.argv[1:] or ["--help"])
    if args.command == "diagnose":
        _diagnose(args.file, args.ranks)
        return
    if args.command == "bench":
        from d2lpar.pages.bench.run import command  # here, so that help and a wrong word are answered at once

        command(args.quick, args.json)
        return
    from d2lpar.data import DataError
    from d2lpar.pages.branches import run_all_branches
    from d2lpar.pages.records import RecordError
    from d2lpar.pages.study import FULL, SMALL, run_study

    run = run_all_branches if args.only == "branches" else run_study
    try:
        run(args.file, args.seeds, FULL if args.full_size else SMALL)
    except (DataError, RecordError, ValueError) as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit(f"\nStopped. What had ended stands in {args.file}; the same command goes on from there.")


def _diagnose(file: str, ranks: int) -> None:
    """Print the diagnosis of a file's training; exit with 1 if it has a fault, or cannot be run."""
    from d2lpar.processes.diagnosis import diagnose

    if not file.endswith(".py"):
        sys.exit(f"{file} is no script of Python, whose name ends in .py")
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # as Python does for a script
    sys.argv[:] = [file]
    try:
        defined = runpy.run_path(file)
    except OSError as problem:
        sys.exit(str(problem))
    except SyntaxError as problem:
        sys.exit("".join(traceback.format_exception_only(problem)))
    except SystemExit:
        sys.exit(f'{file} ends the program itself: what starts a training belongs under if __name__ == "__main__"')
    except Exception as problem:
        problem.add_note(f'{file} was imported: what starts a training belongs under if __name__ == "__main__"')
        raise
    needed = "train", "make_net", "X", "y"
    if missing := [name for name in needed if name not in defined]:
        sys.exit(f"{file} does not define {', '.join(missing)}. It has to define train(net, batches), make_net(), and "
                 "a batch, X and y")
    train, make_net, X, y = (defined[name] for name in needed)
    try:
        found = diagnose(train, make_net, X, y, ranks)
    except Exception as problem:
        lines = traceback.format_exception_only(problem)
        if of_file := [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == file]:
            lines = ["One worker cannot run this training:\n", *traceback.format_list(of_file), *lines, ADVICE]
        sys.exit("".join(lines))
    print(found)
    sys.exit(not found.ok)


if __name__ == "__main__":
    main()
