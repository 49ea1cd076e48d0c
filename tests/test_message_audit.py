"""Tests of d2lpar.pages.message_audit: what goes from rank to rank by messages passes, and what goes past them is found."""

import threading

import pytest
import torch

from d2lpar import allreduce, try_devices
from d2lpar.collectives import (
    Meter,
    all_gather,
    allreduce_blocks,
    allreduce_naive,
    allreduce_ring,
    allreduce_tree,
    deliver,
    exchange,
    reduce_scatter,
)
from d2lpar.pages import broken
from d2lpar.pages.message_audit import AuditError, audit

pytestmark = pytest.mark.usefixtures("no_meter_is_left_on", "one_core")


def buffers(k, n=10, dtype=torch.float32):
    generator = torch.Generator().manual_seed(k)
    return [torch.randn(n, generator=generator).mul(50).to(dtype) for _ in range(k)]


def with_local_work(data):
    """Legal: copies, sums of what arrived, and a place of its own to arrive in, for each rank alone."""
    k = len(data)
    arrived = [[torch.empty_like(x) for _ in data] for x in data]
    parts = [[x.clone()] * k for x in data]
    for step in range(1, k):
        exchange(parts, [(r, (r + step) % k, step) for r in range(k)], add=False, into=arrived)
    for x, others in zip(data, arrived):
        x += sum(others[1:])


HONEST = [allreduce_naive, allreduce_tree, allreduce_ring, reduce_scatter, all_gather, broken.allreduce_whole,
          broken.allreduce_passing, with_local_work]


@pytest.mark.parametrize("algorithm", HONEST, ids=lambda algorithm: algorithm.__name__)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_what_goes_by_messages_passes_with_the_results_and_counts_of_an_ordinary_run(algorithm, k):
    audited, alone = buffers(k), buffers(k)
    meter = audit(algorithm, audited)
    with Meter(try_devices(k)) as expected:
        algorithm(alone)
    assert all(torch.equal(x, y) for x, y in zip(audited, alone))
    assert sorted(meter.messages) == sorted(expected.messages) and meter.num_rounds == expected.num_rounds


@pytest.mark.parametrize("data", [
    [torch.full((3,), float("nan")), torch.ones(3)],
    [torch.tensor([0.0, -0.0, float("inf"), 1e30])] + [torch.ones(4) for _ in range(2)],
    buffers(3, dtype=torch.uint8), buffers(3, dtype=torch.bfloat16), buffers(3, dtype=torch.complex64),
    [x.conj() for x in buffers(2, dtype=torch.complex64)], [x[::2] for x in buffers(3)], [torch.tensor(2.0), torch.tensor(3.0)],
    [torch.ones(0), torch.ones(0)]], ids=lambda data: f"{data[0].dtype} {tuple(data[0].shape)}")
def test_an_honest_ring_passes_with_any_numbers_also_nan_and_with_gaps_between_them(data):
    assert audit(allreduce_ring, data).num_rounds == 2 * (len(data) - 1)


# Ways past the meter. Each leaves the right sums, in the same bits on all ranks, after the messages of the ring


def zeros_around_a_ring(data):
    allreduce_ring([torch.zeros_like(x) for x in data])


def by_numpy(data):
    zeros_around_a_ring(data)
    total = sum(x.numpy().copy() for x in data)
    for x in data:
        x.numpy()[:] = total


def in_a_thread(data):
    thread = threading.Thread(target=allreduce, args=(data,))
    thread.start()
    thread.join()
    zeros_around_a_ring(data)


def by_messages_that_carry_a_sum_made_behind(data):
    total = sum(data)
    copies = [total.clone() / len(data) for _ in data]
    allreduce_ring(copies)
    for x, copy in zip(data, copies):
        x.copy_(copy)


def by_a_message_that_arrives_elsewhere(data):
    """The parts of ranks 0 and 1 are exchanged for those of ranks 2 and 3: the moves name the wrong ranks."""
    parts = [[data[2]], [data[3]], [data[0]], [data[1]]]
    for source in (1, 2, 3):
        exchange(parts, [(source, 0, 0)], add=True)
    for target in (1, 2, 3):
        exchange(parts, [(0, target, 0)], add=False)


def by_the_last_rank_alone(data, reads=0):
    """Honest but for one rank, which reads the sum at rank 0 instead of waiting for it."""
    whole = [[x] for x in data]
    for source in range(1, len(data)):
        exchange(whole, [(source, 0, 0)], add=True)
    for target in range(1, len(data) - 1):
        exchange(whole, [(0, target, 0)], add=False)
    data[-1].copy_(data[reads])


def by_what_was_sent_to_another(data):
    """The same, but read at rank 1, which has it by a message."""
    by_the_last_rank_alone(data, reads=1)


def without_any_message(data):
    allreduce(data)


CHEATS = [broken.allreduce_behind, by_numpy, in_a_thread, by_messages_that_carry_a_sum_made_behind,
          by_a_message_that_arrives_elsewhere, by_the_last_rank_alone, by_what_was_sent_to_another, without_any_message]


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_what_goes_past_the_messages_is_found_and_the_data_are_as_the_first_run_left_them(cheat):
    audited, alone = buffers(4), buffers(4)
    cheat(alone)
    assert all(torch.allclose(x, sum(buffers(4))) for x in alone), "it must look right"
    with pytest.raises(AuditError, match="rank [0-3] (sends rank [0-3]|ends with) values that no message brought it"):
        audit(cheat, audited)
    assert all(torch.equal(x, y) for x, y in zip(audited, alone))


# What cannot be followed, and what is refused


def test_messages_without_rounds_are_refused_in_words():
    with pytest.raises(AuditError, match="messages in rounds, but one from rank 1 to rank 0 was sent without a round"):
        audit(allreduce_blocks, buffers(3))


def test_messages_that_depend_on_the_numbers_are_refused_in_words():
    def only_what_is_not_zero(data):
        exchange([[x] for x in data], [(r, 0, 0) for r in range(1, 3) if data[r].any()][:1], add=True)

    with pytest.raises(AuditError, match="with different values, different messages are sent"):
        audit(only_what_is_not_zero, [torch.zeros(2), torch.zeros(2), torch.ones(2)])


def with_more_rounds_each_time():
    runs = []

    def longer(data):
        runs.append(1)
        for _ in runs:
            allreduce_ring(data)

    return longer


def with_a_count_that_is_added_at_the_end():
    runs = []

    def counting(data):
        runs.append(1)
        allreduce_ring(data)
        for x in data:
            x += len(runs)

    return counting


def with_a_count_that_is_only_sent():
    runs = []

    def counting(data):
        runs.append(1)
        allreduce_ring(data)
        exchange([[torch.tensor([len(runs)])] for _ in data], [(0, 1, 0)], add=True)

    return counting


@pytest.mark.parametrize("made", [with_more_rounds_each_time, with_a_count_that_is_added_at_the_end,
                                  with_a_count_that_is_only_sent],
                         ids=lambda made: made.__name__)
def test_an_algorithm_that_is_another_in_a_second_run_is_not_accused_of_reading(made):
    data, alone = buffers(3), buffers(3)
    made()(alone)
    with pytest.raises(AuditError, match="with the same values, a second run differs from the first: it keeps a state"):
        audit(made(), data)
    assert all(torch.equal(x, y) for x, y in zip(data, alone))


def test_rounds_from_several_threads_are_refused_in_words():
    def rings(data):
        for quarter in zip(*(x.tensor_split(4) for x in data)):
            thread = threading.Thread(target=allreduce_ring, args=(list(quarter),))
            thread.start()
            thread.join()  # the next one may get its number

    alone, audited = buffers(3), buffers(3)
    rings(alone)
    with pytest.raises(AuditError, match="several threads begin rounds"):
        audit(rings, audited)
    assert all(torch.equal(x, y) for x, y in zip(audited, alone))


@pytest.mark.parametrize("second, words", [((0, 1), "rank 0 sends two messages"), ((0, 2), "rank 0 sends two messages"),
                                           ((2, 1), "rank 1 receives two messages")])
def test_a_round_in_which_a_rank_sends_or_receives_twice_is_refused_in_words(second, words):
    def said_to_be_one_round(data):
        exchange([[x] for x in data], [(0, 1, 0)], add=True)
        deliver(*second, data[second[0]], data[second[1]], add=True, round=0)

    with pytest.raises(AuditError, match=f"in round 1 {words}"):
        audit(said_to_be_one_round, buffers(3))


def test_a_first_run_that_resizes_the_tensors_is_refused_in_words():
    with pytest.raises(AuditError, match="has a different shape after the run"):
        audit(lambda data: data[0].resize_(3), buffers(2))


@pytest.mark.parametrize("run", [1, 2, 3])
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_an_error_comes_through_and_leaves_the_numbers_of_the_first_run(run, error):
    runs = []

    def fails(data):
        runs.append(len(data))
        allreduce_ring(data)
        if len(runs) == run:
            raise error("lost")

    data, summed = buffers(2), buffers(2)
    allreduce_ring(summed)
    with pytest.raises(error, match="lost"):
        audit(fails, data)
    assert len(runs) == run and all(torch.equal(x, y) for x, y in zip(data, summed)) and Meter.on is None


def test_nothing_is_run_under_another_meter_or_with_what_no_collective_takes():
    data = buffers(2)
    with Meter(try_devices(2)), pytest.raises(RuntimeError, match="another meter"):
        audit(allreduce_ring, data)
    for wrong in ([data[0], data[0]], [data[0], data[1].double()]):
        with pytest.raises(ValueError):
            audit(allreduce_ring, wrong)
    assert all(torch.equal(x, y) for x, y in zip(data, buffers(2)))


@pytest.mark.gpu
def test_devices_may_differ_from_each_other():
    devices = [*try_devices(3), torch.device("cpu")]
    data = [x.to(d) for x, d in zip(buffers(4), devices)]
    assert audit(allreduce_ring, data).num_rounds == 6
    with pytest.raises(AuditError):
        audit(broken.allreduce_behind, data)
