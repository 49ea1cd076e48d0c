"""Copy the chapters into `lab/`, where readers run and change them: `python book/tools/working_copy.py` (`make lab`).

JupyterLab saves what it runs, and the chapters in `notebooks/` hold what the site shows and the tests compare. A
chapter is copied where it is not there yet, or as the book has left it. One that the reader has run or changed stays.
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from pathlib import Path

from revisions import notebooks

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ".copied.json"  # by name, the SHA-256 of the chapter as it was copied


def bring_up_to_date(book: Path, copies: Path) -> list[str]:
    """Copy the chapters of `book` into `copies`; a line for each that stays although the book's is newer."""
    copies.mkdir(exist_ok=True)
    copied, kept = read_manifest(copies), []
    for original in notebooks(book):
        name = original.relative_to(book).as_posix()
        content, copy = original.read_bytes(), copies / name
        copy.parent.mkdir(exist_ok=True)
        newest = sha256(content).hexdigest()
        found = sha256(copy.read_bytes()).hexdigest() if copy.exists() else None
        if found in (None, newest, copied.get(name)):
            if found != newest:
                write(copy, content)
            copied[name] = newest
        elif copied.get(name) != newest:
            kept.append(f"{copies.name}/{name} is as you have left it, and the book has a newer one. "
                        "To get that too, rename yours and run the same command again.")
    write(copies / MANIFEST, json.dumps(copied, indent=1).encode())
    return kept


def read_manifest(copies: Path) -> dict[str, str]:
    """What has been copied; nothing, if that cannot be read: then every chapter counts as the reader's."""
    try:
        copied = json.loads((copies / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return copied if isinstance(copied, dict) else {}


def write(path: Path, content: bytes) -> None:
    """All of the content or nothing, whenever it is interrupted."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    os.replace(part, path)


def main() -> None:
    try:
        kept = bring_up_to_date(ROOT / "notebooks", ROOT / "lab")
    except OSError as problem:
        sys.exit(f"The chapters cannot be copied: {problem.filename}: {problem.strerror}.")
    for line in kept:
        print(line)


if __name__ == "__main__":
    main()
