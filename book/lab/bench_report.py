"""The rows of the bench, as a table and as JSON: how many times as fast the book's code is, spread and limit."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tabulate import tabulate

Times = dict[str, list[float]]  # by case, the seconds of each repeat
GROUPS = ("allreduce", "bandwidth", "training step", "one replica", "dispatch", "data", "import", "survival")


class Row(NamedTuple):
    """How many times as fast `what` is as `against`: the median of the repeats, their middle half, and the limit."""

    group: str
    what: str
    against: str
    ratio: float
    low: float
    high: float
    limit: float | None = None


class Report(NamedTuple):
    """One run: its machine and data, how often each case was timed, how long the run took, and its rows."""

    machine: dict[str, str]
    repeats: int
    seconds: int
    rows: list[Row]


def ratio_row(group: str, what: str, against: str, times: Times, ours: str, reference: str,
              limit: float | None = None) -> Row:
    """The row of two cases of one interleaved run: the quartiles of the repeats' ratios."""
    low, ratio, high = statistics.quantiles(ratios(times, ours, reference), n=4, method="inclusive")
    return Row(group, what, against, ratio, low, high, limit)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table that is also readable as it is; the rows of a single group are shown without its name."""
    columns = {
        "group": [row.group for row in rows],
        "ours": [row.what for row in rows],
        "against": [row.against for row in rows],
        "times as fast": [short(row.ratio) for row in rows],
        "middle half": [f"{short(row.low)} to {short(row.high)}" for row in rows],
        "limit": [short(row.limit) for row in rows],
    }
    if len(set(columns["group"])) == 1:
        del columns["group"]
    sides = ["left"] * (len(columns) - 3) + ["right"] * 3
    return tabulate(columns, headers="keys", tablefmt="pipe", colalign=sides, disable_numparse=True)


def blocks(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """The rows under headings, by the rest of their name; a heading is the part that more rows share."""
    share_against = len({row.against for row in rows}) < len({row.what for row in rows})
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        heading, name = (f"against {row.against}", row.what) if share_against else (f"{row.what}, against", row.against)
        found.setdefault(heading, {})[name] = row
    return found


def finding(rows: Sequence[Row]) -> str:
    """What the rows say, in one sentence; a row whose middle half contains 1 counts as neither faster nor slower."""
    least, most = min(rows, key=lambda row: row.ratio), max(rows, key=lambda row: row.ratio)
    if least == most:
        return (f"The book's code is {short(most.ratio)} times as fast; "
                f"the middle half of the repeats goes from {short(most.low)} to {short(most.high)}.")
    faster, slower = sum(row.low > 1 for row in rows), sum(row.high < 1 for row in rows)
    counts = {"faster": faster, "slower": slower, "neither": len(rows) - faster - slower}
    said = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
    return (f"Of {len(rows)} rows, the book's code is {said}; the ratios go from {short(least.ratio)} to "
            f"{short(most.ratio)} ({most.what}, against {most.against}).")


def to_json(report: Report) -> str:
    """The report as JSON text."""
    rows = [row._asdict() for row in report.rows]
    return json.dumps(report._asdict() | {"rows": rows}, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Report:
    """The report that `to_json` wrote."""
    facts = json.loads(text)
    return Report(**facts | {"rows": [Row(**row) for row in facts["rows"]]})


def short(number: float | None) -> str:
    """Three digits, or all that come before the point; nothing for None."""
    if number is None:
        return ""
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"


def ratios(times: Times, ours: str, reference: str) -> list[float]:
    """How many times as fast `ours` is as `reference`, repeat by repeat."""
    return [theirs_s / ours_s for theirs_s, ours_s in zip(times[reference], times[ours], strict=True)]
