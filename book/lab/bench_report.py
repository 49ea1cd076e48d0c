"""The rows of the bench, as a table and as JSON: how many times as fast the book's code is, ranges and limit.

Each case is built several times, in processes of its own, and each build is timed in several blocks. A ratio is only as
good as its range, from the lowest to the highest of all blocks.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tabulate import tabulate

Times = dict[str, list[float]]  # by case, the seconds of each repeat
GROUPS = ("allreduce", "training step", "one replica", "dispatch", "data", "import", "survival")


class Row(NamedTuple):
    """How many times as fast `what` is as `against`: the median of all blocks, their range, the builds, the limit."""

    group: str
    what: str
    against: str
    ratio: float
    low: float
    high: float
    builds: Sequence[float]  # the median of each
    limit: float | None = None


class Report(NamedTuple):
    """One run: its machine and data, how often each case was built and timed, how long the run took, and its rows."""

    machine: dict[str, str]
    builds: int
    repeats: int
    seconds: int
    rows: list[Row]


def ratio_row(group: str, what: str, against: str, runs: Sequence[Times], ours: str, reference: str,
              limit: float | None = None) -> Row:
    """The row of two cases that were timed in turn, from the times of each build."""
    builds = [ratios(times, ours, reference) for times in runs]
    every = [ratio for build in builds for ratio in build]
    return Row(group, what, against, statistics.median(every), min(every), max(every),
               [statistics.median(build) for build in builds], limit)


def median_ratio(runs: Sequence[Times], ours: str, reference: str) -> float:
    """How many times as fast `ours` is as `reference`: the median of all blocks."""
    return ratio_row("", "", "", runs, ours, reference).ratio


def makes_no_difference(row: Row) -> bool:
    """Whether the range goes from slower to faster."""
    return row.low <= 1 <= row.high


def moved(before: Report, now: Report) -> list[str]:
    """The rows of `now` whose range does not overlap with the range that `before` states for them, in words."""
    stated = {row[:3]: row for row in before.rows}
    pairs = [(row, stated[row[:3]]) for row in now.rows if row[:3] in stated]
    return [f"{row.what}, against {row.against}: {short(row.low)} to {short(row.high)}, and before {short(old.low)} to "
            f"{short(old.high)}" for row, old in pairs if not (old.low <= row.high and row.low <= old.high)]


def table(rows: Sequence[Row]) -> str:
    """A Markdown table that is also readable as it is; the rows of a single group are shown without its name."""
    columns = {
        "group": [row.group for row in rows],
        "ours": [row.what for row in rows],
        "against": [row.against for row in rows],
        "times as fast": [in_words(row) for row in rows],
        "builds": [f"{short(min(row.builds))} to {short(max(row.builds))}" for row in rows],
        "range": [f"{short(row.low)} to {short(row.high)}" for row in rows],
        "limit": [short(row.limit) for row in rows],
        "of it": [f"{row.ratio / row.limit:.0%}" if row.limit else "" for row in rows],
    }
    if len(set(columns["group"])) == 1:
        del columns["group"]
    sides = ["left"] * (len(columns) - 5) + ["right"] * 5
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
    """What the rows say, in one sentence."""
    least, most = min(rows, key=lambda row: row.ratio), max(rows, key=lambda row: row.ratio)
    if least == most:
        ratio = short(most.ratio)
        said = f"No difference ({ratio})" if makes_no_difference(most) else f"{ratio} times as fast"
        return f"{said}; the range goes from {short(most.low)} to {short(most.high)}."
    faster, slower = sum(row.low > 1 for row in rows), sum(row.high < 1 for row in rows)
    counts = {"faster": faster, "slower": slower, "no difference": len(rows) - faster - slower}
    said = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
    return (f"Of {len(rows)} rows: {said}; the ratios go from {short(least.ratio)} to "
            f"{short(most.ratio)} ({most.what}, against {most.against}).")


def in_words(row: Row) -> str:
    """The ratio, with the words "no difference" where its range contains 1."""
    return f"no difference ({short(row.ratio)})" if makes_no_difference(row) else short(row.ratio)


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
