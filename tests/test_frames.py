"""A sharded step, frame by frame: the frames are what the ranks record, and that is the step of a single device."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
import torch
import torch.distributed as dist

import d2lpar
import d2lpar.pages
from d2lpar import RankError
from d2lpar.pages import frames, stepper
from d2lpar.pages.frames import Film, Frame, show_films
from d2lpar.pages.stepper import STEPPER
from d2lpar.sharding import all_gather_parts, mean_part

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cells(root):
    """The chapter's cells about this step, by their ids."""
    chapter = nbformat.read(root / "notebooks" / "20_sharding.ipynb", as_version=4)
    return {cell.id: cell for cell in chapter.cells if cell.id.startswith("slow-motion")}


@pytest.fixture(scope="module")
def films(cells, group_of):
    """What two ranks record in the chapter's step."""
    names = {"__name__": "__main__", "torch": torch, "dp": d2lpar, "book": d2lpar.pages,
             "all_gather_parts": all_gather_parts, "mean_part": mean_part}
    for name in ("slow-motion", "slow-motion-film"):
        exec(cells[name].source, names)
    return group_of(2).run(names["in_slow_motion"])


def alone():
    """The same step on a single device, by autograd: before and after it, each example's gradients, losses, activations."""
    weights = {"W1": torch.tensor([1.0, 2, 3, 4], requires_grad=True), "W2": torch.tensor([5.0, 6, 7, 8], requires_grad=True)}
    examples = torch.tensor([[4.0, 0, 2, 2], [0, 4, 6, 2]])
    before = {name: W.tolist() for name, W in weights.items()}
    hidden = examples * weights["W1"]
    outputs = hidden * weights["W2"]
    losses = outputs.sum(dim=1)
    grads = [dict(zip(weights, (g.tolist() for g in torch.autograd.grad(loss, [*weights.values()], retain_graph=True)))) for loss in losses]
    optimizer = torch.optim.SGD(weights.values(), lr=0.5)
    losses.mean().backward()
    mean = {name: W.grad.tolist() for name, W in weights.items()}
    optimizer.step()
    after = {name: W.tolist() for name, W in weights.items()}
    return before, after, grads, mean, losses.tolist(), hidden.tolist(), outputs.tolist()


def expected(rank):
    """The frames that this rank has to record, from the step of a single device."""
    before, after, grads, mean, losses, hidden, outputs = alone()
    own = slice(2 * rank, 2 * rank + 2)
    part, whole, gradient, of_mean = (
        lambda name, kind=kind, values=values: {(kind, name): values[name]}
        for kind, values in (("part", {name: W[own] for name, W in before.items()}), ("whole", before),
                             ("gradient", grads[rank]), ("mean", {name: g[own] for name, g in mean.items()})))
    rest, new = part("W1") | part("W2"), {("part", name): W[own] for name, W in after.items()}
    means = of_mean("W1") | of_mean("W2")
    return [
        ("at rest", 0, rest, None), ("gather W1", 8, rest | whole("W1"), None),
        ("compute with W1", 0, rest | whole("W1"), hidden[rank]), ("free W1", 0, rest, None),
        ("gather W2", 8, rest | whole("W2"), None), ("compute with W2", 0, rest | whole("W2"), outputs[rank]),
        ("free W2", 0, rest, None), ("loss", 0, rest, [losses[rank]]), ("gather W2 again", 8, rest | whole("W2"), None),
        ("backward through W2", 0, rest | whole("W2") | gradient("W2"), before["W2"]),
        ("free W2, reduce-scatter gradient", 8, rest | gradient("W2") | of_mean("W2"), None),
        ("free gradient of W2", 0, rest | of_mean("W2"), None),
        ("gather W1 again", 8, rest | whole("W1") | of_mean("W2"), None),
        ("backward through W1", 0, rest | whole("W1") | gradient("W1") | of_mean("W2"), [5.0, 12, 21, 32]),
        ("free W1, reduce-scatter gradient", 8, rest | gradient("W1") | means, None), ("free gradient of W1", 0, rest | means, None),
        ("update: part - 0.5 x mean gradient", 0, new | means, None), ("at rest again", 0, new, None)]


@pytest.mark.parametrize("rank", [0, 1])
def test_each_frame_of_the_chapter_is_the_step_of_a_single_device(films, rank):
    rows = expected(rank)
    assert [frame.moment for frame in films[rank]] == [moment for moment, *_ in rows]
    for frame, (moment, sent, held, found) in zip(films[rank], rows, strict=True):
        assert (frame.sent_bytes, frame.held) == (sent, held), moment
        assert found is None or frame.found[1] == found, moment
    assert max(frame.held_bytes for frame in films[rank]) == 4 * 14
    assert sum(frame.sent_bytes for frame in films[rank]) == 1.5 * 2 * (2 - 1) / 2 * 4 * 8, "1.5 times as much as DDP"


def test_the_page_shows_what_the_ranks_record_and_says_it(films, cells):
    [output] = [one for one in cells["slow-motion-drawn"].outputs if STEPPER in one.get("data", {})]
    stored = output.data[STEPPER]
    assert stored["frames"] == json.loads(json.dumps(frames._data(films, "")["frames"])), "Run the notebook again"
    for i, (shown, now) in enumerate(zip(stored["frames"], zip(*films, strict=True), strict=True)):
        assert shown["words"].startswith(f"Frame {i + 1} of 18: {now[0].moment}. {'Each rank sends 8' if now[0].sent_bytes else 'Nothing is sent'}")
        for rank, frame in enumerate(now):
            said = [*map(float, re.findall(r"-?\d+(?= ?[,)])", shown["words"].splitlines()[1 + rank]))]
            drawn = [float(value) for _, _, values, _ in shown["ranks"][rank]["boxes"] for value in values.split()]
            held = [value for values in frame.held.values() for value in values]
            assert drawn == held == said[:len(held)]
            assert f"{len(held)} values, {4 * len(held)} bytes" in shown["words"]
            assert shown["ranks"][rank]["bytes"] == 4 * len(held) and shown["ranks"][rank]["sent"] == frame.sent_bytes


def test_what_is_new_in_a_frame_is_marked(films):
    data = frames._data(films, "")
    new = [[data["rows"][row] for row, _, _, fresh in frame["ranks"][0]["boxes"] if fresh] for frame in data["frames"]]
    assert [(i, rows) for i, rows in enumerate(new) if rows] == [
        (1, ["W1 whole"]), (4, ["W2 whole"]), (8, ["W2 whole"]), (9, ["W2 gradient"]), (10, ["its mean"]),
        (12, ["W1 whole"]), (13, ["W1 gradient"]), (14, ["its mean"]), (16, ["W1 part", "W2 part"])]


def test_a_weight_that_is_not_freed_stays_in_the_picture(group_of):
    def forgets(rank):
        with Film() as film:
            part = film.keep("part", "W", torch.full((2,), rank + 1.0))
            W = film.keep("whole", "W", all_gather_parts(part, torch.Size([6])))
            film.take("gather")
            also = W
            del W
            film.take("free?")
            del also
            film.take("free")
        return film.frames

    for rank, film in enumerate(group_of(3).run(forgets)):
        assert [len(frame.held) for frame in film] == [2, 2, 1]
        assert film[1].held["whole", "W"] == [1, 1, 2, 2, 3, 3] and film[2].held == {("part", "W"): [rank + 1] * 2}
        assert [frame.sent_bytes for frame in film] == [16, 0, 0], "its part to two others"


def test_a_collective_whose_bytes_are_not_known_is_not_left_out(group_of):
    def sums(rank):
        with Film() as film:
            dist.all_reduce(torch.ones(2))
            film.take("sum")

    with pytest.raises(RankError, match="KeyError: 'allreduce'"):
        group_of(2).run(sums)


def test_films_of_different_moments_are_refused(films):
    with pytest.raises(ValueError, match="Take the same frames on all ranks"):
        show_films([films[0], films[1][1:]], "a frame left out")


def test_on_a_page_it_is_data_with_a_still_picture_of_all_frames_and_words(films, monkeypatch):
    put = []
    monkeypatch.setattr(stepper, "in_notebook", lambda: True)
    monkeypatch.setattr("d2lpar.pages.plot.in_notebook", lambda: False)
    monkeypatch.setattr("IPython.display.display", lambda data, **more: put.append((data, more)))
    show_films(films, "a step")
    [(data, more)] = put
    words = data["text/plain"]
    assert words == more["metadata"]["image/svg+xml"]["alt"] and words.count("Frame ") == 18 and "<svg" in data["image/svg+xml"]
    assert data[STEPPER]["label"] == "a step" and data[STEPPER]["colors"] == ["#1f77b4", "#d95f02"]
    fig = frames._drawn(films)
    for rank, ax in enumerate(fig.axes):
        shown = [text.get_text().split() for text in ax.texts]
        assert [float(value) for values in shown for value in values] == [
            value for frame in films[rank] for values in frame.held.values() for value in values]
        widths = [sum(round(box.get_width() + 0.12) for box in ax.patches if round(box.get_y() + 0.4) == row) for row in range(18)]
        assert widths == [frame.held_bytes // 4 for frame in films[rank]]
        dotted = sum(box.get_linestyle() in (":", "dotted") for box in ax.patches)
        assert dotted == sum(kind == "whole" for frame in films[rank] for kind, _ in frame.held)
    frames.plt.close(fig)


def test_a_value_that_is_not_a_number_is_said_to_be_none():
    film = [Frame("loss", 0, {("part", "W"): [float("nan"), 2.0]})]
    assert "part of W (nan, 2): 2 values, 8 bytes." in frames._words([film])[0]
