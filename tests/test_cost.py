"""Tests of d2lpar.cost: the closed forms against rounds that a meter counted, and fitted prices against true ones."""


import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lpar import try_devices
from d2lpar.collectives import Meter, allreduce_naive, allreduce_ring, allreduce_tree
from d2lpar.cost import PUBLISHED, Link, fit_link, naive_s, ring_s, rounds_s, tree_s

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


def test_a_common_road_takes_turns_for_messages_and_carries_all_their_bytes():
    rounds, link = [[10, 30, 20], [5]], Link(1.0, 2.0)
    assert rounds_s(rounds, link, Link(0.5, 0.0)) == (1 + 2 * 0.5 + 60) + (1 + 10)
    assert rounds_s(rounds, link, Link(0.0, 1.5)) == (1 + 60 * 1.5) + (1 + 10)  # one message: its own link is slower
    assert rounds_s(rounds, link, Link(0.0, 0.5)) == (1 + 60) + (1 + 10)  # the shared bus is fast enough
    assert rounds_s(rounds, link, Link(0.25, 3.0)) == (1 + 0.5 + 180) + (1 + 15)


# The fit


@pytest.mark.parametrize("link", [LINK, *(published.link for published in PUBLISHED.values())])
def test_exact_times_of_a_real_link_give_back_both_prices(link):
    assert fit_link(sizes, times(link, sizes)) == pytest.approx(link, rel=1e-10)


@settings(max_examples=100)
@given(link=links)
def test_exact_times_of_any_link_give_back_both_prices(link):
    fitted = fit_link(sizes, times(link, sizes))
    # Rounding of the times hides a price that is a small part of every one of them
    largest_share = link.alpha_s / times(link, sizes)[0], 1 - link.alpha_s / times(link, sizes)[-1]
    for price, true, share in zip(fitted, link, largest_share):
        if share > 1e-4:
            assert price == pytest.approx(true, rel=1e-9 / share)
    assert isinstance(fitted, Link) and all(type(price) is float for price in fitted)


@pytest.mark.parametrize("seed", range(10))
def test_both_prices_survive_noise_of_5_percent_which_plain_least_squares_does_not(seed):
    n = np.repeat(sizes, 5).astype(float)
    noisy = np.array(times(LINK, n)) * (1 + 0.05 * np.random.default_rng(seed).standard_normal(len(n)))
    fitted = fit_link(n, noisy)
    # 85 times, about half of which tell of either price: standard errors just below 1 %, and a bias of noise squared
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
def test_every_published_road_has_two_prices_of_which_the_quick_one_has_dearer_bytes(name):
    link, quick, source = PUBLISHED[name]
    for alpha_s, beta_s_per_byte in (link, quick):
        assert 1e-7 < alpha_s < 1e-3 and 1e9 < 1 / beta_s_per_byte < 1e12, "seconds and bytes, not others"
    assert quick.alpha_s < link.alpha_s / 5 and 1.999 * link.beta_s_per_byte <= quick.beta_s_per_byte < 3 * link.beta_s_per_byte
    assert "GB/s" in source
