"""Tests of d2lpar.diagnosis.feed: right loaders pass, and sampler bugs that people reported in 2026 are found."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from d2lpar import check_feed

DATA = TensorDataset(torch.arange(48.0)[:, None])


def loader(rank, world_size, n=48, **options):
    data = TensorDataset(torch.arange(float(n))[:, None])
    return DataLoader(data, 4, sampler=DistributedSampler(data, world_size, rank, seed=3, **options))


@pytest.mark.parametrize("make", [
    loader,
    lambda rank, world_size: DistributedSampler(DATA, seed=1),  # asks torch.distributed for the rank
    lambda rank, world_size: DataLoader(DATA, batch_sampler=BatchSampler(DistributedSampler(DATA, world_size, rank), 4, False)),
], ids=["a loader", "a sampler", "a batch sampler"])
def test_what_pytorch_gives_is_right(make):
    found = check_feed(make, set_epoch=set_epoch)
    assert found.ok and found.notes == {}, str(found)
    assert "48 examples" in str(found) and "1, 2, 3 ranks" in str(found)


def set_epoch(one, epoch):
    """Of the sampler, wherever it is."""
    for each in (one, getattr(one, "sampler", None), getattr(getattr(one, "batch_sampler", None), "sampler", None)):
        if hasattr(each, "set_epoch"):
            each.set_epoch(epoch)


def test_padding_and_a_dropped_tail_are_notes():
    padded = check_feed(lambda rank, k: loader(rank, k, n=47))
    assert padded.ok and list(padded.notes) == ["padded"] and "1 example is repeated on 2 ranks" in padded.notes["padded"]
    dropped = check_feed(lambda rank, k: loader(rank, k, n=47, drop_last=True))
    assert dropped.ok and list(dropped.notes) == ["incomplete last minibatch"]


def test_an_order_that_is_not_shuffled_is_a_note():
    found = check_feed(lambda rank, k: loader(rank, k, shuffle=False))
    assert found.ok and list(found.notes) == ["not shuffled"]


# six that were reported in 2026


def test_a_seed_times_the_rank_lets_each_rank_shuffle_differently():
    found = check_feed(lambda rank, k: torch.randperm(48, generator=torch.Generator().manual_seed(5 * rank))[rank::k].tolist(),
                       allow=["same order in every epoch"])
    assert list(found.faults) == ["repeated examples", "missing examples"]


def test_a_stride_before_the_tail_is_cut_gives_ranks_different_numbers_of_batches():
    def make(rank, k):  # the rank's part is cut to whole batches, and not the whole
        part = list(range(26))[rank::k]
        return [part[i:i + 3] for i in range(0, len(part) - 2, 3)]

    found = check_feed(make, ks=(1, 3))
    assert "3 on rank 0, 3 on rank 1, 2 on rank 2" in found.faults["different numbers of batches"]


def test_the_epoch_is_set_of_the_sampler_and_not_of_the_batch_sampler_that_draws():
    class Few:
        """Draws six examples for each epoch, by the epoch."""

        def __init__(self, rank, k):
            self.rank, self.k, self.epoch = rank, k, 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            order = torch.randperm(48, generator=torch.Generator().manual_seed(self.epoch)).tolist()[:6 * self.k]
            yield order[self.rank::self.k]

    def make(rank, k):
        return DataLoader(DATA, batch_sampler=Few(rank, k))

    def of_the_sampler(one, epoch):
        one.sampler.set_epoch(epoch) if hasattr(one.sampler, "set_epoch") else None

    wrong = check_feed(make, set_epoch=of_the_sampler)
    assert "same order in every epoch" in wrong.faults and "missing examples" in wrong.faults
    right = check_feed(make, set_epoch=lambda one, epoch: one.batch_sampler.set_epoch(epoch), allow=["missing examples"])
    assert right.ok


def test_a_loader_of_ones_own_without_shards_gives_all_ranks_the_same():
    found = check_feed(lambda rank, k: DataLoader(DATA, 4, shuffle=True, generator=torch.Generator().manual_seed(1)))
    assert "every rank goes through the same 48 examples on 2 ranks" in found.faults["same examples on all ranks"]


def test_the_local_rank_in_place_of_the_rank_is_right_on_one_machine_and_gives_half_the_data_on_two():
    def make(rank, k):
        return DistributedSampler(DATA, k, int(os.environ["LOCAL_RANK"]), seed=2)

    assert check_feed(make, ks=(1, 2)).ok
    found = check_feed(make, ks=(1, 4), per_machine=2)
    assert "24 of 48 examples are left out of an epoch on 4 ranks" in found.faults["missing examples"]


def test_steps_from_a_float_differ_by_one_between_ranks():
    def make(rank, k):
        part = list(range(50))[rank::k]
        return [part[i:i + 1] for i in range(round(len(part) / 2 + 0.26 * rank))]

    assert "different numbers of batches" in check_feed(make, ks=(1, 2), allow=["missing examples"]).faults


# how it looks


class Words(IterableDataset):
    def __init__(self, rank, k):
        self.mine = [f"word {i}" for i in range(40)][rank::k]

    def __iter__(self):
        return iter(random.sample(self.mine, len(self.mine)))


def test_examples_without_an_index_are_known_by_their_values():
    found = check_feed(lambda rank, k: DataLoader(Words(rank, k), 5))
    assert found.ok and found.notes == {} and "40 examples" in str(found)
    rows = [torch.arange(float(i), i + 3) for i in range(12)]
    found = check_feed(lambda rank, k: [{"image": torch.stack(rows[rank::k]), "label": torch.zeros(len(rows[rank::k]))}])
    assert "12 examples" in str(found) and "missing examples" not in found.faults


def test_augmentation_is_refused_where_examples_cannot_be_known_again_and_not_where_an_index_tells_them():
    class Augmented(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            return torch.rand(3)

    class Drawn:
        def __iter__(self):
            return iter([torch.rand(4, 3) for _ in range(3)])

    with pytest.raises(ValueError, match="changed at random, for example by augmentation"):
        check_feed(lambda rank, k: Drawn())
    assert check_feed(lambda rank, k: DataLoader(Augmented(), 2, sampler=DistributedSampler(range(12), k, rank))).ok


def test_ranks_have_random_numbers_of_their_own_and_the_callers_are_left_alone():
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    found = check_feed(lambda rank, k: DataLoader(DATA, 4, shuffle=True), ks=(2,), allow=["same examples on all ranks"])
    assert found.ok and not dist.is_initialized() and "RANK" not in os.environ
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        check_feed(loader, ks=(0,))
    with pytest.raises(ValueError, match="at least 1"):
        check_feed(loader, num_epochs=0)


def test_what_was_called_in_place_of_the_loop_is_said():
    def make(rank, world_size):
        return DistributedSampler(range(24), world_size, rank)

    assert "whether your loop calls set_epoch, as" in str(check_feed(make))
    assert "called" not in str(check_feed(make, set_epoch=lambda sampler, epoch: sampler.set_epoch(epoch)))
