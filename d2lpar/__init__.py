"""The shared code of a book on data-parallel training: what a chapter teaches, and what several chapters use."""

from d2lpar import compat as compat  # before anyone plots with d2l
from d2lpar.collectives import allreduce
from d2lpar.data import load_data_fashion_mnist
from d2lpar.devices import describe_devices, run_on_devices, try_devices
from d2lpar.scratch import evaluate_accuracy, get_params, split_batch, train, train_batch

__all__ = [
    "allreduce",
    "describe_devices",
    "evaluate_accuracy",
    "get_params",
    "load_data_fashion_mnist",
    "run_on_devices",
    "split_batch",
    "train",
    "train_batch",
    "try_devices",
]
