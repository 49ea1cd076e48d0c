"""What would be wrong in silence is refused before anything is changed; for all else Python's and PyTorch's words do.

Each row of the table is silent without its check, or stops half way: a number that is wrong, NaN that spreads, a tensor
that is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from d2lpar.batchnorm import combine_moments
from d2lpar.collectives import deliver, exchange
from d2lpar.concise import count_right, evaluate_accuracy_gpus, train_data_parallel
from d2lpar.cost import Link, fit_link, halving_s, hierarchical_halving_s, hierarchical_ring_s, naive_s, ring_s, tree_s
from d2lpar.data import Batches, load_data_fashion_mnist, provenance
from d2lpar.data_parallel import DataParallel, gather, scatter
from d2lpar.larger_batches import accumulate_gradients, linear_lr, warmup_lr
from d2lpar.launch import RankGroup
from d2lpar.models import LeNet, lenet_params
from d2lpar.scratch import (
    allreduce,
    distance,
    evaluate_accuracy,
    get_params,
    one_worker,
    same_bits,
    sgd,
    split_batch,
    train,
    train_batch,
    train_batch_threads,
)

pytestmark = pytest.mark.usefixtures("one_core", "small_data")
CPU, LINK = torch.device("cpu"), Link(1.0, 1.0)


def images(**changed: object) -> dict:
    X = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    return {"X": X, "y": torch.arange(6)} | changed


def step(**changed: object) -> dict:
    return {**images(), "replicas": [get_params(lenet_params(), CPU) for _ in range(2)], "devices": [CPU] * 2, "lr": 0.1} | changed


def worker(**changed: object) -> dict:
    return {**images(**changed), "params": get_params(lenet_params(), CPU), "lr": 0.1}


def accuracy_of(X: torch.Tensor, y: torch.Tensor) -> float:
    return evaluate_accuracy(lenet_params(), [(X, y)])


def aliases() -> list:
    params = get_params(lenet_params(), CPU)
    return [params, [p.to(CPU) for p in params]]


def crossed() -> list:
    first, second = get_params(lenet_params(), CPU), get_params(lenet_params(), CPU)
    second[1] = first[5].detach()[:20].requires_grad_()  # a leaf, as every parameter
    return [first, second]


def one_nan(x: torch.Tensor, value: float = nan) -> torch.Tensor:
    x.view(-1)[-1] = value
    return x


def with_gradient() -> list:
    p = torch.ones(2)
    p.grad = torch.ones(2)
    return [p]


def one_move(*move: int, x: object = None, y: object = None) -> dict:
    return {"parts": [[torch.ones(3) if x is None else x]] * 2, "into": [[torch.zeros(3) if y is None else y] for _ in range(2)], "moves": [move or (0, 1, 0)], "add": True}


def moves_of(moves: list) -> dict:
    return {"parts": [[torch.ones(3), torch.ones(3)] for _ in range(4)], "moves": moves, "add": True}


def batch(**changed: object) -> dict:
    return {"net": nn.Flatten(), "X": torch.ones(4, 3, requires_grad=True), "y": torch.tensor([0, 1, 2, 0]), "num_microbatches": 2} | changed


def bytes_(**changed: object) -> dict:
    return {"images": torch.zeros(4, 1, 2, 2).byte(), "labels": torch.zeros(4).byte(), "batch_size": 2} | changed


NO_RATES, NO_COUNTS = (nan, inf, -0.1), (0, -1)
ROWS: dict[str, tuple[Callable, Callable[[], dict], str]] = {  # what is called, with what, and a part of the words
    **{f"{fn.__name__} with the rate {lr}": (fn, lambda lr=lr: step(lr=lr), f"learning rate must be a finite number of at least 0, got {lr!r}")
       for fn in (train_batch, train_batch_threads) for lr in NO_RATES},
    "sgd with NaN": (sgd, lambda: {"params": with_gradient(), "lr": nan, "batch_size": 2}, "learning rate"),
    "one worker with NaN": (one_worker, lambda: {**images(), "params": get_params(lenet_params(), CPU), "lr": nan}, "learning rate"),
    "train with NaN": (train, lambda: {"num_devices": 2, "batch_size": 2, "lr": nan, "num_epochs": 1}, "learning rate"),
    "train_data_parallel with NaN": (train_data_parallel, lambda: {"net": LeNet(), "num_devices": 2, "batch_size": 2, "lr": nan}, "learning rate"),
    **{f"sgd of {n} examples": (sgd, lambda n=n: {"params": with_gradient(), "lr": 1.0, "batch_size": n}, "batch_size must be") for n in NO_COUNTS},
    "replicas that are one": (train_batch, lambda: step(replicas=aliases()), "parameter 0 of replica 0 and parameter 0 of replica 1 share memory"),
    "replicas that are one in one place": (train_batch_threads, lambda: step(replicas=crossed()), "parameter 5 of replica 0 and parameter 1 of replica 1"),
    "one replica for two devices": (train_batch, lambda: step(replicas=[get_params(lenet_params(), CPU)]), "1 replicas for 2 devices"),
    "no examples": (train_batch, lambda: step(X=torch.ones(0, 1, 28, 28), y=torch.arange(0)), "no examples"),
    **{f"{name}: {what}": (fn, lambda given=given, changed=changed: given(**changed()), words)
       for name, fn, given in (("train_batch", train_batch, step), ("one_worker", one_worker, worker), ("evaluate_accuracy", accuracy_of, images))
       for what, changed, words in (
           ("NaN", lambda: {"X": one_nan(images()["X"])}, "images must be finite"),
           ("infinity", lambda: {"X": one_nan(images()["X"], inf)}, "images must be finite"),
           ("a label left out", lambda: {"y": torch.tensor([1, 2, -100, 3, 4, 5])}, "classes count from 0, got -100"),
           ("a label of NaN", lambda: {"y": torch.tensor([1.0, 2, nan, 3, 4, 5])}, "classes count from 0, got nan"),
           ("one-hot labels", lambda: {"y": torch.eye(10)[:6]}, r"one label per example, got shapes .* and \(6, 10\)"),
           ("labels as a column", lambda: {"y": torch.arange(6)[:, None]}, r"one label per example, got shapes .* and \(6, 1\)"))},
    "accuracy of labels as a column": (evaluate_accuracy_gpus, lambda: {"net": nn.Flatten(), "devices": [CPU], "data_iter": [
        (torch.ones(3, 6), torch.zeros(3, 1))]}, "one label per example"),
    **{f"accuracy of an image with {bad}, on {n} devices": (evaluate_accuracy_gpus, lambda bad=bad, n=n: {
        "net": nn.Flatten(), "devices": [CPU] * n, "data_iter": [(torch.tensor([[1.0, 0], [bad, 1]]), torch.zeros(2))]}, "^examples must be finite numbers")
       for bad in (nan, inf) for n in (1, 2)},
    "right ones among NaN": (count_right, lambda: {"net": nn.Flatten(), "X": torch.tensor([[nan, 1.0]]), "y": torch.zeros(1)}, "^examples must be finite"),
    "right ones among no images": (count_right, lambda: {"net": nn.Flatten(), "X": torch.ones(0, 6), "y": torch.zeros(8)}, r"got shapes \(0, 6\) and \(8,\)"),
    "ranks by a half": (RankGroup, lambda: {"world_size": 2.0}, r"^the number of ranks must be a whole number of at least 1, got 2\.0$"),
    "a sum of gradients that are not there": (allreduce, lambda: {"data": [torch.ones(2), None]}, r"entry 1 is None.*backward\(\)"),
    "more images than labels": (split_batch, lambda: {"X": torch.ones(4, 1), "y": torch.ones(3), "devices": [CPU]}, "got 4 and 3"),
    **{f"a distance {what}": (distance, lambda a=a, b=b: {"ours": a, "theirs": b}, words) for what, a, b, words in (
        ("without a tensor", [torch.ones(2)], [torch.ones(2), torch.ones(3)], "counterpart of the same shape"),
        ("that would broadcast", [torch.tensor(1.0)], [torch.ones(3)], "counterpart of the same shape"),
        ("of nothing", [], [], "counterpart of the same shape"),
        ("of imaginary parts", [torch.ones(2) * 1j], [torch.ones(2) * 2j], "complex"))},
    "the bits of nothing": (same_bits, lambda: {"replicas": [[], []]}, "counterpart"),
    "a move from the end": (exchange, lambda: one_move(0, -1, 0), "count from 0"),
    "a move that broadcasts": (exchange, lambda: one_move(x=torch.ones(1)), "does not fit into"),
    "a move that rounds": (exchange, lambda: one_move(y=torch.zeros(3).long()) | {"add": False}, "float32 .* does not fit into torch.int64"),
    "a move into truth values": (exchange, lambda: one_move(x=torch.ones(3).bool(), y=torch.ones(3).bool()), "boolean"),
    **{f"a round in which {what}": (exchange, lambda moves=moves: moves_of(moves), words) for what, moves, words in (
        ("a rank sends twice", [(0, 1, 0), (0, 2, 1)], "rank 0 sends two messages"),
        ("a rank receives twice", [(0, 2, 0), (1, 2, 1)], "rank 2 receives two messages"),
        ("the last one's place is what the first one reads", [(1, 0, 0), (0, 1, 0)], r"move \(1, 0, 0\) writes what move \(0, 1, 0\) reads"),
        ("a rank writes what the first one reads", [(0, 1, 0), (2, 0, 0)], r"move \(2, 0, 0\) writes what move \(0, 1, 0\) reads"),
        ("one reads what another writes", [(0, 1, 0), (1, 2, 0)], r"move \(0, 1, 0\) writes what move \(1, 2, 0\) reads"))},
    "a round in which two write into one place": (exchange, lambda: moves_of([(0, 1, 0), (2, 3, 0)]) | {"into": [[torch.zeros(4)[:3]] * 2] * 4}, "to the same memory"),
    "a delivery that broadcasts": (deliver, lambda: {"source": 0, "target": 1, "x": torch.ones(1), "into": torch.zeros(3), "add": True}, "does not fit"),
    "a delivery from nobody": (deliver, lambda: {"source": -1, "target": 1, "x": np.ones(3), "into": np.zeros(3), "add": True}, "from rank to rank"),
    "a line through one size": (fit_link, lambda: {"sizes_bytes": [3, 3], "seconds": [1.0, 2.0]}, "two different sizes"),
    **{f"a time of {t}": (fit_link, lambda t=t: {"sizes_bytes": [1, 2], "seconds": [1.0, t]}, "times above 0") for t in (0.0, -1.0, nan, inf)},
    **{f"a link with {what}": (Link, lambda alpha=alpha, beta=beta: {"alpha_s": alpha, "beta_s_per_byte": beta}, words) for what, alpha, beta, words in (
        ("a latency of NaN", nan, nan, "^alpha_s must be a finite number, got nan$"), ("an infinite latency", inf, 0, "^alpha_s must .* got inf$"),
        ("words", -1, "abc", "^beta_s_per_byte must be a finite number, got 'abc'$"))},
    **{f"{fn.__name__} of {size} bytes on {k}": (fn, lambda size=size, k=k: {"size_bytes": size, "k": k, "link": LINK}, words)
       for fn in (naive_s, tree_s, ring_s) for size, k, words in (
           (-1, 2, "^size_bytes must be a finite number of at least 0, got -1$"), (-inf, 2, "got -inf$"), (inf, 2, "got inf$"), (nan, 2, "got nan$"),
           (3, 0, "^the number of devices must be a whole number of at least 1, got 0$"), (3, 2.5, "got 2.5$"))},
    "the rate for a list of devices": (linear_lr, lambda: {"lr": 2, "k": []}, r"^k must be a finite number above 0, got \[\]$"),
    "a rate that rises to NaN": (warmup_lr, lambda: {"step": 1, "lr": 0.1, "k": nan, "warmup": 2, "num_updates": 3}, "^k must .* got nan$"),
    "a rate of NaN for more devices": (linear_lr, lambda: {"lr": nan, "k": 2}, "learning rate must be a finite number of at least 0, got nan"),
    "halving on six": (halving_s, lambda: {"size_bytes": 3, "k": 6, "link": LINK}, "power of two, got 6"),
    **{f"{fn.__name__} of a node too large": (fn, lambda: {"size_bytes": 3, "k": 4, "per_node": 8, "inside": LINK, "between": LINK}, "at most all 4 devices, got 8")
       for fn in (hierarchical_ring_s, hierarchical_halving_s)},
    "a warm-up that never ends": (warmup_lr, lambda: {"step": 1, "lr": 0.1, "k": 2, "warmup": 4, "num_updates": 3}, "between 0 and num_updates, which is 3, got 4"),
    **{f"update {n} of three": (warmup_lr, lambda n=n: {"step": n, "lr": 0.1, "k": 2, "warmup": 2, "num_updates": 3}, f"no update {n}") for n in (-1, 3)},
    "a mean per micro-batch": (accumulate_gradients, lambda: batch(loss=nn.CrossEntropyLoss()), r"one value per example, .*shape \(2,\), got \(\)"),
    "a label that does not count": (accumulate_gradients, lambda: batch(y=torch.tensor([0, 1, -100, 2])), "labels must not be negative, got -100"),
    "moments of a shard too few": (combine_moments, lambda: {"counts": [1, 2], "means": [torch.ones(2)], "squares": [torch.ones(2)] * 2}, "got 2, 1 and 2"),
    "moments that broadcast": (combine_moments, lambda: {"counts": [1, 2], "means": [torch.ones(2), torch.tensor(1.0)], "squares": [torch.ones(2)] * 2}, "the same shape"),
    "images that are no bytes": (Batches, lambda: bytes_(images=torch.ones(4, 1, 2, 2)), "uint8"),
    "fewer labels than images": (Batches, lambda: bytes_(labels=torch.zeros(3).byte()), "got 4 images of torch.uint8 and 3"),
    "batches of a negative size": (Batches, lambda: bytes_(batch_size=-1), "batch_size must be"),
    "all images but one": (load_data_fashion_mnist, lambda: {"batch_size": 2, "num_train": -1}, "num_train must be"),
    "no images": (provenance, lambda: {"num_train": 3, "num_test": 0}, "num_test must be"),
    "an iterator for all devices": (scatter, lambda: {"inputs": [torch.ones(2), iter([1, 2])], "devices": [CPU] * 2}, "share an iterator"),
    "a number for a list of devices": (DataParallel, lambda: {"module": nn.Flatten(), "device_ids": 2}, "device_ids must be a list, .* got 2"),
    "an output on one rank only": (gather, lambda: {"outputs": [torch.ones(2), None], "device": CPU}, "None on some ranks only"),
}


def tensors_in(arguments: dict) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(arguments) if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("what", ROWS)
def test_what_would_be_wrong_in_silence_is_refused_before_anything_is_changed(what: str) -> None:
    call, given, words = ROWS[what]
    arguments = given()
    before = [x.detach().clone() for x in tensors_in(arguments)]
    with pytest.raises(ValueError, match=words) as refusal:
        call(**arguments)
    assert "\n" not in str(refusal.value)
    assert all(torch.equal(x.nan_to_num(), old.nan_to_num()) for x, old in zip(tensors_in(arguments), before))


def test_what_is_right_is_taken() -> None:
    train_batch(**step())
    train_batch_threads(**step())
    exchange(**one_move())
    accumulate_gradients(**batch())
    Batches(**bytes_())
    assert warmup_lr(2, 0.1, 2, 2, 3) == 0.2 and fit_link([1, 2], [1.0, 2.0]).alpha_s == pytest.approx(0)
