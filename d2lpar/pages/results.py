"""Results of runs that take too long for a page, stored in the book.

A file of records, `stored/NAME.jsonl`, is JSON Lines: first a line that says where the records come from, then one line
per run. The scripts in `book/lab/` write all such files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("stored")
WAYS = {"DDP": "DistributedDataParallel", "Transformers": "transformers.Trainer"}


class RecordError(RuntimeError):
    """A file of records that cannot be used, and what to do about it."""


def read_records(path: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line of a file of records, and all others.

    Raises:
        RecordError: if the file is not there, is cut off, or holds anything but records, or one run twice.
    """
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: a zero byte in the name
        raise RecordError(f"{path} cannot be read: {getattr(problem, 'strerror', problem)}") from problem
    about, records = parsed_records(path, text)
    if not text.endswith(b"\n"):
        raise RecordError(f"{path} is cut off in line {len(records) + 2}; the command that wrote it mends that")
    return about, records


def run_key(run: Mapping[str, Any]) -> str:
    """What tells one run from the others in a file: its arguments."""
    return json.dumps(run, sort_keys=True)


def parsed_records(path: str | Path, text: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the whole lines of a file hold."""
    lines = []
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        try:
            lines.append(json.loads(line))
            assert isinstance(lines[-1], dict) and isinstance(lines[-1].get("about" if number == 1 else "run"), dict)
        except (ValueError, AssertionError, RecursionError):
            raise RecordError(f"{path} holds no records: line {number} is none. Name another file.") from None
    if not lines:
        raise RecordError(f"{path} holds no records: it has no whole line")
    keys = [run_key(record["run"]) for record in lines[1:]]
    for number, key in enumerate(keys, 2):
        if key in keys[:number - 2]:
            raise RecordError(f"{path} holds one run twice: line {number} and line {keys.index(key) + 2}")
    return lines[0]["about"], lines[1:]


def stored_results(name: str) -> dict[str, Any]:
    """The results that `stored/NAME.json` holds; "about" says by which command, on which machine and data."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf8"))


def judged_rows(trainers: dict[str, Any]) -> list[list[str]]:
    """What `watch` judges of a script for each way of training, as a table's rows, from `stored/trainers.json`."""
    columns = {"start, exchange, update": ("start", "exchange", "update"), "scale of the loss": ("scale",),
               "data": ("data",)}
    rows = [["your script uses", *columns, "right scripts passed", "wrong scripts named"]]
    for name, one in sorted(trainers.items(), key=lambda item: "right" in item[1]):  # first what needs no trainer
        states = [", ".join(dict.fromkeys(one["coverage"][subject] for subject in subjects))
                  for subjects in columns.values()]
        counts = [f"{one[hits]} of {one[n]}" if n in one else "" for hits, n in (
            ("let through", "right"), ("named", "wrong"))]
        rows.append([WAYS.get(name, name), *states, *counts])
    return rows


def stored_records(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is said of the runs in `stored/NAME.jsonl`, by which command, on which machine and data; and the runs.

    Raises:
        RecordError: if the file is not there, is cut off, or holds anything else.
    """
    return read_records(FOLDER / f"{name}.jsonl")


def median_interval(values):
    """The second smallest and the second largest of ten values: 98 of 100 such
    intervals contain the median of all runs like them."""
    low, *_, high = sorted(values)[1:-1]
    return low, high


def stored_script(name: str) -> str:
    """The text of `stored/NAME.py`, a script to take home."""
    return (FOLDER / f"{name}.py").read_text("utf8")
