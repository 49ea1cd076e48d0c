"""The package's commands: `python -m d2lpar data` downloads Fashion-MNIST."""

from __future__ import annotations

import argparse
import sys

from d2lpar.data import DataError, download_fashion_mnist


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m d2lpar", description="The commands of the book's package.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("data", help="download Fashion-MNIST (30 MB), checked, to where the book looks for it")
    parser.parse_args()
    try:
        download_fashion_mnist()
    except DataError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
