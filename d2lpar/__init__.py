"""Data-parallel training, from scratch and concisely, on any number of devices that a machine has or has not.

`import d2lpar as dp` is enough: each name is loaded when it is first used. What a reader takes along, as the book goes:

Devices and data: try_devices, describe_devices, run_on_devices, set_seed, load_data_fashion_mnist
One step: lenet, lenet_params, loss, LeNet, resnet18, initialize; one_worker, distance, same_bits; get_params,
    allreduce, split_batch, sgd, train_batch, train_batch_threads, evaluate_accuracy, train; DataParallel,
    evaluate_accuracy_gpus, train_data_parallel
The sum: Meter, allreduce_tree, allreduce_ring
Larger batches: accumulate_gradients, linear_lr, warmup_lr, SyncBatchNorm, convert_batchnorm
Processes: run_ranks, RankGroup, rank_device, ring_allreduce, OwnDDP, count_right_on_ranks, watch, diagnose,
    check_feed

`help(dp.allreduce)` says what one of them does. What only the pages use, such as `dp.show`, is in `d2lpar.pages.names`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # never run: this is for editors, so that they know the signatures
    from d2lpar.base.devices import describe_devices as describe_devices
    from d2lpar.base.devices import run_on_devices as run_on_devices
    from d2lpar.base.devices import set_seed as set_seed
    from d2lpar.base.devices import try_devices as try_devices
    from d2lpar.data import load_data_fashion_mnist as load_data_fashion_mnist
    from d2lpar.diagnosis.compare import diagnose as diagnose
    from d2lpar.diagnosis.feed import check_feed as check_feed
    from d2lpar.diagnosis.scripts import watch as watch
    from d2lpar.larger_batches.accumulation import accumulate_gradients as accumulate_gradients
    from d2lpar.larger_batches.batchnorm import SyncBatchNorm as SyncBatchNorm
    from d2lpar.larger_batches.batchnorm import convert_batchnorm as convert_batchnorm
    from d2lpar.larger_batches.schedules import linear_lr as linear_lr
    from d2lpar.larger_batches.schedules import warmup_lr as warmup_lr
    from d2lpar.one_step.concise import evaluate_accuracy_gpus as evaluate_accuracy_gpus
    from d2lpar.one_step.concise import train_data_parallel as train_data_parallel
    from d2lpar.one_step.data_parallel import DataParallel as DataParallel
    from d2lpar.one_step.models import LeNet as LeNet
    from d2lpar.one_step.models import initialize as initialize
    from d2lpar.one_step.models import lenet as lenet
    from d2lpar.one_step.models import lenet_params as lenet_params
    from d2lpar.one_step.models import loss as loss
    from d2lpar.one_step.models import resnet18 as resnet18
    from d2lpar.one_step.scratch import allreduce as allreduce
    from d2lpar.one_step.scratch import evaluate_accuracy as evaluate_accuracy
    from d2lpar.one_step.scratch import get_params as get_params
    from d2lpar.one_step.scratch import sgd as sgd
    from d2lpar.one_step.scratch import split_batch as split_batch
    from d2lpar.one_step.scratch import train as train
    from d2lpar.one_step.scratch import train_batch as train_batch
    from d2lpar.one_step.scratch import train_batch_threads as train_batch_threads
    from d2lpar.one_step.yardstick import distance as distance
    from d2lpar.one_step.yardstick import one_worker as one_worker
    from d2lpar.one_step.yardstick import same_bits as same_bits
    from d2lpar.processes.ddp import OwnDDP as OwnDDP
    from d2lpar.processes.evaluation import count_right_on_ranks as count_right_on_ranks
    from d2lpar.processes.launch import RankGroup as RankGroup
    from d2lpar.processes.launch import run_ranks as run_ranks
    from d2lpar.processes.ranks import rank_device as rank_device
    from d2lpar.processes.ranks import ring_allreduce as ring_allreduce
    from d2lpar.sums.collectives import allreduce_ring as allreduce_ring
    from d2lpar.sums.collectives import allreduce_tree as allreduce_tree
    from d2lpar.sums.messages import Meter as Meter

_NAMES = {  # as in d2lpar.pages.names
    "base.devices": "try_devices describe_devices run_on_devices set_seed",
    "data": "load_data_fashion_mnist",
    "one_step.models": "lenet lenet_params loss LeNet resnet18 initialize",
    "one_step.yardstick": "one_worker distance same_bits",
    "one_step.scratch": "train get_params allreduce split_batch sgd train_batch train_batch_threads "
                        "evaluate_accuracy",
    "one_step.data_parallel": "DataParallel",
    "one_step.concise": "evaluate_accuracy_gpus train_data_parallel",
    "sums.messages": "Meter",
    "sums.collectives": "allreduce_tree allreduce_ring",
    "larger_batches.accumulation": "accumulate_gradients",
    "larger_batches.schedules": "linear_lr warmup_lr",
    "larger_batches.batchnorm": "SyncBatchNorm convert_batchnorm",
    "processes.launch": "run_ranks RankGroup",
    "processes.ranks": "rank_device ring_allreduce",
    "processes.ddp": "OwnDDP",
    "processes.evaluation": "count_right_on_ranks",
    "diagnosis.compare": "diagnose",
    "diagnosis.feed": "check_feed",
    "diagnosis.scripts": "watch",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = {"plot": "pages.plot"}  # named in full by those who look for more


def __dir__() -> list[str]:
    return sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("d2lpar")
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if not name.startswith("_"):
        from d2lpar.pages.names import HOMES

        if name in HOMES:
            return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
