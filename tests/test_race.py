"""Tests of `when_sent` and of d2lpar.pages.race: when buckets are sent, and what a step of the race takes."""

import pytest

from d2lpar.cost import Link, ring_s, when_sent
from d2lpar.pages.race import (
    BACKWARD_S,
    FORWARD_S,
    LAYER_BYTES,
    LAYERS,
    MOST_CAP_MB,
    WAYS,
    Race,
    race_html,
    race_step,
    race_words,
)

LINK = Link(0.25, 0.1)  # on two ranks, a bucket of S bytes takes 0.5 + 0.1 S seconds


@pytest.mark.parametrize("buckets, ready_s, size_bytes, last_s", [
    ([[1, 0]], [2.0, 1.0], [10, 20], 5.5),
    ([[1], [0]], [9.0, 1.0], [10, 20], 10.5),  # the first has arrived long before
    ([[1], [0]], [2.0, 1.0], [10, 20], 5.0),  # the second waits for the link
    ([[2, 1, 0]], [1.0, 9.0, 2.0], [10, 10, 10], 12.5),  # the one in the middle is the last to be ready
    ([[0, 1], [2]], [1.0, 4.0, 2.0], [10, 20, 30], 11.0),
])
def test_the_last_bucket_arrives_when_it_does_by_hand(buckets, ready_s, size_bytes, last_s):
    assert when_sent(buckets, ready_s, size_bytes, 2, LINK)[-1][1] == pytest.approx(last_s, rel=1e-12)


def test_buckets_are_sent_one_at_a_time_and_none_before_it_is_complete():
    ready, sizes = [4.0, 2.0, 3.0, 1.0], [10, 20, 5, 40]
    buckets = [[3, 2], [1], [0]]
    spans = when_sent(buckets, ready, sizes, 3, LINK)
    for bucket, (begin_s, end_s) in zip(buckets, spans):
        assert begin_s >= max(ready[i] for i in bucket)
        assert end_s - begin_s == pytest.approx(ring_s(sum(sizes[i] for i in bucket), 3, LINK), rel=1e-12)
    assert all(end_s <= begin_s for (_, end_s), (begin_s, _) in zip(spans, spans[1:]))


def test_both_ends_of_the_cap_are_the_other_two_ways():
    for ranks in (2, 5, 8):
        hooks, after = (race_step(Race(way, ranks)) for way in ("in hooks", "after backward"))
        assert race_step(Race(ranks=ranks, cap_mb=4)) == hooks and len(hooks.sent) == LAYERS
        assert race_step(Race(ranks=ranks, cap_mb=MOST_CAP_MB)) == after and len(after.sent) == 1
        assert after.waits_s == pytest.approx(ring_s(LAYERS * LAYER_BYTES, ranks, Link(0.2e-3, 0.5e-9)), rel=1e-9)


def test_with_fast_links_the_ranks_wait_for_the_last_bucket_only():
    step = race_step(Race("in hooks", 4, latency_ms=0, gb_per_s=100))
    assert step.waits_s == pytest.approx(ring_s(LAYER_BYTES, 4, Link(0, 1e-11)), rel=1e-6)
    assert step.step_s == pytest.approx(FORWARD_S + BACKWARD_S + step.waits_s)


def test_the_page_has_the_still_picture_of_all_three_ways_in_words():
    html = race_html()
    assert all(f"{way.capitalize()}: {race_words(Race(way))}" in html for way in WAYS)
    assert 'src="data:image/svg+xml;base64,' in html and 'class="race"' in html and len(html) < 150_000
