"""A training that survives: `python -m d2lpar train`, alone or on the ranks that `torchrun` starts.

The same seed and the same total batch give the same training by every strategy, up to rounding. The order of the
examples and the learning rate are functions of the step, so a checkpoint needs the step, and not their history.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from datetime import timedelta
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from d2lpar.base.devices import try_devices
from d2lpar.data.batches import Batches, load_data_fashion_mnist
from d2lpar.larger_batches.schedules import warmup_lr
from d2lpar.one_step.data_parallel import DataParallel
from d2lpar.one_step.models import LeNet, initialize, lenet_params, loss, resnet18
from d2lpar.one_step.yardstick import equal_bits
from d2lpar.processes.checkpoints import newest_checkpoint, save_checkpoint
from d2lpar.processes.ddp import OwnDDP
from d2lpar.processes.evaluation import count_right_on_ranks
from d2lpar.processes.ranks import rank_device

STOPPED = 75  # the exit status after a SIGTERM: EX_TEMPFAIL of sysexits.h, "try again"
ON_RANKS = ("own", "ddp")
MAY_CHANGE = ("epochs", "ranks", "threads", "torch")  # between a checkpoint and the training that goes on from it
SHARED_STORE = ("after a restart the ranks would meet in the store of their last life, and may hang: set "
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before torchrun")


ABOUT = "Train a network on Fashion-MNIST, on one device or many, so that it can be killed at any moment and go on."
EPILOG = f"""\
two processes, each one restarted when one of them fails:
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
  torchrun --standalone --nproc-per-node=2 --max-restarts=3 -m d2lpar train \\
      --strategy ddp --checkpoints runs/first --save-every 20

SIGTERM lets all ranks finish their step and save; then they end with status {STOPPED}.
The same command goes on from the newest checkpoint."""


class Refused(Exception):
    """What was asked for cannot be trained, or not gone on with; the message says why. Raised on all ranks."""


class Stopped(Exception):
    """A rank was told to stop, and all have; the message says where."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m d2lpar train`."""
    add = parser.add_argument
    add("--strategy", choices=("single", "dataparallel", *ON_RANKS), default="single",
        help="one worker; DataParallel in one process; on torchrun's ranks the book's own DDP, or PyTorch's (single)")
    add("--devices", type=int, metavar="K", help="for dataparallel: how many (2)")
    add("--model", choices=("lenet", "resnet18"), default="lenet", help="(lenet)")
    add("--width", type=int, help="for resnet18: channels of the first stage (16; published: 64)")
    add("--batch-size", type=int, default=256, metavar="B", help="of all ranks together (256)")
    add("--epochs", type=int, default=5, help="(5)")
    add("--optimizer", choices=("sgd", "adam"), default="sgd", help="sgd has a momentum of 0.9 (sgd)")
    add("--lr", type=float, default=0.05, help="learning rate (0.05)")
    add("--warmup", type=int, default=0, metavar="STEPS", help="updates until the rate is full (0)")
    add("--flip", action="store_true", help="mirror each training image with probability 1/2, drawn by its rank")
    add("--seed", type=int, default=0, help="of the start, the order and the flips (0)")
    add("--num-train", type=int, metavar="N", help="training images (a laptop's worth; all: 60000)")
    add("--num-test", type=int, metavar="N", help="test images (all: 10000)")
    add("--float64", action="store_true", help="compute in double precision")
    add("--checkpoints", metavar="DIR", help="save here after each epoch; if there is a checkpoint, go on from it")
    add("--save-every", type=int, metavar="STEPS", help="and after so many updates each")
    add("--metrics", metavar="FILE", help="a line of JSON for each step and each epoch")
    add("--timeout", type=float, default=120, metavar="S", help="how long a rank waits for the others (120)")


def check_options(args: argparse.Namespace, ranks: int) -> None:
    """Fill in what depends on other options; raise Refused for what does not go together."""
    if args.strategy in ON_RANKS and ranks == 0:
        raise Refused(f"{args.strategy} trains on ranks: torchrun --standalone --nproc-per-node=2 -m d2lpar train "
                      f"--strategy {args.strategy} ...")
    if args.strategy not in ON_RANKS and ranks > 1:
        raise Refused(f"{args.strategy} is one process, and torchrun has started {ranks}: leave torchrun out, or take "
                      "--strategy ddp")
    for name, needs, there, usual in (("devices", "--strategy dataparallel", args.strategy == "dataparallel", 2),
                                      ("width", "--model resnet18", args.model == "resnet18", 16),
                                      ("save_every", "--checkpoints DIR", args.checkpoints is not None, None)):
        if not there and getattr(args, name) is not None:
            raise Refused(f"--{name.replace('_', '-')} needs {needs}")
        if there and getattr(args, name) is None:
            setattr(args, name, usual)
    for name in ("devices", "width", "batch_size", "epochs", "save_every", "num_train", "num_test"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise Refused(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if not 0 <= args.lr < float("inf") or args.warmup < 0 or not args.timeout > 0:
        raise Refused("--lr must be finite and not negative, --warmup at least 0 and --timeout above 0, got "
                      f"{args.lr}, {args.warmup} and {args.timeout}")


def join(timeout_s: float) -> None:
    """Make this process one of torchrun's ranks, or a group of its own; blocks until all are there."""
    gpus, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if 0 < gpus < here:
        raise Refused(f"{here} ranks and {gpus} GPUs on this machine: set CUDA_VISIBLE_DEVICES= to train on the CPU")
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    elif os.getenv("TORCHELASTIC_MAX_RESTARTS", "0") != "0" and os.getenv("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise Refused(SHARED_STORE)
    backend, limit = "nccl" if gpus else "gloo", timedelta(seconds=timeout_s)
    if "RANK" in os.environ:
        dist.init_process_group(backend, timeout=limit)
    else:
        dist.init_process_group(backend, timeout=limit, store=dist.HashStore(), rank=0, world_size=1)


class Training:
    """One training, on this rank: what it has reached is in `step`, the number of updates, and in `state()`."""

    def __init__(self, args: argparse.Namespace, asked: Sequence[bool] = ()) -> None:
        self.asked = asked  # not empty once this rank was told to stop
        self.args, self.rank, self.ranks = args, dist.get_rank(), dist.get_world_size()
        self.talk: Any = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else None  # of the CPUs
        self.device, self.dtype = rank_device(), torch.float64 if args.float64 else torch.float32
        with nullcontext() if self.rank == 0 else redirect_stdout(io.StringIO()):
            self.train_set, self.test_set = load_data_fashion_mnist(args.batch_size, args.num_train, args.num_test)
        self.per_epoch = len(self.train_set)
        self.last = args.epochs * self.per_epoch
        devices = max(self.ranks, args.devices or 1)
        if devices > (least := (len(self.train_set.labels) - 1) % args.batch_size + 1):
            raise Refused(f"a minibatch has {least} examples, fewer than the {devices} that share it")
        if args.warmup > self.last:
            raise Refused(f"a warm-up of {args.warmup} updates is longer than the training, which has {self.last}")
        self.plan = self.make_plan()
        self.module = self.make_module().to(self.device, self.dtype)
        self.net = self.wrap()
        params = self.module.parameters()
        self.optimizer = (torch.optim.Adam(params, args.lr) if args.optimizer == "adam" else
                          torch.optim.SGD(params, args.lr, momentum=0.9))
        self.step, self.epoch_loss = 0, 0.0
        self.seed_rank()

    def make_plan(self) -> dict[str, Any]:
        """What decides the training; a checkpoint of another one is refused."""
        args = self.args
        digest = hashlib.sha256(self.train_set.images.numpy().tobytes() + self.train_set.labels.numpy().tobytes())
        told = ("model", "width", "strategy", "devices", "batch_size", "optimizer", "lr", "warmup", "flip", "seed",
                "float64", "epochs")
        return {name: getattr(args, name) for name in told} | {
            "images": len(self.train_set.labels), "data": digest.hexdigest()[:16], "device": self.device.type,
            "ranks": self.ranks, "threads": torch.get_num_threads(), "torch": str(torch.__version__)}

    def make_module(self) -> nn.Module:
        """The network at its start, the same on all ranks."""
        if self.args.model == "resnet18":
            net = resnet18(10, width=self.args.width)
            initialize(net, self.args.seed)
            return net
        net = LeNet()
        net.params = nn.ParameterList(lenet_params(seed=self.args.seed))
        return net

    def wrap(self) -> nn.Module:
        """The network as it is called."""
        if self.args.strategy == "dataparallel":
            return DataParallel(self.module, try_devices(self.args.devices))
        if self.args.strategy == "own":
            return OwnDDP(self.module)
        if self.args.strategy == "ddp":
            return DistributedDataParallel(self.module)
        return self.module

    def seed_rank(self) -> None:
        """Let this rank's random numbers depend on the seed, the rank and the step."""
        torch.manual_seed((self.args.seed * 1000 + self.rank) * 10**6 + self.step)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """What is left of this epoch, whole minibatches: their order is a function of the seed and the epoch."""
        epoch, done = divmod(self.step, self.per_epoch)
        images, labels = self.train_set.images, self.train_set.labels
        return islice(Batches(images, labels, self.args.batch_size, self.args.seed * 10**6 + epoch), done, None)

    def shard_loss(self, net: nn.Module, X: Tensor, y: Tensor) -> Tensor:
        """The loss summed over this rank's shard of a minibatch; draws the flips."""
        X, y = (A.tensor_split(self.ranks)[self.rank].to(self.device) for A in (X.to(self.dtype), y))
        if self.args.flip:
            flipped = (torch.rand(len(X)) < 0.5).to(self.device)
            X = torch.where(flipped.view(-1, 1, 1, 1), X.flip(3), X)
        return loss(net(X), y).sum()

    def backward(self, X: Tensor, y: Tensor) -> float:
        """Give each parameter its gradient, that of the mean over the minibatch; this rank's part of the mean."""
        self.net.train()
        self.optimizer.zero_grad()
        part = self.shard_loss(self.net, X, y) / len(X)
        (part * self.ranks).backward()  # the ranks are averaged
        return part.item()

    def take_step(self, X: Tensor, y: Tensor) -> tuple[float, bool]:
        """One update on the minibatch (X, y): its mean loss, and whether a rank is to stop; the same on all ranks."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr()
        said = torch.tensor([self.backward(X, y), len(self.asked)], dtype=torch.float64)
        dist.all_reduce(said, group=self.talk)
        mean, stops = said.tolist()
        if not mean < float("inf"):
            raise FloatingPointError(f"the loss of update {self.step + 1} is {mean}, so it is not made: take a smaller "
                                     "--lr, or a --warmup")
        self.optimizer.step()
        self.step += 1
        self.epoch_loss += mean * len(X)
        return mean, stops > 0

    def lr(self) -> float:
        """The learning rate of the next update: a straight line from a tenth, then the whole."""
        return warmup_lr(self.step, self.args.lr / 10, 10, self.args.warmup, self.last)

    def state(self) -> dict[str, Any] | None:
        """All that the next step depends on, on rank 0; None on the others. Called by all."""
        for buffer in self.module.buffers():  # each rank has its own, as far as they were used
            dist.broadcast(buffer, src=0)
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state()
        every: list[Any] | None = [None] * self.ranks if self.rank == 0 else None
        dist.gather_object(random, every, group=self.talk)
        return None if every is None else {
            "plan": self.plan, "step": self.step, "epoch_loss": self.epoch_loss, "random": every,
            "module": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Begin where `state` was taken; the same state on all ranks."""
        self.step, self.epoch_loss = state["step"], state["epoch_loss"]
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        if len(state["random"]) != self.ranks:
            self.seed_rank()
            return
        random = state["random"][self.rank]
        torch.set_rng_state(random["cpu"])
        if "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"])

    def accuracy(self) -> float:
        """The share of the test images that are put into their class, each counted on one rank. Called by all."""
        for buffer in self.module.buffers():
            dist.broadcast(buffer, src=0)
        mine = ((X.to(self.dtype), y) for X, y in islice(self.test_set, self.rank, None, self.ranks))
        right, count = count_right_on_ranks(self.module, mine)
        return right / count

    def check_replay(self, state: dict[str, Any]) -> None:
        """Compute the next gradient twice from `state`; RuntimeError if it differs in one bit. Ends at `state`."""
        twice = []
        X, y = next(self.batches())
        self.net.train()
        params = list(self.module.parameters())
        for _ in range(2):
            self.restore(state)
            twice.append(torch.autograd.grad(self.shard_loss(self.module, X, y), params))
        wrong = [name for (name, _), a, b in zip(self.module.named_parameters(), *twice) if not equal_bits(a, b)]
        if wrong:
            raise RuntimeError(f"rank {self.rank} computed the gradient of update {self.step + 1} twice from one "
                               f"state, and it differs in {', '.join(wrong)}: do not trust this machine's memory")
        if self.args.strategy == "ddp":  # its buckets are made anew after the first backward, with other sums
            self.backward(X, y)
        self.restore(state)

    def find_start(self) -> dict[str, Any]:
        """The state to begin at, the same on all ranks: the newest checkpoint's, or the start of a training."""
        path, state = (newest_checkpoint(self.args.checkpoints) if self.rank == 0 and self.args.checkpoints
                       else (None, None))
        at_start = self.state()
        told: list[Any] = [state or copy.deepcopy(at_start), path and path.name]
        dist.broadcast_object_list(told, src=0, group=self.talk)
        found, name = told
        changed = {key: f"{key} was {found['plan'].get(key)} and is {now}" for key, now in self.plan.items()
                   if found["plan"].get(key) != now}
        if other := [words for key, words in changed.items() if key not in MAY_CHANGE]:
            raise Refused(f"{name} is of another training: {', '.join(other)}. Take another --checkpoints")
        odd = [words for key, words in changed.items() if key != "epochs"]
        self.say(f"{self.args.strategy}, {self.ranks} rank{'s' * (self.ranks > 1)}: "
                 + (f"goes on from {name}" if name else "begins") + f", {found['step']} of {self.last} updates"
                 + f"; other bits than undisturbed: {', '.join(odd)}" * bool(odd))
        return found

    def fit(self) -> None:
        """Train to the end, from the newest checkpoint if there is one. Called by all ranks.

        Raises:
            Refused: if the checkpoint is of another training.
            Stopped: after a step, when a rank was told to stop; what was reached is saved.
            FloatingPointError: for a loss that is NaN or infinite, before the update.
            RuntimeError: if a gradient computed twice from one state differs.
            OSError: if a checkpoint cannot be written; the one before stays.
        """
        start = self.find_start()
        self.check_replay(start)
        metrics = Metrics(self.args.metrics if self.rank == 0 else None, self.step)
        bar = tqdm(total=self.last, initial=self.step, unit="step", leave=False, ncols=70,
                   disable=self.rank > 0 or not sys.stderr.isatty())
        with bar, metrics:
            while self.step < self.last:
                began, seen = time.perf_counter(), 0
                for X, y in self.batches():
                    lr, (mean, stops) = self.lr(), self.take_step(X, y)
                    seen += len(X)
                    metrics.add(step=self.step, loss=mean, lr=lr)
                    bar.update()
                    if ended := self.step % self.per_epoch == 0:
                        rate = seen / (time.perf_counter() - began)
                        epoch, mean = self.step // self.per_epoch, self.epoch_loss / len(self.train_set.labels)
                        accuracy, self.epoch_loss = self.accuracy(), 0.0
                        metrics.add(step=self.step, epoch=epoch, loss=mean, accuracy=accuracy, images_per_s=round(rate))
                        self.say(f"epoch {epoch:2}: loss {mean:.4f}, test acc {accuracy:.3f}, {rate:,.0f} images/s")
                    if ended or stops or (self.args.save_every and self.step % self.args.save_every == 0):
                        self.save()
                    if stops and self.step < self.last:
                        raise Stopped(f"told to stop: {self.step} of {self.last} updates are made"
                                      + ", and kept" * bool(self.args.checkpoints))

    def save(self) -> None:
        """Write a checkpoint, if there is a folder for it. Called by all ranks."""
        if self.args.checkpoints is None:
            return
        state = self.state()
        if state is not None:
            try:
                save_checkpoint(self.args.checkpoints, self.step, state)
            except OSError as problem:
                problem.add_note(f"update {self.step} is not saved; the checkpoints before it are whole")
                raise

    def say(self, line: str) -> None:
        """Print a line, on rank 0, above the bar."""
        if self.rank == 0:
            tqdm.write(line)
            sys.stdout.flush()


class Metrics:
    """A line of JSON for each thing that is added; lines behind `step`, of updates that were lost, are taken out."""

    def __init__(self, path: str | None, step: int) -> None:
        self.file = open(path or os.devnull, "a+", 1, "utf-8")  # noqa: SIM115
        self.file.seek(0)
        kept = []
        for line in self.file:
            with suppress(ValueError):  # cut off when its rank was killed
                kept += [line] if json.loads(line)["step"] <= step else []
        if path:
            self.file.truncate(0)
        self.file.writelines(kept)

    def add(self, **facts: float) -> None:
        """Write a line."""
        self.file.write(json.dumps(facts) + "\n")

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def command(words: Sequence[str]) -> None:
    """`python -m d2lpar train` with these words behind it, on this rank."""
    parser = argparse.ArgumentParser(prog="python -m d2lpar train", description=ABOUT, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    args, rank = parser.parse_args(words), int(os.environ.get("RANK", 0))
    asked = []  # whether somebody has sent a SIGTERM
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    try:
        check_options(args, int(os.environ.get("WORLD_SIZE", 0)))
        join(args.timeout)
        training = Training(args, asked)
        training.fit()
        dist.destroy_process_group()
    except (Refused, FloatingPointError) as why:
        time.sleep(rank > 0)  # the first that ends makes torchrun end all
        sys.exit(str(why) if rank == 0 else 1)
    except Stopped as why:
        if rank == 0:
            print(why, flush=True)
        sys.exit(STOPPED)
    except RuntimeError as error:
        if "RANK" not in os.environ or not has_lost_a_rank(error):
            raise
        print(f"rank {rank} has lost another one: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(0 if asked else 5)  # so that torchrun's report is of the rank that failed first
        os._exit(1)  # the group is broken: it may not be left in order


def has_lost_a_rank(error: RuntimeError) -> bool:
    """Whether a collective has failed, as another rank was gone or did not come in time."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()
