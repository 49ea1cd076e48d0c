"""What runs have found that take too long for a page, stored in the book (chapter 2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from d2lpar.checks import shown
from d2lpar.records import read_records

BOOK = Path(__file__).resolve().parents[1] / "book"
FOLDER = BOOK / "_data"


def stored(name: str) -> dict[str, Any]:
    """The results that `book/_data/NAME.json` holds; "about" says by which command, on which machine and data.

    Raises:
        ValueError: if there are none of this name.
    """
    return json.loads(_found(name, ".json").read_text("utf8"))


def stored_records(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is said of the runs in `book/_data/NAME.jsonl`, by which command, on which machine and data; and the runs.

    Raises:
        ValueError: if there are none of this name.
        RecordError: if the file is cut off, or holds anything else.
    """
    return read_records(_found(name, ".jsonl"))


def stored_script(name: str) -> str:
    """The text of `book/downloads/NAME.py`, a script to take home.

    Raises:
        ValueError: if there is none of this name.
    """
    return _found(name, ".py", BOOK / "downloads").read_text("utf8")


def _found(name: str, ending: str, folder: Path | None = None) -> Path:
    """The file of this name, which is one of those that are there."""
    folder = folder or FOLDER
    known = sorted(file.stem for file in folder.glob(f"*{ending}"))
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"there are stored results of the names {known}, not {shown(name)}; "
                         "they lie in the book's folder, not in the package")
    return folder / f"{name}{ending}"
