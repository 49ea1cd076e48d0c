"""The shared code of a book on data-parallel training: what a chapter teaches, and what several chapters use.

A name is looked up in its module when it is first used, so that a rank in a process of its own, which needs one
function, does not wait for plotting and data.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if "IPython" in sys.modules:  # a notebook, where d2l may plot before any module of ours is loaded
    from d2lpar import compat as compat

if TYPE_CHECKING:  # never run: this is for editors, so that they know the signatures
    from d2lpar.collectives import allreduce as allreduce
    from d2lpar.data import load_data_fashion_mnist as load_data_fashion_mnist
    from d2lpar.data_parallel import DataParallel as DataParallel
    from d2lpar.devices import describe_devices as describe_devices
    from d2lpar.devices import run_on_devices as run_on_devices
    from d2lpar.devices import try_devices as try_devices
    from d2lpar.processes import RankGroup as RankGroup
    from d2lpar.processes import run_ranks as run_ranks
    from d2lpar.scratch import evaluate_accuracy as evaluate_accuracy
    from d2lpar.scratch import get_params as get_params
    from d2lpar.scratch import split_batch as split_batch
    from d2lpar.scratch import train as train
    from d2lpar.scratch import train_batch as train_batch

_HOMES = {
    "DataParallel": "data_parallel",
    "RankGroup": "processes",
    "allreduce": "collectives",
    "describe_devices": "devices",
    "evaluate_accuracy": "scratch",
    "get_params": "scratch",
    "load_data_fashion_mnist": "data",
    "run_on_devices": "devices",
    "run_ranks": "processes",
    "split_batch": "scratch",
    "train": "scratch",
    "train_batch": "scratch",
    "try_devices": "devices",
}
__all__ = list(_HOMES)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
