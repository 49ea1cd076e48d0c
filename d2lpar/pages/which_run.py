"""Pairs of training runs, a right and a broken one: the reader says which is broken, and then sees what `watch` says.

`python book/lab/which_run.py` writes `stored/which_run.json`. On the site, `book/tools/explorer_ext.py` and
`which_run.js` make a game of it; JupyterLab and paper show a still picture of all pairs, without the answers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from d2lpar.pages.plot import rank_style, use_book_style
from d2lpar.pages.results import stored_results
from d2lpar.pages.stepper import put_figure

WHICH_RUN = "application/vnd.d2lpar.which-run+json"
SIDES = "AB"


def which_runs() -> list[dict[str, Any]]:
    """The stored pairs: each has its `mistake`, its `broken` side, and both scripts' `curves` and `verdict`."""
    return stored_results("which_run")["pairs"]


def end_levels(curves: Sequence[Sequence[float]]) -> list[float]:
    """For each run, the median of its losses in the last tenth of the steps."""
    return [statistics.median(curve[-max(1, len(curve) // 10):]) for curve in curves]


def differs_at_the_end(pair: Mapping[str, Any]) -> bool:
    """Whether the two scripts differ by more than their seeds.

    That is so if the median of the right runs' end levels is outside the range of the wrong runs' end levels, and the
    median of the wrong ones outside the range of the right ones.
    """
    right, wrong = (end_levels(pair[which]["curves"]) for which in ("right", "wrong"))
    return all(not min(others) <= statistics.median(levels) <= max(others)
               for levels, others in ((right, wrong), (wrong, right)))


def which_run_answers() -> str:
    """A table in Markdown: the broken run of each pair, what `watch` calls the mistake, and whether the ends differ."""
    rows = [f"| {i} | {pair['broken']} | {pair['wrong']['verdict']['faults'][0]} | {pair['mistake']} "
            f"| {_range(pair['right'])} | {_range(pair['wrong'])} | {'yes' if differs_at_the_end(pair) else 'no'} |"
            for i, pair in enumerate(which_runs(), 1)]
    head = ["| pair | broken | what `watch` reports | the mistake | right script ends at | broken script ends at "
            "| differ by more than their seeds |", "|" + "---|" * 7]
    return "\n".join(head + rows)


def show_which_run() -> None:
    """Put the nine pairs on the page. Outside a notebook nothing is shown."""
    pairs = which_runs()
    words = "Nine panels, each with the losses of run A and run B. " + " ".join(
        f"Pair {i}. " + " ".join(_words(pair, side) for side in SIDES) for i, pair in enumerate(pairs, 1))
    put_figure(WHICH_RUN, lambda: _drawn(pairs), lambda: _data(pairs), words)


def _runs(pair: Mapping[str, Any], side: str) -> list[list[float]]:
    """The curves that are shown as A or as B, one for each seed."""
    return pair["wrong" if side == pair["broken"] else "right"]["curves"]


def _words(pair: Mapping[str, Any], side: str) -> str:
    """The curve of the first seed, in numbers."""
    curve, quarter = _runs(pair, side)[0], len(_runs(pair, side)[0]) // 4
    means = [f"{statistics.mean(curve[i:i + quarter]):.2f}" for i in range(0, 4 * quarter, quarter)]
    return f"Run {side}: the loss is {curve[0]:.2f} at first, and {', '.join(means)} on average in the four quarters."


def _range(script: Mapping[str, Any]) -> str:
    levels = end_levels(script["curves"])
    return f"{min(levels):.2f} to {max(levels):.2f}"


def _data(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the browser draws and says, each curve as one text, so that the notebook stays short.

    `version` changes with the data, so that old answers are not counted.
    """
    about = stored_results("which_run")["about"]
    return {"version": about["date"], "every": about["every"],
            "colors": [to_hex(rank_style(i)["color"]) for i in range(len(SIDES))],
            "pairs": [{"broken": pair["broken"], "mistake": pair["mistake"],
                       "fault": pair["wrong"]["verdict"]["faults"][0], "seen": pair["wrong"]["verdict"]["seen"],
                       "ends": {"right": _range(pair["right"]), "wrong": _range(pair["wrong"])},
                       "differs": differs_at_the_end(pair),
                       "words": [_words(pair, side) for side in SIDES],
                       "runs": [[" ".join(map(str, curve)) for curve in _runs(pair, side)] for side in SIDES]}
                      for pair in pairs]}


def _drawn(pairs: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel for each pair, with the curves of the first seed."""
    every = stored_results("which_run")["about"]["every"]
    use_book_style()
    fig, axes = plt.subplots(3, 3, figsize=(7.2, 5.6), sharex=True, sharey=True)
    for i, (ax, pair) in enumerate(zip(axes.flat, pairs)):
        for side, color, dashes in zip(SIDES, range(2), ("-", (0, (3, 1)))):
            curve = _runs(pair, side)[0]
            ax.plot([every * (j + 1) for j in range(len(curve))], curve, linestyle=dashes, linewidth=1.1, label=side,
                    color=rank_style(color)["color"])
        ax.text(0.5, 0.95, f"pair {i + 1}", transform=ax.transAxes, ha="center", va="top", weight="bold")
        ax.set(ylim=(0, 2.5))
    axes[0, 0].legend(title="run")
    fig.supxlabel("step", fontsize=10)
    fig.supylabel("loss that rank 0 prints", fontsize=10)
    return fig
