"""How many updates does a larger batch save? `python book/lab/batch_sizes.py` trains LeNet to a target.

For each batch size, a grid of learning rates, each with three seeds. A run ends at the first evaluation at which
the test accuracy reaches the target, and its number of updates is stored in `d2lpar/pages/stored/batch_sizes.jsonl`.
All runs together take about twenty minutes on one core; if they are stopped, the same command resumes them.
"""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from d2lpar import evaluate_accuracy, get_params, load_data_fashion_mnist
from d2lpar.data import provenance
from d2lpar.models import lenet_params
from d2lpar.scratch import sgd, shard_backward
from d2lpar.timing import describe_machine
from records import run_missing

COMMAND = "python book/lab/batch_sizes.py"
STORED = Path(__file__).resolve().parents[2] / "d2lpar" / "pages" / "stored" / "batch_sizes.jsonl"
NUM_TRAIN, NUM_TEST = 3072, 1024  # six times 512: every batch size divides it, so no minibatch is a partial one
TARGET, MAX_EPOCHS = 0.7, 24
SEEDS = range(3)
BATCH_SIZES, RATES = (8, 32, 128, 512), (0.02, 0.04, 0.08, 0.16, 0.32)
FIRST_LOOK, RATIO, PIECE = 8, 1.15, 128


def updates_to_target(batch_size: int, lr: float, seed: int) -> dict[str, Any]:
    """Train LeNet, and look at the test images after 8 updates, and then whenever there are 15% more.

    `seed` is that of the weights and of the order of the images.

    Returns:
        `updates` at the first look at which `accuracy` is at least the target; None if it is not after all epochs, or
        if a parameter is no number any more, and then the accuracy is that of the last look.
    """
    with redirect_stdout(StringIO()):
        train_iter, test_iter = load_data_fashion_mnist(batch_size, NUM_TRAIN, NUM_TEST, seed)
    test_iter.batch_size = PIECE
    params = get_params(lenet_params(seed=seed), torch.device("cpu"))
    step, look, accuracy = 0, FIRST_LOOK, 0.0
    for _ in range(MAX_EPOCHS):
        for X, y in train_iter:
            # in pieces that stay in a core's cache, one after another: the same gradient, sooner
            for A, c in zip(X.split(PIECE), y.split(PIECE)):
                shard_backward(A, c, params)
            sgd(params, lr, len(y))
            step += 1
            if step == look:
                look = max(look + 1, round(look * RATIO))
                accuracy = evaluate_accuracy(params, test_iter)
                if accuracy >= TARGET:
                    return {"updates": step, "accuracy": accuracy}
                if not all(p.isfinite().all() for p in params):
                    return {"updates": None, "accuracy": accuracy}
    return {"updates": None, "accuracy": accuracy}


def plan() -> list[dict[str, Any]]:
    """The arguments of all runs."""
    return [{"batch_size": n, "lr": lr, "seed": seed} for seed in SEEDS for n in BATCH_SIZES for lr in RATES]


def main() -> None:
    """Run what of the plan is not stored yet."""
    about = {"command": COMMAND, "machine": describe_machine(), "data": provenance(NUM_TRAIN, NUM_TEST),
             "target": TARGET, "max_epochs": MAX_EPOCHS}
    run_missing(STORED, about, plan(), updates_to_target, num_processes=1)


if __name__ == "__main__":
    main()
