"""Tests of d2lpar.collectives: what a round moves, what a meter counts, and what is refused before anything is moved."""

import threading
import time

import numpy as np
import pytest
import torch

from d2lpar import run_on_devices, try_devices
from d2lpar.collectives import Message, Meter, deliver, exchange
from helpers.rounds import numbers, values
from helpers.waiting import until

pytestmark = pytest.mark.usefixtures("no_meter_is_left_on")


# By hand


def test_what_arrives_is_added_to_the_same_part_of_the_target():
    parts = numbers([1, 2], [4, 8], [16, 32])
    assert exchange(parts, [(0, 1, 1), (1, 2, 0)], add=True) is None
    assert values(parts) == [[1, 2], [4, 10], [20, 32]]


def test_what_arrives_replaces_the_same_part_of_the_target():
    parts = numbers([1, 2], [4, 8], [16, 32])
    exchange(parts, [(2, 0, 0), (0, 1, 1)], add=False)
    assert values(parts) == [[16, 2], [4, 2], [16, 32]]


@pytest.mark.parametrize("add, expected", [(True, [[40, 0], [0, 12], [0, 0]]), (False, [[32, 0], [0, 2], [0, 0]])])
def test_it_arrives_in_other_tensors_if_there_are_such_and_the_parts_stay(add, expected):
    parts, into = numbers([1, 2], [4, 8], [32, 16]), numbers([8, 0], [0, 10], [0, 0])
    exchange(parts, [(2, 0, 0), (0, 1, 1)], add=add, into=into)
    assert values(parts) == [[1, 2], [4, 8], [32, 16]]
    assert values(into) == expected


def test_with_a_place_to_arrive_in_two_ranks_can_swap_and_a_rank_can_send_to_itself():
    parts, into = numbers([1], [2], [4]), numbers([0], [0], [0])
    exchange(parts, [(0, 1, 0), (1, 0, 0), (2, 2, 0)], add=False, into=into)
    assert values(into) == [[2], [1], [4]]


def test_a_meter_counts_messages_by_round_and_bytes_by_rank():
    parts = [[torch.ones(3), torch.ones(5)] for _ in range(3)]
    with Meter(try_devices(3)) as meter:
        exchange(parts, [(0, 1, 0), (1, 2, 1)], add=True)
        deliver(2, 1, parts[2][0], parts[1][0], add=False)
        exchange(parts, [(2, 0, 1)], add=False)
    assert sorted(meter.messages[:2]) == [Message(0, 1, 12, 0), Message(1, 2, 20, 0)]  # at the same time
    assert meter.messages[2:] == [Message(2, 1, 12, None), Message(2, 0, 20, 1)]
    assert meter.num_rounds == 2
    assert [sorted(sizes) for sizes in meter.rounds] == [[12, 20], [20]]
    assert meter.sent_bytes == [12, 20, 32]


# What a round moves, and when


def test_chunks_that_touch_but_share_no_element_travel_in_one_round():
    buffers = [torch.arange(10.0), torch.arange(10.0) * 100]
    chunks = [x.tensor_split(3) for x in buffers]
    exchange(chunks, [(0, 1, 0), (1, 0, 1)], add=True)
    assert buffers[0].tolist() == [0, 1, 2, 3, 404, 505, 606, 7, 8, 9]
    assert buffers[1].tolist() == [0, 101, 202, 303, 400, 500, 600, 700, 800, 900]
    halves = torch.arange(4.0)
    exchange([[halves[:2]], [halves[2:]]], [(0, 1, 0)], add=True)
    assert halves.tolist() == [0, 1, 2, 4]


@pytest.mark.timeout(60)
def test_all_messages_of_a_round_are_under_way_at_the_same_time(monkeypatch):
    together = threading.Barrier(4, timeout=20)  # is broken, and raises, unless four threads wait for it
    monkeypatch.setattr(torch.Tensor, "copy_", lambda into, x: together.wait())
    exchange(numbers(*[[1]] * 8), [(r, r + 4, 0) for r in range(4)], add=False)


@pytest.mark.timeout(60)
def test_the_round_is_over_when_the_last_message_has_arrived(monkeypatch):
    arrived, copy = [], torch.Tensor.copy_

    def slowly(into, x):
        if x[0] == 3:
            until(lambda: arrived == [1])
            time.sleep(0.1)
        copy(into, x)
        arrived.append(x[0].item())

    monkeypatch.setattr(torch.Tensor, "copy_", slowly)
    exchange(numbers([3], [1], [0], [0]), [(0, 2, 0), (1, 3, 0)], add=False)
    assert arrived == [1, 3]


# What a meter counts


@pytest.mark.parametrize("x, size_bytes", [(torch.ones(3, 5, dtype=torch.float64), 120), (torch.ones(()), 4),
                                           (torch.ones(7, dtype=torch.bfloat16), 14), (torch.ones(0, 3), 0),
                                           (torch.ones(8, dtype=torch.uint8)[::2], 4)])
def test_a_message_is_as_large_as_its_elements(x, size_bytes):
    with Meter(try_devices(2)) as meter:
        deliver(0, 1, x, torch.zeros_like(x), add=True)
    assert meter.messages == [Message(0, 1, size_bytes, None)]


@pytest.mark.parametrize("add, expected", [(True, [2.0, 6.0]), (False, [1.0, 4.0])])
def test_arrays_are_delivered_and_counted_as_tensors_are(add, expected):
    x = np.array([1.0, 4.0])
    off, on = np.array([1.0, 2.0]), np.array([1.0, 2.0])
    deliver(0, 1, x, off, add=add)
    with Meter(try_devices(2)) as meter:
        deliver(0, 1, x, on, add=add)
    assert off.tolist() == on.tolist() == expected
    assert (meter.messages, len(meter.spans)) == ([Message(0, 1, 16, None)], 1)


def test_a_meter_counts_only_inside_its_block_and_goes_on_where_it_stopped():
    meter, parts = Meter(try_devices(2)), numbers([1], [2])
    exchange(parts, [(0, 1, 0)], add=True)
    for rounds in (1, 2):
        with meter as entered:
            exchange(parts, [(0, 1, 0)], add=True)
        exchange(parts, [(0, 1, 0)], add=True)
        deliver(0, 1, parts[0][0], parts[1][0], add=True)
        assert entered is meter
        assert (meter.num_rounds, len(meter.messages), len(meter.spans)) == (rounds, rounds, rounds)
    assert [m.round for m in meter.messages] == [0, 1]


def test_a_meter_is_off_again_after_an_error_which_it_lets_through():
    with pytest.raises(KeyError, match="lost"):
        with Meter(try_devices(2)):
            raise KeyError("lost")
    assert Meter.on is None
    with pytest.raises(ValueError):
        with Meter(try_devices(2)):
            exchange(numbers([1], [2]), [(0, 1, 0), (0, 1, 0)], add=True)
    assert Meter.on is None


def test_spans_last_as_long_as_a_rank_is_receiving(monkeypatch):
    copy, add = torch.Tensor.copy_, torch.Tensor.add_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda into, x: (time.sleep(0.02), copy(into, x))[1])
    monkeypatch.setattr(torch.Tensor, "add_", lambda into, x: (time.sleep(0.02), add(into, x))[1])
    parts = numbers([1], [2], [4], [8])
    start = time.perf_counter()
    with Meter(try_devices(4)) as meter:
        exchange(parts, [(0, 1, 0), (2, 3, 0)], add=True)
        exchange(parts, [(3, 0, 0)], add=False)
    seconds = time.perf_counter() - start
    assert sorted((span.rank, span.what) for span in meter.spans) == [(0, "copy"), (1, "add"), (3, "add")]
    assert all(0 <= span.start_s < span.end_s <= seconds for span in meter.spans)
    assert all(span.end_s - span.start_s >= 0.019 for span in meter.spans)
    assert meter.spans[-1].start_s >= max(span.end_s for span in meter.spans[:2]), "two rounds at the same time"


# What is refused


@pytest.mark.parametrize("moves, message", [
    ([(0, 1, 0), (2, 3, 0)], "rank 2 sends or receives, but the meter was made for 2 devices, and would not count it"),
    ([(1, 0, 0), (2, 3, 0)], "rank 2 .* 2 devices"), ([(0, 3, 0)], "rank 3 .* 2 devices"), ([(3, 1, 0)], "rank 3 .* 2 devices")])
def test_a_round_of_more_ranks_than_the_meter_counts_is_refused_before_anything_is_sent(moves, message):
    parts = numbers([1], [2], [4], [8])
    with Meter(try_devices(2)) as meter, pytest.raises(ValueError, match=message):
        exchange(parts, moves, add=True)
    assert values(parts) == [[1], [2], [4], [8]]
    assert (meter.num_rounds, meter.messages, meter.spans) == (0, [], [])
    with Meter(try_devices(1)), pytest.raises(ValueError, match="rank 1 sends or receives, but .* for 1 device, and"):
        exchange(parts, [(0, 1, 0)], add=True)
    exchange(parts, moves, add=True)


@pytest.mark.parametrize("source, target", [(2, 0), (0, 2)])
def test_a_message_of_a_rank_that_the_meter_does_not_count_is_refused_before_it_arrives(source, target):
    into = torch.zeros(2)
    with Meter(try_devices(2)) as meter, pytest.raises(ValueError, match="sends or receives, but the meter"):
        deliver(source, target, torch.ones(2), into, add=True)
    assert into.tolist() == [0, 0] and meter.messages == []


@pytest.mark.parametrize("number", [0, 2, -1, "0", True])
def test_a_round_that_has_not_begun_is_refused_before_anything_arrives(number):
    parts = numbers([1], [2])
    with Meter(try_devices(2)) as meter:
        if number != 0:
            exchange(parts, [(0, 1, 0)], add=True)
        with pytest.raises(ValueError, match=f"is not a round: the meter has begun {int(number != 0)}"):
            deliver(0, 1, parts[0][0], parts[1][0], add=True, round=number)
    assert values(parts) == [[1], [2 + (number != 0)]] and len(meter.messages) == (number != 0)


@pytest.mark.timeout(60)
def test_in_a_devices_own_thread_a_round_is_an_error_instead_of_waiting_forever():
    parts = numbers([1], [2])
    with pytest.raises(RuntimeError, match="own thread and would deadlock"):
        run_on_devices(lambda _: exchange(parts, [(0, 1, 0)], add=True), [0])
    assert values(parts) == [[1], [2]]


def test_a_second_meter_is_refused_and_the_first_goes_on():
    parts, second = numbers([1], [2]), Meter(try_devices(2))
    with Meter(try_devices(2)) as first:
        for other in (second, first):
            with pytest.raises(RuntimeError, match="another meter is on"):
                with other:
                    raise AssertionError("entered")
        assert Meter.on is first
        exchange(parts, [(0, 1, 0)], add=True)
    assert (len(first.messages), len(second.messages)) == (1, 0)
    with second:
        exchange(parts, [(0, 1, 0)], add=True)
    assert (len(first.messages), len(second.messages)) == (1, 1)


# What a GPU changes


@pytest.mark.gpu
def test_messages_travel_between_different_devices_and_are_metered_there():
    devices = [*try_devices(max(2, torch.cuda.device_count())), torch.device("cpu")]
    parts = [[torch.full((3,), float(r), device=d)] for r, d in enumerate(devices)]
    last = len(devices) - 1
    with Meter(devices) as meter:
        exchange(parts, [(0, last, 0)], add=True)
        exchange(parts, [(last, 1, 0)], add=False)
        exchange(parts, [(1, 0, 0)], add=True)
    assert [parts[r][0].tolist() for r in (0, 1, last)] == [[last] * 3] * 3
    assert [x.device for [x] in parts] == [x.device for x in (torch.empty(0, device=d) for d in devices)]
    assert meter.rounds == [[12]] * 3
    assert sorted(span.rank for span in meter.spans) == sorted([last, 1, 0])
    assert all(span.start_s <= span.end_s for span in meter.spans)
