"""One training step as a race between computing and sending, which readers change with sliders, without a kernel.

`race_step` calculates the step, `show_race` shows it. On the site, `race.js` draws it; JupyterLab has a still picture.
"""

from __future__ import annotations

import json
from base64 import b64encode
from io import BytesIO
from typing import Any, NamedTuple

from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from d2lpar.cost import Link, when_sent
from d2lpar.ddp import assign_buckets
from d2lpar.pages.plot import draw_timelines, rank_style, use_book_style
from d2lpar.pages.stepper import put_figure
from d2lpar.timing import Span

RACE = "application/vnd.d2lpar.race+json"
LAYERS, LAYER_BYTES = 24, 4_000_000  # linear layers of 1,000 by 1,000
FORWARD_S, BACKWARD_S = 0.036, 0.072  # as if each layer took 1.5 and 3 ms
WAYS = ("after backward", "in hooks", "in buckets")
MOST_RANKS, MOST_CAP_MB = 8, LAYERS * LAYER_BYTES // 10**6


class Race(NamedTuple):
    """What a reader chooses: the way of averaging, and the ranks and links."""

    way: str = "in buckets"
    ranks: int = 4
    cap_mb: int = 48  # of a bucket
    latency_ms: float = 0.2  # of a message
    gb_per_s: float = 2.0


START = Race()


class RaceStep(NamedTuple):
    """The step that follows: when each allreduce begins and ends, how long the step takes, and how long ranks wait."""

    sent: list[tuple[float, float]]
    step_s: float
    waits_s: float


def race_step(race: Race) -> RaceStep:
    """The step of each rank: forward, then backward from the last layer to the first, and sending by `when_sent`."""
    cap = {"after backward": float("inf"), "in hooks": 0, "in buckets": race.cap_mb * 1e6}[race.way]
    sizes = [LAYER_BYTES] * LAYERS
    ready = [FORWARD_S + BACKWARD_S * (LAYERS - i) / LAYERS for i in range(LAYERS)]
    link = Link(1e-3 * race.latency_ms, 1e-9 / race.gb_per_s)
    sent = when_sent(assign_buckets(sizes, cap, cap), ready, sizes, race.ranks, link)
    step_s = max(FORWARD_S + BACKWARD_S, sent[-1][1])
    return RaceStep(sent, step_s, step_s - FORWARD_S - BACKWARD_S)


def race_words(race: Race) -> str:
    """The result in words, as `race.js` says it."""
    sent, step_s, waits_s = race_step(race)
    return (f"The gradients are sent in {len(sent)} piece{'s' * (len(sent) > 1)}, with {2 * (race.ranks - 1)} messages "
            f"each. The step takes {1e3 * step_s:.1f} ms. For {1e3 * waits_s:.1f} ms of it "
            f"({100 * waits_s / step_s:.0f}%), the ranks only wait.")


def show_race(start: Race = START) -> None:
    """Put the race on the page, with the sliders at `start`. Outside a notebook nothing is shown."""
    put_figure(RACE, lambda: draw_race(start), lambda: data_of(start), words_of_ways(start))


def race_html(start: Race = START) -> str:
    """The same as HTML, for a page that is no notebook."""
    file = BytesIO()
    fig = draw_race(start)
    fig.savefig(file, format="svg", bbox_inches="tight")
    plt.close(fig)
    image = b64encode(file.getvalue()).decode()
    return (f'<div class="race-holder"><img src="data:image/svg+xml;base64,{image}" alt="{words_of_ways(start)}">'
            f'<script type="application/json" class="race">{json.dumps(data_of(start))}</script></div>')


def data_of(start: Race) -> dict[str, Any]:
    """What the browser calculates and draws with."""
    return {"start": start._asdict(), "layers": LAYERS, "layer_bytes": LAYER_BYTES, "forward_s": FORWARD_S,
            "backward_s": BACKWARD_S, "ways": list(WAYS), "most_ranks": MOST_RANKS, "most_cap_mb": MOST_CAP_MB,
            "colors": [to_hex(rank_style(rank)["color"]) for rank in range(MOST_RANKS)]}


def words_of_ways(start: Race) -> str:
    """What the still picture shows, in words."""
    return " ".join(f"{way.capitalize()}: {race_words(start._replace(way=way))}" for way in WAYS)


def draw_race(start: Race) -> Figure:
    """The still picture: what two of the ranks compute and send, with a timeline for each way of averaging."""
    use_book_style()
    computed = [("forward", 0.0, FORWARD_S), ("backward", FORWARD_S, FORWARD_S + BACKWARD_S)]
    groups = {}
    for way in WAYS:
        sent = [("allreduce", begin_s, end_s) for begin_s, end_s in race_step(start._replace(way=way)).sent]
        groups[way] = [Span(rank, *span) for rank in range(2) for span in (*computed, *sent)]
    return draw_timelines(groups, communication=["allreduce"])
