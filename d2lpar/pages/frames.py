"""A sharded step, frame by frame: a `Film` records what a rank holds and sends, `show_films` shows the ranks' films.

A tensor is in a frame as long as it exists, so a weight that the step forgets to free stays in the picture. On the site
`stepper.js` draws the frames; JupyterLab shows the still picture of all of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch.distributed as dist
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch
from torch import Tensor

from d2lpar.pages.plot import rank_style, use_book_style
from d2lpar.pages.stepper import STEPPER, put_figure
from d2lpar.ranks import Traffic

# What can be held, in the order of the rows: square boxes are weights, round ones gradients; what a rank keeps is dark.
KINDS = {"part": "part of {}", "whole": "whole {}", "gradient": "gradient of {}",
         "mean": "part of the mean gradient of {}"}
ROWS = {"part": "{} part", "whole": "{} whole", "gradient": "{} gradient", "mean": "its mean"}


class Frame(NamedTuple):
    """What a rank holds at one moment of a step, the bytes that it has sent since the frame before, and what it found.

    `held` has the values of each tensor by its kind and name, such as `"whole", "W1"`. `found` does not count as held.
    """

    moment: str
    sent_bytes: int
    held: dict[tuple[str, str], list[float]]
    found: tuple[str, list[float]] | None = None

    @property
    def held_bytes(self) -> int:
        """The bytes of the values held, in float32."""
        return 4 * sum(map(len, self.held.values()))


class Film(Traffic):
    """Records `frames` of the tensors that this rank keeps, within its `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self._kept: dict[tuple[str, str], weakref.ref[Tensor]] = {}
        self._sent_before = 0

    def keep(self, kind: str, name: str, x: Tensor) -> Tensor:
        """`x`, which from now on is in every frame until nothing refers to it any more; `kind` is one of `KINDS`."""
        self._kept[kind, name] = weakref.ref(x)
        return x

    def take(self, moment: str, what: str = "", x: Tensor | None = None) -> None:
        """Add a frame; it may also say what the rank has found at this moment, such as its loss."""
        held = {key: kept for key, ref in self._kept.items() if (kept := ref()) is not None}
        found = None if x is None else (what, x.flatten().tolist())
        self.frames.append(Frame(moment, self.sent_bytes - self._sent_before, _values(held), found))
        self._sent_before = self.sent_bytes

    @property
    def sent_bytes(self) -> int:
        """What a ring's rank has sent for the collectives so far; `bytes_by_name` counts what they return."""
        k = dist.get_world_size()
        to_send = {"allgather_base": (k - 1) / k, "reduce_scatter_base": k - 1}
        return round(sum(to_send[name] * size for name, size in self.bytes_by_name.items()))


def _values(held: dict[tuple[str, str], Tensor]) -> dict[tuple[str, str], list[float]]:
    order = sorted(held, key=lambda key: list(KINDS).index(key[0]))
    return {key: held[key].tolist() for key in order}


def show_films(films: Sequence[Sequence[Frame]], label: str) -> None:
    """Put the films of all ranks on the page, frame by frame; `label` names them for readers who do not see them.

    The ranks cut each weight into parts of equal length, without padding. Outside a notebook nothing is shown.

    Raises:
        ValueError: if the ranks have recorded different moments.
    """
    moments = [[frame.moment for frame in film] for film in films]
    if any(row != moments[0] for row in moments):
        raise ValueError(f"frames of different moments cannot be shown side by side: {moments}. "
                         "Take the same frames on all ranks")
    words = _words(films)
    put_figure(STEPPER, lambda: _drawn(films), lambda: _data(films, label), " ".join(words).replace("\n", " "))


def _data(films: Sequence[Sequence[Frame]], label: str) -> dict:
    """What the browser draws: the rows, and in each frame each rank's boxes, with the new ones marked."""
    keys = sorted({key for film in films for frame in film for key in frame.held},
                  key=lambda key: (key[1], list(KINDS).index(key[0])))
    frames = [{"words": words, "moment": now[0].moment, "ranks": [_boxes(*pair, keys) for pair in zip(before, now)]}
              for words, before, now in zip(_words(films), [[None] * len(films), *zip(*films)], zip(*films))]
    return {"label": label, "colors": [to_hex(rank_style(rank)["color"]) for rank in range(len(films))],
            "rows": [ROWS[kind].format(name) for kind, name in keys], "frames": frames}


def _boxes(before: Frame | None, now: Frame, keys: Sequence[tuple[str, str]]) -> dict:
    """A box is a row, a kind, the values in one string, which keeps the notebook short, and whether they are new."""
    boxes = [[keys.index(key), key[0], " ".join(map(_short, values)), bool(before and before.held.get(key) != values)]
             for key, values in now.held.items()]
    found = now.found and [now.found[0], " ".join(map(_short, now.found[1]))]
    return {"boxes": boxes, "found": found, "sent": now.sent_bytes, "bytes": now.held_bytes}


def _words(films: Sequence[Sequence[Frame]]) -> list[str]:
    """For each frame, what is sent and what each rank holds, in sentences, a line per rank."""
    words = []
    for i, now in enumerate(zip(*films)):
        sent = [frame.sent_bytes for frame in now]
        sending = (" ".join(f"Rank {rank} sends {size} bytes." for rank, size in enumerate(sent)) if len({*sent}) > 1
                   else f"Each rank sends {sent[0]} bytes." if sent[0] else "Nothing is sent.")
        begin = f"Frame {i + 1} of {len(films[0])}: {now[0].moment}. {sending}"
        words.append("\n".join([begin, *map(_holds, range(len(now)), now)]))
    return words


def _holds(rank: int, frame: Frame) -> str:
    held = ", ".join(f"{KINDS[kind].format(name)} {_tuple(values)}" for (kind, name), values in frame.held.items())
    found = f" {frame.found[0].capitalize()}: {_tuple(frame.found[1])}." if frame.found else ""
    return f"Rank {rank} holds {held}: {frame.held_bytes // 4} values, {frame.held_bytes} bytes.{found}"


def _short(value: float) -> str:
    return f"{value:.4g}"


def _tuple(values: Iterable[float]) -> str:
    shown = [*map(_short, values)]
    return f"({', '.join(shown)})" if len(shown) > 1 else shown[0]


def _drawn(films: Sequence[Sequence[Frame]]) -> Figure:
    """One panel per rank, a row per frame, and a box for each value held: the longer the row, the more memory."""
    use_book_style()
    longest = max(frame.held_bytes for film in films for frame in film) // 4
    fig, axes = plt.subplots(1, len(films), sharey=True, squeeze=False,
                             figsize=(1.6 + 0.23 * longest * len(films), 0.9 + 0.24 * len(films[0])))
    for rank, (ax, film) in enumerate(zip(axes[0], films)):
        for row, frame in enumerate(film):
            column = 0
            for (kind, _), values in frame.held.items():
                each = len(values) // len(films)
                pieces = [(i // each, values[i:i + each]) for i in range(0, len(values), each)]  # from which rank
                for source, piece in pieces if kind == "whole" else [(rank, values)]:
                    _box(ax, column, row, kind, source, source != rank, piece)
                    column += len(piece)
        ax.set(xlim=(-0.2, longest + 0.2), ylim=(len(film) - 0.4, -0.6), xlabel="bytes held", yticks=range(len(film)),
               xticks=range(0, longest + 1, 2), xticklabels=range(0, 4 * longest + 1, 8))
        ax.set_title(f"rank {rank}", color=rank_style(rank)["color"])
        ax.set_yticklabels(frame.moment + f" (sends {frame.sent_bytes} B)" * bool(frame.sent_bytes) for frame in film)
        ax.grid(axis="y", visible=False)
    looks = {"own part": "0.3", "whole weight (dotted: received)": "0.85", "gradient (round)": "white",
             "part of the mean gradient (round)": "0.3"}
    keys = [Patch(facecolor=face, edgecolor="black", label=name) for name, face in looks.items()]
    fig.legend(handles=keys, loc="outside lower center", ncols=4, fontsize=8, handlelength=1.2, columnspacing=1.2)
    return fig


def _box(ax: plt.Axes, column: int, row: int, kind: str, source: int, arrived: bool, values: Sequence[float]) -> None:
    color, dark = rank_style(source)["color"], kind in ("part", "mean")
    shape = "square,pad=0" if kind in ("part", "whole") else "round,pad=0,rounding_size=0.35"
    face = color if dark else to_rgba(color, 0.2) if kind == "whole" else "white"
    ax.add_patch(FancyBboxPatch((column + 0.06, row - 0.4), len(values) - 0.12, 0.8, boxstyle=shape, facecolor=face,
                                edgecolor=color, linestyle=":" if arrived else "-", zorder=2))
    ax.text(column + len(values) / 2, row, "  ".join(map(_short, values)), ha="center", va="center", fontsize=8,
            color="white" if dark else "black", zorder=3)
