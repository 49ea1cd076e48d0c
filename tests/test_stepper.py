"""A sum, round by round: what is recorded is what the function sends, and what is drawn is what was recorded."""

from __future__ import annotations

import IPython
import pytest
import torch

from d2lpar import allreduce_ring, allreduce_tree
from d2lpar.checks import cut
from d2lpar.collectives import Meter, allreduce_naive, exchange
from d2lpar.pages import stepper
from d2lpar.pages.broken import allreduce_passing
from d2lpar.pages.stepper import STEPPER, Round, show_stepper, trace_rounds

pytestmark = pytest.mark.usefixtures("no_meter_is_left_on")


def test_a_ring_of_two_by_hand():
    assert trace_rounds(allreduce_ring, 2) == [
        Round([], [[[0], [0]], [[1], [1]]]),
        Round([(0, 1, [1], True), (1, 0, [0], True)], [[[0, 1], [0]], [[1], [0, 1]]]),
        Round([(0, 1, [0], False), (1, 0, [1], False)], [[[0, 1], [0, 1]], [[0, 1], [0, 1]]])]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("algorithm", [allreduce_ring, allreduce_tree, allreduce_naive])
def test_each_round_is_what_the_meter_counts_and_what_follows_from_its_messages(algorithm, k):
    rounds = trace_rounds(algorithm, k)
    data = [torch.zeros(k, dtype=torch.int64) for _ in range(k)]
    with Meter([x.device for x in data]) as meter:
        algorithm(data)
    sent = [(i, s, t, 8 * len(chunks)) for i, step in enumerate(rounds[1:]) for s, t, chunks, _ in step.moves]
    assert sorted(sent) == sorted((m.round, m.source, m.target, m.size_bytes) for m in meter.messages)
    for before, after in zip(rounds, rounds[1:]):
        holds = [[list(ranks) for ranks in row] for row in before.holds]
        for source, target, chunks, add in after.moves:
            for chunk in chunks:
                new = before.holds[source][chunk]
                holds[target][chunk] = sorted(before.holds[target][chunk] + new) if add else new
        assert after.holds == holds
    assert rounds[-1].holds == [[list(range(k))] * k] * k


def test_a_rank_that_is_added_twice_is_seen_twice():
    def twice(data):
        with cut(data, 1) as parts:
            for _ in range(2):
                exchange(parts, [(0, 1, 0)], add=True)

    assert trace_rounds(twice, 2)[-1].holds[1] == [[0, 0, 1]] * 2


def test_the_still_picture_has_a_box_for_each_chunk_and_the_ranks_in_it():
    rounds = trace_rounds(allreduce_ring, 3)
    fig = stepper._drawn(rounds)
    shown = [ax for ax in fig.axes if ax.texts]
    assert [ax.texts[0].get_text() for ax in shown] == ["start", *(f"round {i}, {what}" for i, what in zip((1, 2, 3, 4), ("add", "add", "copy", "copy")))]
    for ax, step in zip(shown, rounds):
        thick = [box for box in ax.patches if box.get_linewidth() > 2]
        assert len(thick) == len(step.moves)
        assert len(ax.texts) == 1 + 3 + sum(len(ranks) for row in step.holds for ranks in row)
    stepper.plt.close(fig)


def test_on_a_page_it_is_data_with_a_still_picture_and_words(monkeypatch):
    put = []
    monkeypatch.setattr(stepper, "in_notebook", lambda: True)
    monkeypatch.setattr(stepper, "use_book_style", lambda: None)
    monkeypatch.setattr("IPython.display.display", lambda data, **more: put.append((data, more)))
    show_stepper({k: trace_rounds(allreduce_ring, k) for k in (2, 3)}, start=3)
    [(data, more)] = put
    assert data["text/plain"] == more["metadata"]["image/svg+xml"]["alt"] and "<svg" in data["image/svg+xml"]
    assert data[STEPPER]["start"] == "3" and [len(run) for run in data[STEPPER]["runs"].values()] == [3, 5]
    assert data[STEPPER]["runs"]["2"][1]["moves"] == [[0, 1, [1], True], [1, 0, [0], True]]
    assert IPython.get_ipython() is None


def test_messages_that_are_no_parts_of_the_buffers_cannot_be_followed():
    with pytest.raises(ValueError, match="no part of its buffer"):
        trace_rounds(allreduce_passing, 3)
