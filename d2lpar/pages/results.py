"""What runs have found that take too long for a page, stored in the book."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from d2lpar.pages.records import read_records

FOLDER = Path(__file__).with_name("stored")


def stored_results(name: str) -> dict[str, Any]:
    """The results that `stored/NAME.json` holds; "about" says by which command, on which machine and data."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf8"))


def stored_records(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is said of the runs in `stored/NAME.jsonl`, by which command, on which machine and data; and the runs.

    Raises:
        RecordError: if the file is not there, is cut off, or holds anything else.
    """
    return read_records(FOLDER / f"{name}.jsonl")


def stored_script(name: str) -> str:
    """The text of `stored/NAME.py`, a script to take home."""
    return (FOLDER / f"{name}.py").read_text("utf8")
