"""Tests of d2lpar.pages.plot: figures say what the data says, in two cues, with words for those who cannot see them."""

import io
import re
from unittest.mock import MagicMock

import IPython
import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from d2lpar.pages import plot
from d2lpar.timing import Span

mpl.use("agg")

SPANS = [Span(0, "forward", 1.000, 1.004), Span(0, "backward", 1.004, 1.010), Span(1, "forward", 1.001, 1.003),
         Span(1, "backward", 1.003, 1.008), Span(0, "allreduce", 1.010, 1.012), Span(1, "allreduce", 1.010, 1.012)]
TURNS = {"a hang": [["sum", "loss"], ["sum", "barrier", "sum"]]}
CURVE_WORDS = "Test accuracy by epoch. 1 device: from 0.1 to 0.7; 2 devices: from 0.1 to 0.8."


@pytest.fixture(autouse=True)
def book_style(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")  # so that it is put back
    with mpl.rc_context():
        plot.use_book_style()
        yield
        plt.close("all")


class Notebook:
    """Stands in for a running kernel: keeps what is displayed, as SVG bytes, with its metadata."""

    kernel = True

    def __init__(self):
        self.shown = []

    def display(self, fig, metadata):
        self.shown.append((svg(fig), metadata, words_in(fig)))


@pytest.fixture
def notebook(monkeypatch):
    notebook = Notebook()
    monkeypatch.setattr(IPython, "get_ipython", lambda: notebook)
    monkeypatch.setattr("matplotlib_inline.backend_inline", MagicMock())  # it would set the real kernel's
    monkeypatch.setattr("IPython.display.display", notebook.display)
    return notebook


def svg(fig):
    file = io.BytesIO()
    fig.savefig(file, format="svg")
    return file.getvalue()


def words_in(fig):
    return [text.get_text() for text in fig.texts]


def bars(fig):
    return [patch for patch in fig.axes[0].patches if isinstance(patch, Rectangle)]


def curves():
    return plot.draw_curves({"1 device": [0.1, 0.5, 0.7], "2 devices": [0.1, 0.4, 0.8]}, "epoch", "test accuracy")


@pytest.mark.parametrize("draw", [curves, lambda: plot.draw_timeline(SPANS), lambda: plot.draw_step([3, 2]),
                                  lambda: plot.draw_call([3, 1]),
                                  lambda: plot.draw_cuts(4, 4), lambda: plot.draw_turns(TURNS),
                                  lambda: plot.draw_halving(4), lambda: plot.draw_trees({"a": [None, 0, 0]}),
                                  lambda: plot.draw_timelines({"a": SPANS}, {"alone": 2.0}),
                                  lambda: plot.draw_ratios({"a": {"b": (1, 2, 3, None)}})])
def test_the_same_figure_gives_the_same_bytes(draw):
    first, second = draw(), draw()
    assert svg(first) == svg(second)
    assert b"<dc:date>1970-01-01" in svg(first), "the moment of drawing is in the file"


def test_a_call_and_its_way_back_have_a_replica_in_each_row_and_say_so_in_words():
    fig = plot.draw_call([3, 3, 1])
    words = [text.get_text() for text in fig.axes[0].texts]
    assert [words.count(word) for word in ("replica 0", "replica 2", "3 images", "1 image", "3 x 10", "7 x 10")] == [2, 2, 2, 1, 4, 2]
    assert len(bars(fig)) == 2 * (3 * 3 + 2) and sum(bar.get_hatch() is not None for bar in bars(fig)) == 4
    assert "cuts 7 images into shards of 3, 3, 1," in fig.get_label() and "sums them into p.grad." in fig.get_label()


@pytest.mark.parametrize("k", [2, 4, 8])
def test_recursive_halving_is_drawn_with_the_sums_that_real_messages_make(k):
    fig = plot.draw_halving(k)
    moves = [tuple(map(int, re.findall(r"\d+", move))) for move in re.findall(r"Round \d+: rank [^.]+\.", fig.get_label())]
    held = [dict.fromkeys(range(k), frozenset([rank])) for rank in range(k)]
    for number in range(1, k.bit_length()):
        before = [dict(chunks) for chunks in held]
        sent = {(source, target): chunks for n, source, *chunks, target in moves if n == number}
        assert len(sent) == k and all(target == source ^ 2 ** (number - 1) for source, target in sent)
        for (source, target), chunks in sent.items():
            assert len(chunks) == k >> number, "a half of what is left"
            for chunk in chunks:
                del held[source][chunk]
                assert not before[source][chunk] & before[target][chunk]
                held[target][chunk] |= before[source][chunk]
    assert all(list(map(len, chunks.values())) == [k] for chunks in held), "one chunk each, the sum of all"
    for rank, [chunk] in enumerate(held):
        assert f"rank {rank} has chunk {chunk}" in fig.get_label()
    hatched = [bar for bar in bars(fig) if bar.get_hatch()]
    assert len(hatched) == sum(len(chunks) for _, _, *chunks, _ in moves) == k * (k - 1)
    assert [text.get_text() for text in fig.axes[0].texts].count(str(k)) >= k


def test_trees_have_an_edge_for_each_parent_and_empty_leaves():
    fig = plot.draw_trees({"one": [None, 2, 0, 2], "other": [1, 3, 1, None]})
    for ax, inner in zip(fig.axes, ({0, 2}, {1, 3})):
        nodes = {int(line.get_xdata()[0]): line for line in ax.lines if line.get_marker() == "o"}
        assert {rank for rank, node in nodes.items() if node.get_markerfacecolor() != "white"} == inner
        assert sum(line.get_marker() != "o" for line in ax.lines) == 3 and len(nodes) == 4
    assert "one, root 0: below 0 is 2; below 2 are 1 and 3." in fig.get_label()
    assert "other, root 3: below 1 are 0 and 2; below 3 is 1." in fig.get_label()


def test_eight_ranks_differ_in_colour_and_in_marker():
    styles = [plot.rank_style(rank) for rank in range(8)]
    assert len({style["color"] for style in styles}) == 8
    assert len({style["marker"] for style in styles}) == 8
    assert plot.rank_style(8) == styles[0]


def test_a_figure_goes_on_the_page_with_its_words_and_is_closed(notebook):
    plot.show(curves())
    [(image, metadata, words)] = notebook.shown
    assert metadata == {"image/svg+xml": {"alt": CURVE_WORDS}}
    assert image.startswith(b"<?xml") and words == []
    assert plt.get_fignums() == [], "left open, a notebook would show it a second time"


def test_a_figure_without_words_does_not_go_on_the_page(notebook):
    fig, _ = plt.subplots()
    with pytest.raises(ValueError, match="the figure has no alt text"):
        plot.show(fig)
    assert notebook.shown == []
    fig.set_label("An empty frame.")
    plot.show(fig)
    assert notebook.shown[0][1] == {"image/svg+xml": {"alt": "An empty frame."}}


def test_curves_have_their_labels_their_ranks_style_and_their_values():
    fig = curves()
    ax = fig.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "test accuracy")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1 device", "2 devices"]
    for rank, line in enumerate(ax.lines):
        style = plot.rank_style(rank)
        assert (line.get_color(), line.get_marker()) == (style["color"], style["marker"])
    assert list(ax.lines[1].get_xdata()) == [1, 2, 3] and list(ax.lines[1].get_ydata()) == [0.1, 0.4, 0.8]
    fig = plot.draw_curves({"loss": [1.0, 2.0]}, "lr", "loss", x=[0.1, 10.0], yscale="log")
    assert list(fig.axes[0].lines[0].get_xdata()) == [0.1, 10.0]
    assert fig.axes[0].get_yscale() == "log" and fig.axes[0].get_legend() is None


def test_bars_of_a_timeline_lie_where_the_spans_say():
    fig = plot.draw_timeline(SPANS)
    ax = fig.axes[0]
    assert len(bars(fig)) == len(SPANS)
    for bar, span in zip(bars(fig), SPANS):
        assert bar.get_x() == pytest.approx((span.start_s - 1) * 1e3)  # ms since the first span began
        assert bar.get_width() == pytest.approx((span.end_s - span.start_s) * 1e3)
        assert bar.get_y() + bar.get_height() / 2 == pytest.approx(span.rank)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0", "rank 1"]
    assert ax.get_xlabel() == "time (ms)"
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "rank 0 belongs on top"
    assert fig.get_label() == (
        "Timeline, one row per rank, time (ms). "
        "Rank 0: forward from 0 to 4, backward from 4 to 10, allreduce from 10 to 12. "
        "Rank 1: forward from 1 to 3, backward from 3 to 8, allreduce from 10 to 12.")


def test_communication_is_hatched_and_computing_is_filled_in_the_ranks_colour():
    fig = plot.draw_timeline([*SPANS, Span(1, "wait", 1.012, 1.013)], communication=("allreduce", "wait"))
    for bar, span in zip(bars(fig), [*SPANS, Span(1, "wait", 1.012, 1.013)]):
        talks = span.what in ("allreduce", "wait")
        assert bool(bar.get_hatch()) == talks
        color = mpl.colors.to_rgb("white" if talks else plot.rank_style(span.rank)["color"])
        assert bar.get_facecolor()[:3] == pytest.approx(color)
    forward, backward = bars(fig)[:2]
    assert forward.get_facecolor() != backward.get_facecolor(), "forward and backward look the same"


def test_many_spans_of_a_rank_are_counted_in_words():
    many = [Span(0, "sum", 1 + i / 1000, 1.001 + i / 1000) for i in range(7)]
    fig = plot.draw_timeline([Span(0, "forward", 0.996, 1.0), *many, *(Span(0, "update", t, t + 0.001) for t in (1.01, 1.02))])
    assert "forward once, 4 in total, sum 7 times, 7 in total, update twice, 2 in total" in fig.get_label()


def test_predicted_curves_are_dashed_and_measured_points_carry_the_marker():
    fig = plot.draw_curves({"ring": [1.0, 2.0]}, "k", "time (ms)", [2, 4], points={"ring": [3.0, 5.0]})
    line, dots = fig.axes[0].lines
    assert (line.get_linestyle(), dots.get_linestyle(), dots.get_marker()) == ("--", "None", plot.MARKERS[0])
    assert list(line.get_ydata()) == [1, 2] and list(dots.get_ydata()) == [3, 5]
    assert "Predicted: ring: from 1 to 2. Measured: ring: from 3 to 5" in fig.get_label()


def test_a_curve_that_was_not_measured_has_no_points():
    fig = plot.draw_curves({"one": [2.0, 2.0], "two": [3.0, 1.0]}, "Mbit/s", "ms", [1, 2], points={"two": [3.1, 1.1]})
    assert [line.get_label() for line in fig.axes[0].lines] == ["one, predicted", "two, predicted", "two, measured"]


def test_every_training_is_a_line_and_those_of_one_name_look_alike():
    fig = plot.draw_runs({"one": [([1, 2], [0.3, 0.5]), ([1, 3], [0.2, 0.6])], "two": [([0.5], [0.4])]}, "time (s)", "accuracy")
    lines = fig.axes[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[1, 2], [1, 3], [0.5]]
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    assert [text.get_text() for text in fig.axes[0].get_legend().get_texts()] == ["one", "two"]
    assert "one, at the end of each run: 0.50 at 2.0; 0.60 at 3.0. two, at the end of each run: 0.40 at 0.5." in fig.get_label()


def test_an_interval_is_drawn_from_its_low_end_to_its_high_one_with_its_point_and_a_line_at_zero():
    fig = plot.draw_intervals({"a": (-0.2, 0.1, 0.3), "b": (0.5, 0.5, 0.5)}, "effect")
    zero, interval, point, *_ = lines = fig.axes[0].lines
    assert list(zero.get_xdata()) == [0, 0] and list(interval.get_xdata()) == [-0.2, 0.3] and list(point.get_xdata()) == [0.1]
    assert list(lines[-1].get_xdata()) == [0.5] and list(lines[-1].get_ydata()) == [1]
    assert "a +0.100 (-0.200 to +0.300); b +0.500 (+0.500 to +0.500)" in fig.get_label()


def test_panels_show_every_run_thin_and_the_medians_thick_on_the_same_axes():
    fig = plot.draw_panels({"a": [[1.0, 5.0], [3.0, 6.0], [2.0, 10.0]], "b": [[0.0, 1.0]]}, "epoch", "test accuracy", [1, 4])
    first, second = fig.axes
    assert [list(line.get_ydata()) for line in first.lines] == [[1, 5], [3, 6], [2, 10], [2, 6]]
    assert [line.get_color() == "black" for line in first.lines] == [False, False, False, True]
    assert all(list(line.get_xdata()) == [1, 4] for ax in fig.axes for line in ax.lines)
    assert first.get_xlim() == second.get_xlim() and first.get_ylim() == second.get_ylim()
    words = fig.get_label()
    assert "a: 3 runs, whose median goes from 2 to 6 and falls 0 times; at the end between 5 and 10; the largest fall" in words
    assert "b: 1 runs" in words


def test_a_fit_is_shown_with_its_factor_and_without_times_that_are_not_positive():
    fig = plot.draw_fit([10, 20, 40], [1.0, 2.0, 4.0], {"good": [1.0, 1.0, 2.0], "bad": [-1.0, 1.0, 1.0]})
    assert "good: measured times are 1 to 2 times the fitted ones" in fig.get_label()
    assert "bad: measured times are 2 to 4 times the fitted ones, and for 1 of 3 sizes it gives no" in fig.get_label()
    ratios = [line.get_ydata() for line in fig.axes[1].lines[1:]]
    assert list(ratios[0]) == [1, 2, 2] and ratios[1][0] != ratios[1][0] and list(ratios[1][1:]) == [2, 4]


def test_chunks_show_every_count_and_a_thick_border_where_a_sum_is_complete():
    fig = plot.draw_chunks({"start": [[1, 1], [1, 1]], "end": [[2, 1], [1, 2]]})
    end = fig.axes[1]
    assert [text.get_text() for text in end.texts] == ["end", "0", "2", "1", "1", "1", "2"]
    assert [box.get_linewidth() > 2 for box in end.patches] == [True, False, False, True]
    assert "start: 11, 11; end: 21, 12" in fig.get_label()


def test_a_chunk_that_a_rank_does_not_hold_is_left_blank():
    fig = plot.draw_chunks({"kept": [[2, 0], [0, 2]]})
    assert [text.get_text() for text in fig.axes[0].texts] == ["kept", "0", "2", "1", "2"]
    assert "0 that the rank does not hold it. kept: 20, 02" in fig.get_label()


@pytest.mark.parametrize("narrow", [False, True])
def test_a_ratio_is_a_dot_in_its_range_and_a_limit_is_a_tick_where_there_is_one(narrow):
    fig = plot.draw_ratios({"against gloo": {"naive": (2.0, 3.0, 5.0, 12.2), "ring": (0.2, 0.25, 0.3, None)}}, narrow)
    [ax] = fig.axes
    one, *marks = [(list(line.get_xdata()), line.get_marker(), line.get_ydata()[0]) for line in ax.lines]
    assert one[0] == [1, 1] and ax.get_xscale() == "log"
    assert [mark[:2] for mark in marks] == [([2, 5], "None"), ([3], "o"), ([12.2], "|"), ([0.2, 0.3], "None"), ([0.25], "o")]
    assert marks[0][2] == marks[1][2] == marks[2][2] < marks[3][2] == marks[4][2], "one line for each row"
    named = {text.get_text(): text.get_position()[1] for text in ax.texts or ax.get_yticklabels()}
    assert list(named) == ["against gloo", "naive", "ring"]
    assert -0.5 < named["naive"] - marks[0][2] <= 0 and -0.5 < named["ring"] - marks[3][2] <= 0, "a name at its line"
    assert fig.get_label().endswith("against gloo: naive 3 (limit 12.2), ring 0.25.")
    low, high = ax.get_xlim()
    assert low < 0.2 and high > 12.2


def test_a_ratio_whose_range_contains_one_is_a_hollow_dot_and_no_difference_in_words():
    fig = plot.draw_ratios({"against gloo": {"naive": (0.9, 1.2, 1.3, 2.0), "ring": (1.1, 1.2, 1.3, None)}})
    even, faster = [line.get_markerfacecolor() for line in fig.axes[0].lines if line.get_marker() == "o"]
    assert even == "white" != faster
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["median", "no difference", "range", "limit"]
    assert fig.get_label().endswith("against gloo: naive 1.2 (no difference, limit 2), ring 1.2.")


def test_several_timelines_share_one_axis_and_its_marks():
    short, long = [Span(0, "forward", 0.0, 0.001)], [Span(0, "forward", 0.0, 0.002), Span(1, "send", 0.002, 0.004)]
    fig = plot.draw_timelines({"short": short, "long": long}, {"alone": 0.003})
    [ax] = fig.axes
    assert [(bar.get_x(), bar.get_width()) for bar in bars(fig)] == [(0, 1), (0, 2), (2, 2)]  # ms
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "0", "1"]
    assert [text.get_text() for text in ax.texts] == ["short", "long", "alone"]
    [line] = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert list(line.get_xdata()) == [3, 3]
    assert fig.get_label() == ("Timelines on one axis, a row for each rank. short ends at 1.0 ms; long ends at 4.0 ms. "
                               "A dashed line, alone, at 3.0 ms.")


def test_every_cell_of_the_three_cuts_has_the_number_of_its_rank():
    fig = plot.draw_cuts(layers=4, channels=2)
    texts = [[text.get_text() for text in ax.texts if text.get_text() in ("0", "1", "0\n1")] for ax in fig.axes]
    assert [texts_of.count("0") for texts_of in texts] == [1 + 8, 4, 1 + 4]  # a shard of the minibatch, and cells
    assert [texts_of.count("1") for texts_of in texts] == [1 + 8, 4, 4]
    assert texts[1].count("0\n1") == 1  # both ranks see the whole minibatch


def test_calls_that_meet_are_drawn_below_each_other_and_read_out():
    [ax] = plot.draw_turns(TURNS).axes
    at = {(round(box.get_x()), round(box.get_y() + 0.36)) for box in ax.patches}
    assert at == {(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)}
    assert ax.figure.get_label().endswith("a hang, rank 0: sum, loss. a hang, rank 1: sum, barrier, sum.")


def test_seeds_are_a_line_of_medians_in_a_band_from_lowest_to_highest():
    fig = plot.draw_seeds({"a": [[1.0, 5.0], [3.0, 6.0], [2.0, 10.0]]}, "epoch", "test accuracy")
    [line], [band] = fig.axes[0].lines, fig.axes[0].collections
    assert list(line.get_xdata()) == [1, 2] and list(line.get_ydata()) == [2, 6]
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(1, 1), (1, 3), (2, 5), (2, 10)} <= corners
    assert "a: median from 2 to 6, at the end between 5 and 10 in 3 runs" in fig.get_label()


def test_replicas_of_one_address_point_to_one_box():
    fig = plot.draw_memory({"the same": [7, 7], "their own": [7, 8]})
    ends = [{text.xy for text in ax.texts if hasattr(text, "xy")} for ax in fig.axes]
    assert [len(places) for places in ends] == [1, 2]
    assert fig.get_label().endswith(
        "the same: 2 replicas in 1 block of memory; their own: 2 replicas in 2 blocks of memory.")
