"""What runs have found that take too long for a page, stored in the book."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from d2lpar.base.checks import shown
from d2lpar.pages.records import read_records

FOLDER = Path(__file__).with_name("stored")


def stored_results(name: str) -> dict[str, Any]:
    """The results that `stored/NAME.json` holds; "about" says by which command, on which machine and data.

    Raises:
        ValueError: if there are none of this name.
    """
    return json.loads(_found(name, ".json").read_text("utf8"))


def stored_records(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is said of the runs in `stored/NAME.jsonl`, by which command, on which machine and data; and the runs.

    Raises:
        ValueError: if there are none of this name.
        RecordError: if the file is cut off, or holds anything else.
    """
    return read_records(_found(name, ".jsonl"))


def stored_script(name: str) -> str:
    """The text of `stored/NAME.py`, a script to take home.

    Raises:
        ValueError: if there is none of this name.
    """
    return _found(name, ".py").read_text("utf8")


def _found(name: str, ending: str) -> Path:
    """The file of this name, which is one of those that are there."""
    known = sorted(file.stem for file in FOLDER.glob(f"*{ending}"))
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"there are stored results of the names {known}, not {shown(name)}")
    return FOLDER / f"{name}{ending}"
