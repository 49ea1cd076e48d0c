"""The book's figures: one style, one colour and one marker per rank, one way to draw a timeline.

A page passes data. Each drawing gives its figure a label that says in words, with the numbers, what a sighted reader
sees; `show` puts the figure on the page with them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.backends.registry import BackendFilter, backend_registry
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from d2lpar.timing import Span, in_notebook

MARKERS = "osD^vP*X"  # the second cue next to the colour, for eight ranks
STYLE = ["default", Path(__file__).with_name("book.mplstyle")]  # none of the reader's own settings
MS = 1e-3  # seconds
# one for each kind of communication; lines only, because dots make an SVG of one megabyte
HATCHES = ("////", "----", "xxxx", "\\\\\\\\")


def use_book_style() -> None:
    """Give all figures the book's look and store them as SVG: one figure has the same bytes for every reader.

    This overrides the reader's own settings for matplotlib and for figures in notebooks.
    """
    plt.style.use(STYLE)
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # no date in the file, even if d2l's own plotting resets the format
    if in_notebook():
        from matplotlib_inline import backend_inline  # comes with IPython, which no script needs

        inline = backend_inline.InlineBackend.instance()
        inline.print_figure_kwargs, inline.close_figures = {"bbox_inches": "tight"}, True  # as they are by default
        backend_inline.set_matplotlib_formats("svg")


def _subplots(*args: Any, **kwargs: Any) -> Any:
    """`subplots` of pyplot in the book's style: every figure starts here."""
    use_book_style()
    return plt.subplots(*args, **kwargs)


def rank_style(rank: int) -> dict:
    """The colour and the marker of a rank, the same in the whole book; both repeat after eight ranks."""
    colors = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    return {"color": colors[rank % len(colors)], "marker": MARKERS[rank % len(MARKERS)]}


def show(fig: Figure) -> None:
    """Put `fig` on the page, with its label as the alt text, and close it.

    Outside a notebook it opens a window, if matplotlib can open one.

    Raises:
        ValueError: if the figure has no label.
    """
    use_book_style()
    if not fig.get_label():
        raise ValueError("the figure has no alt text: set it with fig.set_label('...')")
    if in_notebook():
        from IPython.display import display

        display(fig, metadata={"image/svg+xml": {"alt": fig.get_label()}})
    elif mpl.get_backend().lower() in backend_registry.list_builtin(BackendFilter.INTERACTIVE):
        plt.show()
    plt.close(fig)


def draw_curves(curves: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, x: Sequence[float] | None = None,
                xscale: str = "linear", yscale: str = "linear",
                points: Mapping[str, Sequence[float]] | None = None) -> Figure:
    """Lines over `x` (1, 2, 3, ... by default), curve i in the style of rank i, each labelled by its name.

    The scales are matplotlib's, "linear" or "log". `points` holds the measured values of those curves that have any,
    under the same names: they get the markers, and the lines are dashed.
    """
    fig, ax = _subplots()
    for i, (name, values) in enumerate(curves.items()):
        places, style = _places(x, values), rank_style(i)
        if points is None:
            ax.plot(places, values, label=name, markevery=max(1, len(values) // 10), **style)
        else:
            ax.plot(places, values, "--", color=style["color"], label=f"{name}, predicted")
            if name in points:
                ax.plot(places, points[name], linestyle="none", label=f"{name}, measured", **style)
    ax.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    if x is None:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(curves) > 1:
        ax.legend()
    words = "; ".join(map(_curve_words, curves, curves.values()))
    if points is not None:
        words = f"Predicted: {words}. Measured: " + "; ".join(map(_curve_words, points, points.values()))
    fig.set_label(f"{_by(xlabel, ylabel)}. {words}.")
    return fig


def draw_seeds(curves: Mapping[str, Sequence[Sequence[float]]], xlabel: str, ylabel: str,
               x: Sequence[float] | None = None, yscale: str = "linear", xscale: str = "linear",
               lines: Mapping[str, Sequence[float]] | None = None) -> Figure:
    """One line through the medians of several runs, and a band from the lowest to the highest, for each name.

    `lines` holds curves for comparison, dashed and grey, with one value for each x.
    """
    fig, ax = _subplots()
    words = []
    for i, (name, runs) in enumerate(curves.items()):
        middle = [statistics.median(values) for values in zip(*runs)]
        low, high = ([pick(values) for values in zip(*runs)] for pick in (min, max))
        places, style = _places(x, middle), rank_style(i)
        ax.plot(places, middle, label=name, markevery=max(1, len(middle) // 10), **style)
        ax.fill_between(places, low, high, color=style["color"], alpha=0.2, linewidth=0)
        words.append(f"{name}: median from {_short(middle[0])} to {_short(middle[-1])}, "
                     f"at the end between {_short(low[-1])} and {_short(high[-1])} in {len(runs)} runs")
    for i, (name, values) in enumerate((lines or {}).items()):
        ax.plot(_places(x, values), values, ("--", ":", "-.")[i % 3], color="0.4", label=name, zorder=1)
        words.append(f"for comparison {name}: from {_short(values[0])} to {_short(values[-1])}")
    ax.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    if x is None:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif xscale == "log" and all(isinstance(place, int) for place in x):  # few and round, such as batch sizes
        ax.set_xticks(x, map(str, x))
        ax.xaxis.set_minor_locator(NullLocator())
    if len(curves) > 1 or lines:
        ax.legend()
    fig.set_label(f"{_by(xlabel, ylabel)}, medians with bands from the lowest to the highest run. {'; '.join(words)}.")
    return fig


def draw_memory(addresses: Mapping[str, Sequence[int]]) -> Figure:
    """For each heading, arrows from replicas to their memory: replicas with the same `data_ptr` point to one box."""
    rows = max(map(len, addresses.values()))
    fig, axes = _subplots(1, len(addresses), figsize=(3.4 * len(addresses), 0.7 + 0.55 * rows), squeeze=False)
    words = []
    for ax, (name, places) in zip(axes.flat, addresses.items()):
        ax.set(xlim=(-0.1, 5.1), ylim=(rows - 0.4, -1.0))
        ax.axis("off")
        ax.text(2.5, -0.8, name, ha="center", va="center", weight="bold")
        boxes = list(dict.fromkeys(places))
        for rank, place in enumerate(places):
            row = boxes.index(place) + (len(places) - len(boxes)) / 2
            color = rank_style(rank)["color"]
            _box(ax, 0, rank, 1.6, color, f"replica {rank}")
            ax.annotate("", (3.4, row), (1.65, rank), arrowprops={"arrowstyle": "->", "color": color})
            own = places.count(place) == 1
            _box(ax, 3.4, row, 1.6, color if own else "black", "its memory" if own else "one memory")
        words.append(f"{name}: {len(places)} replicas in {len(boxes)} block{'s' * (len(boxes) > 1)} of memory")
    fig.set_label(f"Replicas, with arrows to the memory that holds them. {'; '.join(words)}.")
    return fig


def draw_fit(sizes_bytes: Sequence[float], seconds: Sequence[float], fits: Mapping[str, Sequence[float]]) -> Figure:
    """Above, the measured seconds of messages by size, and what each fit predicts; below, measured over predicted.

    Where a fit predicts no positive time, nothing is drawn.
    """
    fig, (ax, below) = _subplots(2, sharex=True, figsize=(5.8, 4.4), height_ratios=(2, 1))
    ax.loglog(sizes_bytes, seconds, "o", color="black", label="measured")
    below.axhspan(0.5, 2, color="0.9")
    below.axhline(1, color="black", linewidth=0.8)
    words = []
    for i, (name, fitted) in enumerate(fits.items()):
        positive = [value if value > 0 else float("nan") for value in fitted]
        style = rank_style(i)
        ax.plot(sizes_bytes, positive, "--", color=style["color"], label=name)
        ratios = [t / value for t, value in zip(seconds, positive)]
        below.loglog(sizes_bytes, ratios, linestyle="none", **style)
        known = [ratio for ratio in ratios if ratio == ratio]
        if not known:
            words.append(f"{name} gives no positive time")
            continue
        words.append(f"{name}: measured times are {min(known):.2g} to {max(known):.2g} times the fitted ones"
                     + f", and for {len(ratios) - len(known)} of {len(ratios)} sizes it gives no positive time"
                     * (len(known) < len(ratios)))
    ax.set(ylabel="time (s)")
    below.set(xlabel="size of the message (bytes)", ylabel="measured / fitted")
    low, high = below.get_ylim()
    below.set(ylim=(min(low, 0.4), max(high, 2.5)))
    below.yaxis.set_major_locator(FixedLocator([0.01, 0.1, 0.5, 1, 2, 10, 100]))
    below.yaxis.set_major_formatter("{x:g}")
    below.yaxis.set_minor_locator(NullLocator())
    ax.legend()
    fig.set_label("Time of a message by its size, both axes logarithmic: "
                  f"{seconds[0]:.1e} s for {sizes_bytes[0]:,} bytes, {seconds[-1]:.1e} s for {sizes_bytes[-1]:,} bytes."
                  " Below, measured over fitted, with a grey band from one half to two. "
                  f"{'; '.join(words)}.")
    return fig


def draw_chunks(states: Mapping[str, Sequence[Sequence[int]]]) -> Figure:
    """What the buffers hold, state by state: for each rank and chunk, how many ranks' values it sums (0: not held)."""
    k = len(next(iter(states.values())))
    columns = min(4, len(states))
    rows = -(-len(states) // columns)
    fig, axes = _subplots(rows, columns, figsize=(1.9 * columns, 2.1 * rows), squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for ax, (name, counts) in zip(axes.flat, states.items()):
        ax.set(xlim=(-0.9, k), ylim=(k + 0.1, -0.9))
        ax.text(k / 2, -0.45, name, ha="center", va="center", weight="bold")
        for rank, row in enumerate(counts):
            ax.text(-0.15, rank + 0.5, str(rank), ha="right", va="center", weight="bold",
                    color=rank_style(rank)["color"])
            for chunk, count in enumerate(row):
                if not count:  # this rank does not hold it
                    continue
                shade = (count - 1) / max(1, k - 1)
                ax.add_patch(Rectangle(
                    (chunk, rank), 0.94, 0.94, edgecolor="black" if count == k else rank_style(rank)["color"],
                    linewidth=2.2 if count == k else 1.0,
                    facecolor=mpl.colors.to_rgba(rank_style(rank)["color"], 0.06 + 0.5 * shade)))
                ax.text(chunk + 0.47, rank + 0.5, str(count), ha="center", va="center")
    absent = any(0 in row for counts in states.values() for row in counts)
    fig.set_label(f"Grids of {k} ranks by {k} chunks; each number says how many ranks' values a chunk is the sum of"
                  + (", and 0 that the rank does not hold it. " if absent else ". ")
                  + "; ".join(f"{name}: " + ", ".join("".join(map(str, row)) for row in counts)
                              for name, counts in states.items()) + ".")
    return fig


def draw_timeline(spans: Sequence[Span] | Mapping[str, Sequence[Span]], communication: Sequence[str] = ("allreduce",),
                  ) -> Figure:
    """Ranks as rows, time to the right in ms: computing filled, communication hatched, bars labelled if the label fits.

    The spans come from a `Stopwatch`, and time starts at the first of them. Several steps, by name, are drawn one below
    the other on one axis. `communication` names the spans that move data between ranks.
    """
    steps = spans if isinstance(spans, Mapping) else {"": spans}
    several = steps is spans
    every = [span for step in steps.values() for span in step]
    zeros = {name: min(span.start_s for span in step) for name, step in steps.items()}
    total = max(span.end_s - zeros[name] for name, step in steps.items() for span in step) / MS
    names = list(dict.fromkeys(span.what for span in every if span.what not in communication))
    ranks = {name: max(span.rank for span in step) + 1 for name, step in steps.items()}
    num_rows = sum(ranks.values())
    fig, ax = _subplots(figsize=(5.8, 1.1 + 0.62 * num_rows if several else 1.2 + 0.5 * num_rows))
    ticks, words, top = {}, [], 0.0
    for name, step in steps.items():
        if several:
            ax.text(0.005, top - 0.62, name, weight="bold", va="center", transform=ax.get_yaxis_transform())
        for span in step:
            _bar(ax, top + span.rank, span, zeros[name], total, names, communication)
        for rank in range(ranks[name]):
            ticks[top + rank] = f"rank {rank}"
            row = _row_words([span for span in step if span.rank == rank], zeros[name])
            words.append(f"{name}, rank {rank}: {row}." if several else f"Rank {rank}: {row}.")
        top += ranks[name] + 0.5
    ax.set(yticks=list(ticks), yticklabels=list(ticks.values()), xlabel="time (ms)", xlim=(0, total * 1.01))
    if several:
        ax.set_ylim(top - 0.9, -1.0)
    else:
        ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    _legend(fig, names, [name for name in communication if any(span.what == name for span in every)], communication)
    fig.set_label(f"{'Timelines on one axis' if several else 'Timeline'}, one row per rank, time (ms). "
                  + " ".join(words))
    return fig


def draw_timelines(groups: Mapping[str, Sequence[Span]], marks: Mapping[str, float] | None = None,
                   communication: Sequence[str] = ("send",)) -> Figure:
    """Timelines by name, one below the other in narrow rows, on one axis in ms that starts at 0.

    A rank's computing is filled. Its sending is hatched below that, or over the whole row if nothing is computed. For
    each of `marks`, by name and in seconds, a dashed line crosses all timelines.
    """
    marks = marks or {}
    rows = [(name, rank) for name, spans in groups.items() for rank in range(max(span.rank for span in spans) + 1)]
    names = list(dict.fromkeys(span.what for spans in groups.values() for span in spans
                               if span.what not in communication))
    fig, ax = _subplots(figsize=(5.8, 0.9 + 0.33 * len(rows) + 0.27 * len(groups)))
    places = {row: i + 0.85 * list(groups).index(row[0]) for i, row in enumerate(rows)}
    for name, spans in groups.items():
        ax.text(0, places[name, 0] - 0.48, name, va="bottom", weight="bold", fontsize=9)
        for rank, what, start_s, end_s in spans:
            talks, color = what in communication, rank_style(rank)["color"]
            face = "white" if talks else mpl.colors.to_rgba(color, _shade(names, what))
            shift, height = (0.31, 0.24) if talks else (-0.12, 0.56)
            ax.barh(places[name, rank] + (shift if names else 0), 1e3 * (end_s - start_s), left=1e3 * start_s,
                    height=height if names else 0.8, color=face, edgecolor=color, linewidth=0.5,
                    hatch=_hatch(communication, what) if talks else None)
    for name, seconds in marks.items():
        ax.axvline(1e3 * seconds, color="black", linestyle="--", linewidth=1.2)
        ax.text(1e3 * seconds, -1.15, name, ha="center", va="bottom", fontsize=9)
    ax.set(yticks=list(places.values()), xlabel="time (ms)", ylim=(max(places.values()) + 0.6, -1.1), ylabel="rank",
           yticklabels=[str(rank) for _, rank in places])
    ax.set_xlim(0)
    ax.grid(axis="y", visible=False)
    _legend(fig, names, communication, communication)
    fig.set_label("Timelines on one axis, a row for each rank. "
                  + "; ".join(f"{name} ends at {1e3 * max(span.end_s for span in spans):.1f} ms"
                              for name, spans in groups.items())
                  + "." + "".join(f" A dashed line, {name}, at {1e3 * s:.1f} ms." for name, s in marks.items()))
    return fig


def draw_cuts(layers: int, channels: int) -> Figure:
    """Data, tensor and pipeline parallelism: three ways for two ranks to share a network, each rank in its colour."""
    fig, axes = _subplots(1, 3, figsize=(7.2, 2.6))
    apart = channels + 1.2
    for ax, way in zip(axes, ("data", "tensor", "pipeline")):
        ax.set(xlim=(-1.4, layers), ylim=(apart + channels, -0.6))
        ax.set_title(f"{way} parallelism", weight="bold", fontsize=10)
        ax.axis("off")
        copies = (0, apart) if way == "data" else (apart / 2,)
        for copy, top in enumerate(copies):
            share = "half" if way == "data" else "all"
            ax.text(-1.0, top - 0.15, f"{share} of the data, then {layers} layers", fontsize=7.5)
            ranks = {"data": [copy], "tensor": [0, 1], "pipeline": [0]}[way]
            _cell(ax, -1.0, top, channels, ranks)
            for layer in range(layers):
                for channel in range(channels):
                    rank = {"data": copy, "tensor": 2 * channel // channels, "pipeline": 2 * layer // layers}[way]
                    _cell(ax, layer, top + channel, 1, [rank])
    fig.set_label(f"Three drawings of a network of {layers} layers with {channels} channels each, and of its "
                  "minibatch; the cells of ranks 0 and 1 have different colours and their numbers. Data parallelism: "
                  "each rank has the whole network and half of the minibatch. Tensor parallelism: rank 0 has the "
                  "upper half of every layer, rank 1 the lower half. Pipeline parallelism: rank 0 has the first "
                  f"{-(-layers // 2)} layers, rank 1 the others.")
    return fig


def draw_turns(cases: Mapping[str, Sequence[Sequence[str]]]) -> Figure:
    """Which calls of the ranks are matched: for each case ranks as rows, and a box for each call, in order."""
    longest = max(len(calls) for rows in cases.values() for calls in rows)
    fig, axes = _subplots(len(cases), figsize=(7.2, 1.6 * len(cases)), squeeze=False)
    for ax, (name, rows) in zip(axes.flat, cases.items()):
        ax.set(xlim=(-0.7, longest), ylim=(len(rows) - 0.5, -1.0))
        ax.axis("off")
        ax.text(-0.7, -0.72, name, va="center", weight="bold")
        for rank, calls in enumerate(rows):
            ax.text(-0.1, rank, f"rank {rank}", ha="right", va="center", fontsize=9)
            for turn, call in enumerate(calls):
                _box(ax, turn, rank, 0.94, rank_style(rank)["color"], call)
    fig.set_label("Rows of boxes, one row per rank; boxes in one column are matched. " + " ".join(
        f"{name}, rank {rank}: {', '.join(calls)}." for name, rows in cases.items() for rank, calls in enumerate(rows)))
    return fig


def _cell(ax: plt.Axes, left: float, top: float, height: float, ranks: Sequence[int]) -> None:
    color = rank_style(ranks[0])["color"] if len(ranks) == 1 else "black"
    ax.add_patch(Rectangle((left, top), 0.8, height - 0.12, edgecolor=color,
                           facecolor=mpl.colors.to_rgba(color, 0.3 if len(ranks) == 1 else 0.08)))
    ax.text(left + 0.4, top + height / 2 - 0.06, "\n".join(map(str, ranks)), ha="center", va="center", fontsize=8)


def _bar(ax: plt.Axes, y: float, span: Span, zero: float, total: float, names: Sequence[str],
         communication: Sequence[str]) -> None:
    """The bar of one span at height `y`, with its name if that fits."""
    rank, what, start_s, end_s = span
    left, width = (start_s - zero) / MS, (end_s - start_s) / MS
    talks = what in communication
    shade = 1 if talks else _shade(names, what)
    color = rank_style(rank)["color"]
    ax.barh(y, width, left=left, height=0.7, color="white" if talks else mpl.colors.to_rgba(color, shade),
            edgecolor=color, hatch=_hatch(communication, what) if talks else None)
    if width > 0.02 * len(what) * total:
        ax.text(left + width / 2, y, what, ha="center", va="center", fontsize=9,
                color="white" if shade > 0.6 and not talks else "black",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if talks else None)


def _row_words(row: Sequence[Span], zero: float) -> str:
    """What a rank does at what time; for many spans, only how often and how long in total."""
    if len(row) <= 8:
        return ", ".join(f"{span.what} from {(span.start_s - zero) / MS:.3g} to {(span.end_s - zero) / MS:.3g}"
                         for span in row)
    kinds = dict.fromkeys(span.what for span in row)
    lengths = {kind: [(span.end_s - span.start_s) / MS for span in row if span.what == kind] for kind in kinds}
    return ", ".join(f"{kind} {_how_often(len(parts))}, {sum(parts):.3g} in total" for kind, parts in lengths.items())


def _how_often(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _shade(names: Sequence[str], name: str) -> float:
    """How dark the spans of this name are, from 0 to 1: the later the kind of work, the darker."""
    return 0.25 + 0.65 * names.index(name) / max(1, len(names) - 1)


def _legend(fig: Figure, names: Sequence[str], talks: Sequence[str], communication: Sequence[str]) -> None:
    """A key for each kind of work and for each kind of communication that occurs."""
    keys = [Patch(facecolor=str(1 - _shade(names, name)), edgecolor="black", label=name) for name in names]
    keys += [Patch(facecolor="white", edgecolor="black", hatch=_hatch(communication, name), label=name)
             for name in talks]
    fig.legend(handles=keys, loc="outside upper center", ncols=len(keys), fontsize=9)


def _hatch(communication: Sequence[str], name: str) -> str:
    return HATCHES[list(communication).index(name) % len(HATCHES)]


def draw_ratios(blocks: Mapping[str, Mapping[str, tuple[float, float, float, float | None]]],
                narrow: bool = False) -> Figure:
    """How many times as fast, on one logarithmic axis: median as a dot, range as a line, limit as a tick.

    The dot is hollow where the range contains 1, so that there is no difference.

    Args:
        blocks: by heading and by name, the lower end of the range, the median, the upper end, and the limit or None.
        narrow: for a phone, with the names above the lines and not next to them.
    """
    lines = [line for heading, rows in blocks.items() for line in [(heading, None), *rows.items()]]
    values = [value for _, row in lines for value in row or () if value is not None]
    low, high = min(0.5, *values), max(2, *values)
    width, height = (3.9, 0.34) if narrow else (7.1, 0.22)
    fig, ax = _subplots(figsize=(width, 0.9 + height * len(lines)))
    ax.axvline(1, color="black", linewidth=0.8)
    color = rank_style(0)["color"]
    for y, (name, row) in enumerate(lines):
        if narrow:
            ax.text(0, y - 0.4, name, transform=ax.get_yaxis_transform(), va="center", fontsize=9,
                    weight="normal" if row else "bold", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
        if row is not None:
            left, median, right, limit = row
            ax.plot([left, right], [y, y], color=color, linewidth=4, alpha=0.4, solid_capstyle="butt")
            ax.plot(median, y, "o", color=color, markerfacecolor="white" if left <= 1 <= right else color)
            if limit is not None:
                ax.plot(limit, y, "|", color="black", markersize=11, markeredgewidth=2)
    ax.set(xscale="log", xlim=(low / 1.2, high * 1.2), ylim=(len(lines) - 0.4, -1), xlabel="times as fast (1: equal)")
    ax.xaxis.set_major_locator(FixedLocator([base * 10**power for power in range(-2, 4) for base in (1, 2, 5)]))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks([] if narrow else range(len(lines)), [] if narrow else [name for name, _ in lines])
    for label, (_, row) in zip(ax.get_yticklabels(), lines):
        label.set_fontweight("normal" if row else "bold")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="y", visible=False)
    keys = [Line2D([], [], marker="o", linestyle="none", color=color, label="median"),
            Line2D([], [], color=color, linewidth=4, alpha=0.4, label="range")]
    if any(row and row[0] <= 1 <= row[2] for _, row in lines):
        keys.insert(1, Line2D([], [], marker="o", linestyle="none", color=color, markerfacecolor="white",
                              label="no difference"))
    if any(row and row[3] is not None for _, row in lines):
        keys.append(Line2D([], [], marker="|", linestyle="none", color="black", markersize=11, markeredgewidth=2,
                           label="limit"))
    fig.legend(handles=keys, loc="outside upper center", ncols=2 if narrow else 4, fontsize=9)
    words = [f"{heading}: {', '.join(map(_ratio_words, rows, rows.values()))}" for heading, rows in blocks.items()]
    fig.set_label(f"How many times as fast, one line per row on a logarithmic axis. {'; '.join(words)}.")
    return fig


def _ratio_words(name: str, row: tuple[float, float, float, float | None]) -> str:
    low, median, high, limit = row
    notes = ["no difference"] * (low <= 1 <= high) + ([] if limit is None else [f"limit {limit:.3g}"])
    return f"{name} {median:.3g}" + (f" ({', '.join(notes)})" if notes else "")


def draw_step(shard_sizes: Sequence[int]) -> Figure:
    """One step of data-parallel training as a drawing: ranks as rows, computing filled, communication hatched."""
    ranks = len(shard_sizes)
    fig, ax = _subplots(figsize=(7.2, 0.75 + 0.62 * ranks))
    ax.set(xlim=(-0.1, 9.6), ylim=(ranks - 0.4, -1.0))
    ax.axis("off")
    columns = ((0, 1.7, "minibatch"), (2.4, 1.6, "replica"), (4.5, 1.6, "gradient"), (6.6, 1.0, "allreduce"),
               (8.1, 1.4, "update"))
    for left, width, title in columns:
        ax.text(left + width / 2, -0.72, title, ha="center", va="center", weight="bold")
    for rank, size in enumerate(shard_sizes):
        color = rank_style(rank)["color"]
        words = (f"{size} examples", f"all of W, rank {rank}", f"sum over {size}", None, "the same step")
        for (left, width, _), text in zip(columns, words):
            if text is not None:
                _box(ax, left, rank, width, color, text)
        for left, right in ((1.7, 2.4), (4.0, 4.5)):
            _arrow(ax, left, right, rank)
        _arrow(ax, 6.1, 6.6, rank)
        _arrow(ax, 7.6, 8.1, rank)
    ax.add_patch(Rectangle((6.6, -0.36), 1.0, ranks - 0.28, facecolor="white", edgecolor="black",
                                       hatch="////"))
    ax.text(7.1, (ranks - 1) / 2, "+", ha="center", va="center", fontsize=16,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    fig.set_label(f"{ranks} rows, one per rank. A minibatch of {sum(shard_sizes)} is cut into shards of "
                  f"{', '.join(map(str, shard_sizes))} examples. In each row a complete replica turns its shard into "
                  "one gradient. All gradients enter a hatched box, the allreduce, and every row leaves it with the "
                  "same step.")
    return fig


def draw_call(shard_sizes: Sequence[int], width: int = 10) -> Figure:
    """One call of `DataParallel` above its backward pass, as a drawing: ranks as rows, data on the move hatched."""
    ranks, total = len(shard_sizes), sum(shard_sizes)
    fig, ax = _subplots(figsize=(7.2, 1.3 + 1.1 * ranks))
    ax.set(xlim=(-0.1, 9.6), ylim=(2 * ranks + 0.9, -1.0))
    ax.axis("off")
    columns = ((0, 1.4), (2.0, 1.3), (3.9, 1.6), (6.1, 1.3), (8.0, 1.4))
    titles = (("scatter", "shard", "apply", "scores", "gather"), ("sum", "gradients", "backward", "rows", "cut"))
    for block, (names, end) in enumerate(zip(titles, (f"{total} images", "p.grad"))):
        top = block * (ranks + 1.3)
        for (left, wide), name in zip(columns, names):
            ax.text(left + wide / 2, top - 0.72, name, ha="center", va="center", weight="bold")
        for rank, size in enumerate(shard_sizes):
            words = ((f"{size} image{'s' * (size != 1)}", "of all W")[block], f"replica {rank}", f"{size} x {width}")
            for (left, wide), word in zip(columns[1:4], words):
                _box(ax, left, top + rank, wide, rank_style(rank)["color"], word)
            for (left, wide), (right, _) in pairwise(columns):
                _arrow(ax, *((right, left + wide) if block else (left + wide, right)), top + rank)
        for (left, wide), word in zip((columns[0], columns[-1]), (end, f"{total} x {width}")):
            ax.add_patch(Rectangle((left, top - 0.36), wide, ranks - 0.28, facecolor="white", edgecolor="black",
                                   hatch="////"))
            ax.text(left + wide / 2, top + (ranks - 1) / 2, word, ha="center", va="center", fontsize=9,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 2})
    cut = ", ".join(map(str, shard_sizes))
    fig.set_label(f"Two blocks with a row for each of {ranks} ranks. Forward, from left to right: a hatched box cuts "
                  f"{total} images into shards of {cut}, the replica in each row turns its shard into rows of {width} "
                  f"scores, and a hatched box joins the {total} rows. Backward, from right to left: the gradient of "
                  f"the {total} rows is cut into {cut}, the replica in each row turns its rows into gradients of all "
                  "parameters, and a hatched box sums them into p.grad.")
    return fig


def draw_halving(k: int) -> Figure:
    """The first half of recursive halving and doubling on `k` ranks, round by round: who sends which half to whom.

    Each buffer has `k` chunks. A number says how many ranks' values a chunk is the sum of; hatched chunks are sent.
    """
    rounds, pitch = k.bit_length() - 1, 1.6 * k
    fig, ax = _subplots(figsize=(4.2, 0.4 + 0.45 * k))
    ax.set(xlim=(-2.3, rounds * pitch + k + 0.1), ylim=(k - 0.5, -1.1))
    ax.axis("off")
    kept, words = [range(k) for _ in range(k)], []
    for number in range(rounds + 1):
        left, distance, half = number * pitch, 2**number, k // 2 ** (number + 1)
        title = f"after round {number}" if number else "start"
        ax.text(left + k / 2, -0.8, title, ha="center", va="center", weight="bold")
        for rank, chunks in enumerate(kept):
            color, upper, partner = rank_style(rank)["color"], bool(rank & distance), rank ^ distance
            kept[rank], sent = (chunks[half:], chunks[:half]) if upper or not half else (chunks[:half], chunks[half:])
            for chunk in range(k):
                face = mpl.colors.to_rgba(color, 0.3) if chunk in kept[rank] else "white"
                edge, order = (color, 2) if chunk in chunks else ("0.8", 1)
                ax.add_patch(Rectangle((left + chunk, rank - 0.34), 1, 0.68, facecolor=face, edgecolor=edge,
                                       hatch="////" if chunk in sent else None, zorder=order))
                if chunk in chunks:
                    ax.text(left + chunk + 0.5, rank, str(distance), ha="center", va="center", zorder=3,
                            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if chunk in sent else None)
            if number == 0:
                ax.text(-0.25, rank, f"rank {rank}", ha="right", va="center", weight="bold", color=color)
            if sent:
                ax.annotate("", (left + pitch - 0.1, partner), (left + k + 0.1, rank),
                            arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1.4})
                which = f"chunk{'s' * (half > 1)} {', '.join(map(str, sent))}"
                words.append(f"Round {number + 1}: rank {rank} sends {which} to rank {partner}.")
    ends = ", ".join(f"rank {rank} has chunk {chunk}" for rank, [chunk] in enumerate(kept))
    fig.set_label(f"The buffers of {k} ranks in {k} chunks each, with arrows from rank to rank. {' '.join(words)} "
                  f"In the end, {ends}, each the sum of {k}.")
    return fig


def draw_trees(trees: Mapping[str, Sequence[int | None]]) -> Figure:
    """Trees by name, one below the other, each with the parent of every rank: inner nodes filled, leaves empty."""
    fig, axes = _subplots(len(trees), figsize=(4.2, 1.9 * len(trees)), squeeze=False)
    words = []
    for ax, (name, parents) in zip(axes.flat, trees.items()):
        children = {up: [rank for rank, its in enumerate(parents) if its == up] for up in parents if up is not None}
        levels = []
        for rank in range(len(parents)):
            levels.append(0)
            while (rank := parents[rank]) is not None:
                levels[-1] += 1
        ax.set(xlim=(-0.6, len(parents) - 0.4), ylim=(max(levels) + 0.45, -1.1))
        ax.axis("off")
        ax.text(-0.5, -0.8, name, va="center", weight="bold")
        for rank, parent in enumerate(parents):
            color = rank_style(rank)["color"]
            face, ink = (color, "white") if rank in children else ("white", color)
            if parent is not None:
                ax.plot([rank, parent], [levels[rank], levels[parent]], color="0.4", linewidth=1.4, zorder=1)
            ax.plot(rank, levels[rank], "o", markersize=17, markeredgecolor=color, markerfacecolor=face)
            ax.text(rank, levels[rank], str(rank), ha="center", va="center_baseline", weight="bold", color=ink)
        words.append(f"{name}, root {parents.index(None)}: " + "; ".join(
            f"below {up} {'are' if len(below) > 1 else 'is'} {' and '.join(map(str, below))}"
            for up, below in sorted(children.items())))
    fig.set_label(f"Trees of ranks, inner nodes filled and leaves empty. {'. '.join(words)}.")
    return fig


def draw_runs(groups: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]], xlabel: str, ylabel: str,
                   ) -> Figure:
    """Every run as a line of its own, with one style for each name, so that the spread can be seen.

    A run is a list of x, such as seconds, and a list of its values there.
    """
    fig, ax = _subplots()
    words = []
    for i, (name, runs) in enumerate(groups.items()):
        for n, (places, values) in enumerate(runs):
            ax.plot(places, values, label=None if n else name, linewidth=1.2, **rank_style(i))
        ends = "; ".join(f"{values[-1]:.2f} at {places[-1]:.1f}" for places, values in runs)
        words.append(f"{name}, at the end of each run: {ends}")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_xlim(left=0)
    ax.legend(loc="lower right")
    fig.set_label(f"{_by(xlabel, ylabel)}. {'. '.join(words)}.")
    return fig


def draw_panels(panels: Mapping[str, Sequence[Sequence[float]]], xlabel: str, ylabel: str,
                x: Sequence[float] | None = None) -> Figure:
    """A panel for each name, all with the same axes: every run as a thin line, and a thick line through the medians."""
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    rows = -(-len(panels) // columns)
    fig, axes = _subplots(rows, columns, sharex=True, sharey=True, squeeze=False, figsize=(5.8, 0.5 + 2.0 * rows))
    words = []
    for i, (ax, (name, runs)) in enumerate(zip(axes.flat, panels.items())):
        places = _places(x, runs[0])
        for values in runs:
            ax.plot(places, values, color=rank_style(i)["color"], linewidth=0.7, alpha=0.5)
        middle = [statistics.median(values) for values in zip(*runs)]
        ax.plot(places, middle, color="black", linewidth=1.8)
        ax.set_title(name, loc="left", fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ends = [values[-1] for values in runs]
        words.append(f"{name}: {len(runs)} runs, whose median goes from {middle[0]:.2g} to {middle[-1]:.2g} and falls "
                     f"{_how_often(sum(b < a for a, b in pairwise(middle)))}; at the end between {min(ends):.2g} and "
                     f"{max(ends):.2g}; the largest fall of a run from one value to the next is "
                     f"{max(max(a - b for a, b in pairwise([*values, values[-1]])) for values in runs):.2g}")
    for ax in axes.flat[len(panels):]:
        ax.set_visible(False)
    fig.supxlabel(xlabel, fontsize=10)
    fig.supylabel(ylabel, fontsize=10)
    fig.set_label(f"{_by(xlabel, ylabel)}, a panel for each group, with the same axes. {'. '.join(words)}.")
    return fig


def draw_efficiencies(groups: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Predicted and measured efficiencies: a point for each pair of a group, and a line where both are equal."""
    fig, ax = _subplots(figsize=(5.8, 4.4))
    ax.plot([0, 1.02], [0, 1.02], color="black", linewidth=0.8)
    words = []
    for i, (name, pairs) in enumerate(groups.items()):
        predicted, measured = zip(*pairs)
        ax.plot(predicted, measured, linestyle="none", alpha=0.7, label=f"{name}, {len(pairs)} runs", **rank_style(i))
        below = sum(y < x for x, y in pairs)
        words.append(f"{name}: {len(pairs)} runs, {below} of them below the line; predicted {min(predicted):.2f} to "
                     f"{max(predicted):.2f}, measured {min(measured):.2f} to {max(measured):.2f}")
    least = min(x for pairs in groups.values() for x, _ in pairs)
    ax.set(xlabel="predicted efficiency", ylabel="measured efficiency", xlim=(least - 0.02, 1.02), ylim=(0, 1.05))
    ax.legend(loc="upper left")
    fig.set_label(f"Measured efficiency by predicted efficiency, with a line where both are equal. {'; '.join(words)}.")
    return fig


def draw_intervals(rows: Mapping[str, tuple[float, float, float]], xlabel: str) -> Figure:
    """A forest plot: for each name a point with its interval, and a line at 0, where there is no effect.

    Args:
        rows: by name, the start of the interval, the point, and the end of the interval.
    """
    fig, ax = _subplots(figsize=(5.8, 0.9 + 0.32 * len(rows)))
    ax.axvline(0, color="black", linewidth=0.8)
    words = []
    for i, (name, (low, point, high)) in enumerate(rows.items()):
        ax.plot([low, high], [i, i], linewidth=2, color=rank_style(0)["color"])
        ax.plot([point], [i], linestyle="none", markersize=6, **rank_style(0))
        words.append(f"{name} {point:+.3f} ({low:+.3f} to {high:+.3f})")
    ax.set(yticks=range(len(rows)), yticklabels=list(rows), xlabel=xlabel)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    fig.set_label(f"A point and an interval for each row, by {xlabel}, with a line at 0. {'; '.join(words)}.")
    return fig


def _box(ax: plt.Axes, left: float, row: float, width: float, color: str, text: str) -> None:
    ax.add_patch(Rectangle((left, row - 0.36), width, 0.72, facecolor=mpl.colors.to_rgba(color, 0.18),
                                       edgecolor=color, linewidth=1.5))
    ax.text(left + width / 2, row, text, ha="center", va="center", fontsize=9)


def _arrow(ax: plt.Axes, start: float, end: float, row: float) -> None:
    gap = 0.04 if end > start else -0.04
    ax.annotate("", (end - gap, row), (start + gap, row), arrowprops={"arrowstyle": "->", "color": "black"})


def _places(x: Sequence[float] | None, values: Sequence[float]) -> Sequence[float]:
    """The x of each value: 1, 2, 3, ... by default."""
    return range(1, len(values) + 1) if x is None else x


def _by(xlabel: str, ylabel: str) -> str:
    """The beginning of the alt text of a figure with axes."""
    return f"{ylabel[:1].upper()}{ylabel[1:]} by {xlabel}"


def _curve_words(name: str, values: Sequence[float]) -> str:
    return f"{name}: from {values[0]:.2g} to {values[-1]:.2g}"


def _short(x: float) -> str:
    return f"{x:.2g}" if abs(x) < 100 else f"{x:,.0f}"
