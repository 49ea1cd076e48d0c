"""A sum that readers go through round by round, without a kernel: `trace_rounds` runs it, `show_stepper` shows it.

On the site `book/tools/explorer_ext.py` and `stepper.js` draw it; JupyterLab shows the still picture of all rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from d2lpar.collectives import Message, Meter
from d2lpar.devices import try_devices
from d2lpar.pages.plot import rank_style, use_book_style
from d2lpar.timing import in_notebook

STEPPER = "application/vnd.d2lpar.stepper+json"


class Round(NamedTuple):
    """Who sent which chunks to whom, and whether they were added there; and what every rank held then.

    `holds[rank][chunk]` names the ranks whose numbers are in that sum, a rank once for each time that it was added.
    """

    moves: list[tuple[int, int, list[int], bool]]
    holds: list[list[list[int]]]


def trace_rounds(algorithm: Callable[[list[Tensor]], object], k: int) -> list[Round]:
    """Run `algorithm` on `k` devices, and give the state at the start and after each of its rounds.

    Each buffer has `k` numbers, a chunk of a ring each, from which it can be told whose numbers are in a sum.

    Args:
        algorithm: sends parts of the buffers themselves, by `exchange`, and adds no rank more than 15 times.
    """
    devices = try_devices(k)
    data = [torch.full((k,), 16**rank, device=device) for rank, device in enumerate(devices)]
    meter = _Rounds(data)
    with meter:
        algorithm(data)
    states = [*meter.states, meter.state()]
    moves = [[], *([move for number, move in sorted(meter.moves) if number == i] for i in range(meter.num_rounds))]
    return [Round(sent, holds) for sent, holds in zip(moves, states)]


class _Rounds(Meter):
    """A meter that also notes which places of `data` a message brings, and what all hold when a round begins."""

    def __init__(self, data: Sequence[Tensor]) -> None:
        super().__init__([x.device for x in data])
        self.states: list[list[list[list[int]]]] = []
        self.moves: list[tuple[int | None, tuple[int, int, list[int], bool]]] = []
        self._data, self._chunks = data, {}

    def state(self) -> list[list[list[int]]]:
        """For each rank and place, the ranks whose numbers are in it: digits, to the base 16."""
        ranks = range(len(self._data))
        return [[[rank for rank in ranks for _ in range(value >> 4 * rank & 15)] for value in x.tolist()]
                for x in self._data]

    def begin_round(self) -> int:
        self.states.append(self.state())
        return super().begin_round()

    def carry(self, message: Message, x: Tensor) -> Tensor:
        first = (x.data_ptr() - self._data[message.source].data_ptr()) // x.element_size()
        if not 0 <= first <= len(self._data) - x.numel():
            raise ValueError(f"rank {message.source} sends what is no part of its buffer, and cannot be followed")
        self._chunks[message] = list(range(first, first + x.numel()))
        return x

    @contextmanager
    def receiving(self, message: Message, what: str, device: torch.device) -> Generator[None]:
        with super().receiving(message, what, device):
            yield
        move = message.source, message.target, self._chunks[message], what == "add"
        self.moves.append((message.round, move))


def show_stepper(runs: Mapping[int, Sequence[Round]], start: int) -> None:
    """Put the rounds of a sum on the page, by the number of devices, starting with `start` devices.

    The still picture, for where no script runs, has the rounds of `start` devices. Outside a notebook nothing is shown.
    """
    put_figure(STEPPER, lambda: _drawn(runs[start]), lambda: _data(runs, start), " ".join(_words(runs[start])))


def put_figure(kind: str, draw: Callable[[], Figure], describe: Callable[[], dict], words: str) -> None:
    """Put a still picture on the page, with its alt text, and the data from which the script of `kind` draws instead.

    Outside a notebook nothing is shown, or drawn.
    """
    if in_notebook():
        from IPython.core.pylabtools import print_figure
        from IPython.display import display

        fig = draw()  # first, because it sets the colours that the data name
        still = print_figure(fig, "svg", bbox_inches="tight")
        plt.close(fig)
        display({kind: describe(), "image/svg+xml": still, "text/plain": words}, raw=True,
                metadata={"image/svg+xml": {"alt": words}})


def _data(runs: Mapping[int, Sequence[Round]], start: int) -> dict:
    """What the browser draws: for each number of devices the words, the messages and the sums of each round."""
    return {"start": str(start), "colors": [to_hex(rank_style(rank)["color"]) for rank in range(max(runs))],
            "runs": {str(k): [{"words": words, "moves": [list(move) for move in step.moves], "holds": step.holds}
                              for words, step in zip(_words(rounds), rounds)] for k, rounds in runs.items()}}


def _drawn(rounds: Sequence[Round]) -> Figure:
    """What the buffers hold at the start and after each round: one row per rank, one column per chunk.

    In a box stand the ranks whose numbers are in the sum; what has just arrived has a thick border.
    """
    k, columns = len(rounds[0].holds), min(4, len(rounds))
    rows = -(-len(rounds) // columns)
    use_book_style()
    fig, axes = plt.subplots(
        rows, columns, figsize=(0.49 * (k + 0.6) * columns, 0.4 * (k + 1.2) * rows), squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for i, (ax, (moves, holds)) in enumerate(zip(axes.flat, rounds)):
        arrived = {(target, chunk) for _, target, chunks, _ in moves for chunk in chunks}
        ax.set(xlim=(-0.6, k), ylim=(k + 0.1, -0.9))
        ax.text(k / 2, -0.45, f"round {i}, {_what(moves)}" if i else "start", ha="center", va="center", weight="bold")
        for rank, row in enumerate(holds):
            ax.text(-0.15, rank + 0.5, str(rank), ha="right", va="center", weight="bold",
                    color=rank_style(rank)["color"])
            for chunk, ranks in enumerate(row):
                for held in sorted(set(ranks)):
                    left = chunk + 0.94 * held / k
                    ax.add_patch(Rectangle((left, rank), 0.94 / k, 0.94, facecolor=rank_style(held)["color"]))
                    ax.text(left + 0.47 / k, rank + 0.5, str(held), ha="center", va="center", color="white", fontsize=8)
                new = (rank, chunk) in arrived
                ax.add_patch(Rectangle((chunk, rank), 0.94, 0.94, facecolor="none", zorder=3,
                                       edgecolor="black" if new else "0.6", linewidth=2.2 if new else 0.8))
    return fig


def _words(rounds: Sequence[Round]) -> list[str]:
    """For the start and each round of a sum, what is sent and what is held then, in sentences."""
    words = []
    for i, (moves, holds) in enumerate(rounds):
        every = list(range(len(holds)))
        now = [holds[target][chunks[0]] for _, target, chunks, _ in moves]
        sent = [f"Rank {source} sends chunk{'s' * (len(chunks) > 1)} {_and(chunks)} to rank {target}: now "
                f"{'complete' if ranks == every else ' + '.join(map(str, ranks))}."
                for (source, target, chunks, _), ranks in zip(moves, now)]
        begin = f"Round {i} of {len(rounds) - 1}, {_what(moves)}." if i else "Start: every rank holds its own values."
        end = ["Every rank holds the whole sum."] * all(ranks == every for row in holds for ranks in row)
        words.append(" ".join([begin, *sent, *end]))
    return words


def _what(moves: Sequence[tuple[int, int, Sequence[int], bool]]) -> str:
    return "add" if all(add for *_, add in moves) else "copy"


def _and(numbers: Sequence[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])]) if len(numbers) > 1 else str(numbers[0])
