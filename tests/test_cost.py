"""Tests of d2lpar.cost: the closed forms against rounds that a meter counted, and fitted latencies and bandwidths against true ones."""


import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lpar import try_devices
from d2lpar.collectives import Meter, allreduce_naive, allreduce_ring, allreduce_tree
from d2lpar.cost import ADDED_SPREAD, PUBLISHED, Link, efficiency_at, fit_link, naive_s, ring_s, rounds_s, tree_s
from d2lpar.pages.scaling import sister_runs

LINK = Link(20e-6, 1 / 5e9)
ALGORITHMS = {"naive": (allreduce_naive, naive_s), "tree": (allreduce_tree, tree_s), "ring": (allreduce_ring, ring_s)}
links = st.builds(Link, st.floats(1e-9, 1e-2), st.floats(1e-12, 1e-6))
sizes = [2**i for i in range(10, 27)]  # 1 KB to 64 MB


def times(link, sizes_bytes):
    return [link.alpha_s + n * link.beta_s_per_byte for n in sizes_bytes]


# Closed forms


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_closed_form_is_what_the_metered_rounds_cost(name, k):
    algorithm, closed_form_s = ALGORITHMS[name]
    for length in (0, k, 7 * k, 840):  # 840 divides by 1, 2, ..., 8
        data = [torch.ones(length) for _ in range(k)]
        with Meter(try_devices(k)) as meter:
            algorithm(data)
        for link in (LINK, Link(1.0, 0.0), Link(0.0, 1.0)):
            expected = closed_form_s(4 * length, k, link)
            assert rounds_s(meter.rounds, link) == pytest.approx(expected, rel=1e-12, abs=0)


def test_the_closed_forms_on_four_devices_by_hand():
    link = Link(10.0, 0.5)
    assert naive_s(8, 4, link) == 6 * (10 + 4)
    assert tree_s(8, 4, link) == 4 * (10 + 4)
    assert ring_s(8, 4, link) == 6 * (10 + 1)
    assert tree_s(8, 5, link) == 6 * (10 + 4)
    assert [f(8, 1, link) for f in (naive_s, tree_s, ring_s)] == [0, 0, 0]


def test_where_the_length_does_not_divide_the_longest_chunk_of_each_round_counts():
    with Meter(try_devices(4)) as meter:
        allreduce_ring([torch.ones(9) for _ in range(4)])
    assert rounds_s(meter.rounds, LINK) == pytest.approx(ring_s(4 * 12, 4, LINK), rel=1e-12)


# Rounds


def test_a_round_lasts_as_long_as_its_longest_message():
    assert rounds_s([[10, 30, 20], [5]], Link(1.0, 2.0)) == (1 + 60) + (1 + 10)
    assert rounds_s([], Link(1.0, 2.0)) == 0
    assert rounds_s([[0, 0]], Link(1.0, 2.0)) == 1


def test_a_shared_bus_takes_turns_for_messages_and_carries_all_their_bytes():
    rounds, link = [[10, 30, 20], [5]], Link(1.0, 2.0)
    assert rounds_s(rounds, link, Link(0.5, 0.0)) == (1 + 2 * 0.5 + 60) + (1 + 10)
    assert rounds_s(rounds, link, Link(0.0, 1.5)) == (1 + 60 * 1.5) + (1 + 10)  # one message: its own link is slower
    assert rounds_s(rounds, link, Link(0.0, 0.5)) == (1 + 60) + (1 + 10)  # the shared bus is fast enough
    assert rounds_s(rounds, link, Link(0.25, 3.0)) == (1 + 0.5 + 180) + (1 + 15)


# The fit


@pytest.mark.parametrize("link", [LINK, *(published.link for published in PUBLISHED.values())])
def test_exact_times_of_a_real_link_give_back_both_numbers(link):
    assert fit_link(sizes, times(link, sizes)) == pytest.approx(link, rel=1e-10)


@settings(max_examples=100)
@given(link=links)
def test_exact_times_of_any_link_give_back_both_numbers(link):
    fitted = fit_link(sizes, times(link, sizes))
    # Rounding of the times hides a number that is a small part of each of them
    largest_share = link.alpha_s / times(link, sizes)[0], 1 - link.alpha_s / times(link, sizes)[-1]
    for number, true, share in zip(fitted, link, largest_share):
        if share > 1e-4:
            assert number == pytest.approx(true, rel=1e-9 / share)
    assert isinstance(fitted, Link) and all(type(number) is float for number in fitted)


@pytest.mark.parametrize("seed", range(10))
def test_both_numbers_survive_noise_of_5_percent_which_plain_least_squares_does_not(seed):
    n = np.repeat(sizes, 5).astype(float)
    noisy = np.array(times(LINK, n)) * (1 + 0.05 * np.random.default_rng(seed).standard_normal(len(n)))
    fitted = fit_link(n, noisy)
    # 85 times, about half of which determine either number: standard errors just below 1%, and a bias of noise squared
    assert fitted.alpha_s == pytest.approx(LINK.alpha_s, rel=0.04)
    assert fitted.beta_s_per_byte == pytest.approx(LINK.beta_s_per_byte, rel=0.04)


def test_the_squares_of_relative_errors_are_smallest():
    n, t = np.array([1.0, 10.0, 100.0, 1000.0]), np.array([2.0, 3.5, 10.0, 120.0])

    def loss(link):
        return sum((np.array(times(link, n)) / t - 1) ** 2)

    best = fit_link(n, t)
    for alpha_factor, beta_factor in ((1.001, 1), (0.999, 1), (1, 1.001), (1, 0.999)):
        assert loss(best) < loss(Link(best.alpha_s * alpha_factor, best.beta_s_per_byte * beta_factor))


# Published links


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_quick_protocol_of_every_published_link_has_less_latency_and_less_bandwidth(name):
    link, quick, source = PUBLISHED[name]
    for alpha_s, beta_s_per_byte in (link, quick):
        assert 1e-7 < alpha_s < 1e-3 and 1e9 < 1 / beta_s_per_byte < 1e12, "seconds and bytes, not others"
    assert quick.alpha_s < link.alpha_s / 5 and 1.999 * link.beta_s_per_byte <= quick.beta_s_per_byte < 3 * link.beta_s_per_byte
    assert "GB/s" in source


def test_two_runs_give_the_efficiency_at_any_batch():
    """32 examples take 100 ms on one device and 150 ms on eight; 64 take 200 ms alone, so 250 ms together."""
    one, many = (1, 32, 0.1), (8, 32, 0.15)
    for runs in ([one, many], [many, one], [many, (8, 64, 0.25)], [one, many, (8, 128, 0.45)]):
        assert efficiency_at(32, runs) == pytest.approx(2 / 3, rel=1e-12)
        assert efficiency_at(64, runs) == pytest.approx(0.8, rel=1e-12)
    assert efficiency_at(64, [one, many], 2) == pytest.approx(200 / 300, rel=1e-12)


def test_the_stated_spread_holds_four_fifths_of_the_published_predictions():
    ratios = [b.added_s / max(a.added_s + b.law_s - a.law_s, 1e-9) for a, b in sister_runs() if a.passes == b.passes]
    assert np.quantile(ratios, (0.1, 0.9)) == pytest.approx(ADDED_SPREAD, abs=5e-3) and len(ratios) == 44


@pytest.mark.parametrize("runs", [[], [(1, 32, 0.1)], [(1, 32, 0.1), (1, 64, 0.2)], [(8, 32, 0.1), (8, 32, 0.2)]])
def test_runs_that_do_not_tell_the_two_times_apart_are_refused(runs):
    with pytest.raises(ValueError, match="this takes two runs: one on a single device and one on several, or two"):
        efficiency_at(64, runs)


@pytest.mark.parametrize("batch, runs, words", [
    (64, [(1, 32, 0.1), (8, 0, 0.1)], "all above 0"), (64, [(1, 32, 0.1), (8, 32, float("nan"))], "all above 0"),
    (64, [(1, 32, 0.1), (8, 32, 0)], "all above 0"), (64, [(1, 32, 0.1), (0, 32, 0.1)], "at least 1"),
    (0, [(1, 32, 0.1), (8, 32, 0.15)], "^batch must be .* got 0$"), (float("nan"), [(1, 32, 0.1), (8, 32, 0.15)], "got nan$"),
    (64, [(2, 32, 0.12), (8, 64, 0.35)], r"the same number of them, got \[2, 8\]"),
    (64, [(8, 16, 0.2), (8, 32, 0.1)], "more examples take less time")])
def test_runs_that_cannot_be_right_are_refused_with_their_values(batch, runs, words):
    with pytest.raises(ValueError, match=words):
        efficiency_at(batch, runs)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), "2"])
def test_a_factor_that_is_no_factor_is_refused(factor):
    with pytest.raises(ValueError, match="^factor must be a number above 0, got"):
        efficiency_at(64, [(1, 32, 0.1), (8, 32, 0.15)], factor)


def test_runs_may_come_from_a_generator_and_as_arrays_of_numpy():
    runs = [(1, 32, 0.1), (8, 32, 0.15)]
    assert efficiency_at(64, (run for run in runs)) == efficiency_at(64, runs) == pytest.approx(0.8)
    assert efficiency_at(64, [(np.int64(1), 32, np.float64(0.1)), runs[1]]) == pytest.approx(0.8)
