"""The history of a training: shown while it runs, and what is left of it.

One small thing owns the clock, the progress bar, the line per epoch and the last line, so that a training loop is
nothing but a training loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from tqdm import tqdm

from d2lpar.base.devices import describe_devices, synchronize
from d2lpar.base.interrupts import uninterrupted

Batch = TypeVar("Batch")


class History:
    """Seconds and test accuracy of each epoch, in `epoch_s` and `accuracies`, shown as they come.

    Inside its `with` block, `clocked` goes through the batches of an epoch, and `add` ends the epoch. A block that
    ends without an error prints a last line.

    Args:
        num_epochs: how many epochs there will be, at least 1.
        num_batches: batches per epoch, at least 1.
        devices: for the clock, which waits for their work, and for the last line.
    """

    def __init__(self, num_epochs: int, num_batches: int, devices: Sequence[torch.device]) -> None:
        self.epoch_s: list[float] = []
        self.accuracies: list[float] = []
        self._num_epochs, self._num_batches, self._devices = num_epochs, num_batches, devices
        self._steps: Generator = (_ for _ in ())

    def __enter__(self) -> History:
        self._bar = tqdm(total=self._num_epochs * self._num_batches, unit="batch", file=sys.stdout, leave=False,
                         disable=not (in_notebook() or sys.stdout.isatty()), ncols=70)
        return self

    def clocked(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Go through `batches`, while the clock runs and the bar moves; an interrupt waits for the end of a step.

        Where a loop is left by `break`, it waits for the next epoch, or for the end of the `with` block.
        """
        self._steps.close()  # of an epoch that was left by `break`
        self._steps = self._go_through(batches)
        return self._steps

    def _go_through(self, batches: Iterable[Batch]) -> Generator[Batch]:
        start = time.perf_counter()
        for batch in batches:
            with uninterrupted():
                yield batch
            self._bar.update()
        synchronize(self._devices)
        self.epoch_s.append(time.perf_counter() - start)

    def add(self, accuracy: float) -> None:
        """End the epoch: print its line.

        Raises:
            RuntimeError: if `clocked` has not come to the end of the epoch.
        """
        if len(self.epoch_s) == len(self.accuracies):
            raise RuntimeError("nobody knows how long this epoch took: its loop over clocked() was left before the end")
        self.accuracies.append(accuracy)
        line = f"epoch {len(self.accuracies):2}: {self.epoch_s[-1]:.2f} s, test acc {accuracy:.3f}"
        tqdm.write(line, file=sys.stdout)

    def __exit__(self, kind: type | None, *error: object) -> None:
        self._bar.close()
        self._steps.close()  # of a step that has failed: an error remembers it, and interrupts would wait for it
        if kind is None and self.accuracies:
            mean_s = sum(self.epoch_s) / len(self.epoch_s)
            print(f"test acc {self.accuracies[-1]:.2f}, {mean_s:.1f} s/epoch")
            print(f"on {describe_devices(self._devices, shares=False)}")


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel, where figures and bars can change after they were shown."""
    return "IPython" in sys.modules and hasattr(sys.modules["IPython"].get_ipython(), "kernel")
