"""Data-parallel training, from scratch and concisely, on any number of devices, whether or not the machine has them.

`import d2lpar as dp` is enough. It provides the names that readers use in their own programs, in the order of the book:

Devices, data and time: try_devices, describe_devices, run_on_devices, load_data_fashion_mnist, History,
    Stopwatch, time_interleaved, time_each_repeat
One step: lenet, lenet_params, loss, LeNet, resnet18, initialize, init_weights; one_worker, distance, same_bits,
    equal_bits; get_params, allreduce, split_batch, sgd, train_batch, train_batch_threads, evaluate_accuracy, train
DataParallel: scatter, replicate, gather, DataParallel, count_right, evaluate_accuracy_gpus, train_data_parallel
Processes: run_ranks, RankGroup, RankError, rank_device, ring_allreduce, Traffic, OwnDDP, count_right_on_ranks, Memory,
    shard_parameters, save_checkpoint, newest_checkpoint, Cluster, ClusterError
Larger batches: accumulate_gradients, linear_lr, warmup_lr, SyncBatchNorm, convert_batchnorm
Collectives: Meter, cut, exchange, allreduce_naive, allreduce_tree, allreduce_ring, Link, naive_s, tree_s, ring_s,
    efficiency_at
Texts: paragraphs, pack, inputs_and_targets, GPT, token_backward, train_texts, flop_per_token
Is my script right: watch, diagnose, check_feed

`help` says what each of them does: `help(dp.allreduce)`. Everything else is reached through its module, such as
`dp.cost.PUBLISHED`. `import d2lpar.pages as book` provides what only the book's pages need, such as `book.show`.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# `python -m d2lpar` imports this file before it runs `__main__.py`, while sys.argv[0] is "-m". Whatever needs no
# PyTorch is answered here and ends the program. Under torchrun, only `__main__.py` answers: the ranks have started.
if (sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv):][:1] == ["d2lpar"]
        and "TORCHELASTIC_RUN_ID" not in os.environ):
    from d2lpar import _command_line as _command_line

    _command_line.answer(sys.argv[1:])

from d2lpar.batchnorm import SyncBatchNorm as SyncBatchNorm
from d2lpar.batchnorm import convert_batchnorm as convert_batchnorm
from d2lpar.checkpoints import newest_checkpoint as newest_checkpoint
from d2lpar.checkpoints import save_checkpoint as save_checkpoint
from d2lpar.checks import cut as cut
from d2lpar.collectives import Meter as Meter
from d2lpar.collectives import allreduce_naive as allreduce_naive
from d2lpar.collectives import allreduce_ring as allreduce_ring
from d2lpar.collectives import allreduce_tree as allreduce_tree
from d2lpar.collectives import exchange as exchange
from d2lpar.concise import count_right as count_right
from d2lpar.concise import evaluate_accuracy_gpus as evaluate_accuracy_gpus
from d2lpar.concise import train_data_parallel as train_data_parallel
from d2lpar.cost import Link as Link
from d2lpar.cost import efficiency_at as efficiency_at
from d2lpar.cost import naive_s as naive_s
from d2lpar.cost import ring_s as ring_s
from d2lpar.cost import tree_s as tree_s
from d2lpar.data import load_data_fashion_mnist as load_data_fashion_mnist
from d2lpar.data_parallel import DataParallel as DataParallel
from d2lpar.data_parallel import gather as gather
from d2lpar.data_parallel import replicate as replicate
from d2lpar.data_parallel import scatter as scatter
from d2lpar.ddp import OwnDDP as OwnDDP
from d2lpar.ddp import count_right_on_ranks as count_right_on_ranks
from d2lpar.devices import describe_devices as describe_devices
from d2lpar.devices import run_on_devices as run_on_devices
from d2lpar.devices import try_devices as try_devices
from d2lpar.larger_batches import accumulate_gradients as accumulate_gradients
from d2lpar.larger_batches import linear_lr as linear_lr
from d2lpar.larger_batches import warmup_lr as warmup_lr
from d2lpar.launch import RankError as RankError
from d2lpar.launch import RankGroup as RankGroup
from d2lpar.launch import run_ranks as run_ranks
from d2lpar.models import LeNet as LeNet
from d2lpar.models import init_weights as init_weights
from d2lpar.models import initialize as initialize
from d2lpar.models import lenet as lenet
from d2lpar.models import lenet_params as lenet_params
from d2lpar.models import loss as loss
from d2lpar.models import resnet18 as resnet18
from d2lpar.ranks import Traffic as Traffic
from d2lpar.ranks import rank_device as rank_device
from d2lpar.ranks import ring_allreduce as ring_allreduce
from d2lpar.scratch import allreduce as allreduce
from d2lpar.scratch import distance as distance
from d2lpar.scratch import equal_bits as equal_bits
from d2lpar.scratch import evaluate_accuracy as evaluate_accuracy
from d2lpar.scratch import get_params as get_params
from d2lpar.scratch import one_worker as one_worker
from d2lpar.scratch import same_bits as same_bits
from d2lpar.scratch import sgd as sgd
from d2lpar.scratch import split_batch as split_batch
from d2lpar.scratch import train as train
from d2lpar.scratch import train_batch as train_batch
from d2lpar.scratch import train_batch_threads as train_batch_threads
from d2lpar.sharding import Memory as Memory
from d2lpar.sharding import shard_parameters as shard_parameters
from d2lpar.texts import GPT as GPT
from d2lpar.texts import flop_per_token as flop_per_token
from d2lpar.texts import inputs_and_targets as inputs_and_targets
from d2lpar.texts import pack as pack
from d2lpar.texts import paragraphs as paragraphs
from d2lpar.texts import token_backward as token_backward
from d2lpar.texts import train_texts as train_texts
from d2lpar.timing import History as History
from d2lpar.timing import Stopwatch as Stopwatch
from d2lpar.timing import time_each_repeat as time_each_repeat
from d2lpar.timing import time_interleaved as time_interleaved

if TYPE_CHECKING:  # editors read these lines; at run time, `__getattr__` imports each name on first use
    from d2lpar.cluster import Cluster as Cluster
    from d2lpar.cluster import ClusterError as ClusterError
    from d2lpar.diagnosis.compare import diagnose as diagnose
    from d2lpar.diagnosis.feed import check_feed as check_feed
    from d2lpar.diagnosis.scripts import watch as watch

_ON_FIRST_USE = {"Cluster": "cluster", "ClusterError": "cluster",
                 "diagnose": "diagnosis.compare", "check_feed": "diagnosis.feed", "watch": "diagnosis.scripts"}


def __getattr__(name: str) -> Any:
    if name == "__version__":  # only now, as the package may lie here without being installed
        from importlib.metadata import version

        return version("d2lpar")
    if name in ("cluster", "diagnosis"):
        return import_module(f"d2lpar.{name}")
    if name in _ON_FIRST_USE:
        return getattr(import_module(f"d2lpar.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE, "cluster", "diagnosis"})
