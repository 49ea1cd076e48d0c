"""The package's commands: `python -m d2lpar data` downloads Fashion-MNIST, `bench` measures how fast it is here."""

from __future__ import annotations

import argparse
import sys


def main() -> None:
    """Do what the words behind `python -m d2lpar` ask for."""
    parser = argparse.ArgumentParser(prog="python -m d2lpar", description="The commands of the book's package.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("data", help="download Fashion-MNIST (30 MB), checked, to where the book looks for it")
    about = "measure how fast it is here, as a table of ratios (two minutes on two cores)"
    options = commands.add_parser("bench", help=about, description=about)
    options.add_argument("--quick", action="store_true", help="fewer rows and rounds (half a minute)")
    options.add_argument("--json", nargs="?", const="-", metavar="FILE",
                         help="write JSON into FILE too, or print it instead of the table")
    args = parser.parse_args()
    if args.command == "bench":
        from d2lpar.bench.run import command  # here, so that help and a wrong word are answered at once

        command(args.quick, args.json)
        return
    from d2lpar.download import download_fashion_mnist
    from d2lpar.official_files import DataError

    try:
        download_fashion_mnist()
    except DataError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
