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
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from filelock import FileLock, Timeout
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from d2lpar._rank import loopback
from d2lpar.checkpoints import UNFINISHED, newest_checkpoint, no_remains, save_checkpoint
from d2lpar.data import Batches, DataError, load_data_fashion_mnist
from d2lpar.data_parallel import DataParallel
from d2lpar.ddp import OwnDDP, count_right_on_ranks
from d2lpar.devices import set_seed, try_devices
from d2lpar.larger_batches import warmup_lr
from d2lpar.models import LeNet, initialize, loss, resnet18
from d2lpar.ranks import rank_device

STOPPED = 75  # the exit status after a SIGTERM: EX_TEMPFAIL of sysexits.h, "try again"
ON_RANKS = ("own", "ddp")
DECIDES_NOTHING = ("num_train", "num_test", "checkpoints", "save_every", "metrics", "timeout")  # the data have a digest
MAY_CHANGE = ("epochs", "ranks", "threads", "torch")  # between a checkpoint and the training that goes on from it

ABOUT = "Train a network on Fashion-MNIST, on one device or many, so that it can be killed at any moment and go on."
EPILOG = f"""\
two processes, each one restarted when one of them fails:
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
  torchrun --standalone --nproc-per-node=2 --max-restarts=3 -m d2lpar train \\
      --strategy ddp --checkpoints runs/first --save-every 20

SIGTERM or Ctrl-C lets all ranks finish their step and save; then each ends with status {STOPPED}, and torchrun with
its own. The second Ctrl-C is obeyed at once.
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
    if not 0 <= args.lr < inf or args.warmup < 0 or not 0 < args.timeout <= 10**9 or not 0 <= args.seed <= 10**9:
        raise Refused("--lr and --warmup must be finite and not negative, --timeout above 0, --seed not negative, and "
                      f"both at most {10**9}, got {args.lr}, {args.warmup}, {args.timeout} and {args.seed}")


def join(timeout_s: float) -> None:
    """Make this process one of torchrun's ranks, or a group of its own; blocks until all are there."""
    gpus, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if 0 < gpus < here:
        raise Refused(f"{here} ranks and {gpus} GPUs on this machine: set CUDA_VISIBLE_DEVICES= to train on the CPU")
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    elif os.getenv("TORCHELASTIC_MAX_RESTARTS", "0") != "0" and os.getenv("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise Refused("after a restart the ranks would meet in the store of their last life, and may hang: set "
                      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before torchrun")
    if os.getenv("WORLD_SIZE") == os.getenv("LOCAL_WORLD_SIZE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())  # nobody has to know this machine's name
    alone: Any = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("nccl" if gpus else "gloo", timeout=timedelta(seconds=timeout_s), **alone)


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """For each entry of `new` that `old` does not have as it is, words that say so."""
    return {key: f"{key} was {old.get(key)} and is {now}" for key, now in new.items() if old.get(key, ()) != now}


class Training:
    """One training, on this rank: what it has reached is in `step`, the number of updates, and in `state()`."""

    def __init__(self, args: argparse.Namespace, told_to_stop: Callable[[], bool] = lambda: False) -> None:
        self.told_to_stop = told_to_stop
        self.args, self.rank, self.ranks = args, dist.get_rank(), dist.get_world_size()
        self.talk: Any = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else None  # of the CPUs
        self.device, self.dtype = rank_device(), torch.float64 if args.float64 else torch.float32
        try:
            with redirect_stdout(sys.stdout if self.rank == 0 else io.StringIO()):
                self.train_set, self.test_set = load_data_fashion_mnist(args.batch_size, args.num_train, args.num_test)
        except (DataError, ValueError) as problem:
            raise Refused(str(problem)) from problem
        self.per_epoch, self.last = len(self.train_set), args.epochs * len(self.train_set)
        devices = max(self.ranks, args.devices or 1)
        if devices > (least := (len(self.train_set.labels) - 1) % args.batch_size + 1):
            raise Refused(f"a minibatch has {least} examples, fewer than the {devices} that share it")
        if args.warmup > self.last:
            raise Refused(f"a warm-up of {args.warmup} updates is longer than the training, which has {self.last}")
        self.plan = self.make_plan()
        self.check_same_on_all_ranks()
        set_seed(args.seed)  # so that a GPU too gives the same bits twice
        self.module = self.make_module().to(self.device, self.dtype)
        self.net = self.wrap()
        params, lr = self.module.parameters(), args.lr
        self.optimizer = torch.optim.Adam(params, lr) if args.optimizer == "adam" else torch.optim.SGD(params, lr, 0.9)
        self.step, self.epoch_loss = 0, 0.0
        self.seed_rank()

    def make_plan(self) -> dict[str, Any]:
        """What decides the training; a checkpoint of another one is refused."""
        digest = hashlib.sha256(self.train_set.images.numpy().tobytes() + self.train_set.labels.numpy().tobytes())
        return {name: value for name, value in vars(self.args).items() if name not in DECIDES_NOTHING} | {
            "images": len(self.train_set.labels), "data": digest.hexdigest()[:16], "device": self.device.type,
            "ranks": self.ranks, "threads": torch.get_num_threads(), "torch": str(torch.__version__)}

    def check_same_on_all_ranks(self) -> None:
        """Raise Refused, on all ranks, if one was started otherwise: they would train a patchwork, or wait for ever."""
        every: list[Any] = [None] * self.ranks
        dist.all_gather_object(every, vars(self.args) | self.plan, group=self.talk)
        for rank, theirs in enumerate(every):
            if odd := changes(every[0], theirs):
                raise Refused(f"rank {rank} was started otherwise than rank 0: {', '.join(odd.values())}")

    def make_module(self) -> nn.Module:
        """The network at its start, the same on all ranks."""
        if self.args.model == "lenet":
            return LeNet(self.args.seed)
        initialize(net := resnet18(10, width=self.args.width), self.args.seed)
        return net

    def wrap(self) -> nn.Module:
        """The network as it is called."""
        wrappers: dict[str, Callable] = {"own": OwnDDP, "ddp": DistributedDataParallel, "single": lambda net: net,
                                         "dataparallel": lambda net: DataParallel(net, try_devices(self.args.devices))}
        return wrappers[self.args.strategy](self.module)

    def seed_rank(self) -> None:
        """Let this rank's random numbers depend on the seed, the rank and the step."""
        torch.manual_seed((self.args.seed * 1000 + self.rank) * 10**6 + self.step)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """What is left of this epoch, whole minibatches: their order is a function of the seed and the epoch."""
        epoch, done = divmod(self.step, self.per_epoch)
        data, seed = self.train_set, self.args.seed * 10**6 + epoch
        return islice(Batches(data.images, data.labels, data.batch_size, seed), done, None)

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
        said = torch.tensor([self.backward(X, y), self.told_to_stop()], dtype=torch.float64)
        dist.all_reduce(said, group=self.talk)
        mean, stops = said.tolist()
        if not mean < inf:
            raise FloatingPointError(f"the loss of update {self.step + 1} is {mean}, so it is not made: take a smaller "
                                     "--lr, or a --warmup")
        self.optimizer.step()
        self.step += 1
        self.epoch_loss += mean * len(X)
        return mean, stops > 0

    def lr(self) -> float:
        """The learning rate of the next update: a straight line from a tenth, then the whole."""
        return warmup_lr(self.step, self.args.lr / 10, 10, self.args.warmup, self.last)

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, on any rank; its tensors are the training's own. Called by all ranks."""
        self.share_buffers()
        random: list[Any] = [None] * self.ranks  # only the CPU's: no GPU draws anything here
        dist.all_gather_object(random, torch.get_rng_state(), group=self.talk)
        return {"plan": self.plan, "step": self.step, "epoch_loss": self.epoch_loss, "random": random,
                "module": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def share_buffers(self) -> None:
        """Give all ranks rank 0's buffers: each has its own, as far as they were used."""
        for buffer in self.module.buffers():
            dist.broadcast(buffer, src=0)

    def restore(self, state: dict[str, Any]) -> None:
        """Begin where `state` was taken; the same state on all ranks."""
        self.step, self.epoch_loss = state["step"], state["epoch_loss"]
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.seed_rank()  # for another number of ranks
        if len(state["random"]) == self.ranks:
            torch.set_rng_state(state["random"][self.rank])

    def accuracy(self) -> float:
        """The share of the test images that are put into their class, each counted on one rank. Called by all."""
        self.share_buffers()
        mine = ((X.to(self.dtype), y) for X, y in islice(self.test_set, self.rank, None, self.ranks))
        right, count = count_right_on_ranks(self.module, mine)
        return right / count

    def check_replay(self, state: dict[str, Any]) -> None:
        """Compute the next gradient twice from `state`; RuntimeError if it differs in one bit. Ends at `state`."""
        twice, params = [], dict(self.module.named_parameters())
        self.net.train()
        for _ in range(2):
            self.restore(state)
            X, y = next(self.batches())
            twice.append(torch.autograd.grad(self.shard_loss(self.module, X, y), list(params.values())))
        first, again = ([x.cpu().numpy().tobytes() for x in gradients] for gradients in twice)  # NaN is NaN here
        if wrong := [name for name, a, b in zip(params, first, again) if a != b]:
            raise RuntimeError(f"rank {self.rank} computed the gradient of update {self.step + 1} twice from one "
                               f"state, and it differs in {', '.join(wrong)}: this machine is not to be trusted")
        if self.args.strategy == "ddp":  # its buckets are made anew after the first backward, with other sums
            self.backward(X, y)
        self.restore(state)

    def find_start(self) -> dict[str, Any]:
        """The state to begin at, the same on all ranks: the newest checkpoint's, or the start of a training."""
        start = copy.deepcopy(self.state())

        def look() -> tuple[str | None, dict[str, Any]]:
            path, state = newest_checkpoint(self.args.checkpoints) if self.args.checkpoints else (None, None)
            return (path.name, state) if path and state else (None, start)

        name, found = self.first_does("--checkpoints", look)
        changed = changes(found.get("plan", {}), self.plan)
        if other := [words for key, words in changed.items() if key not in MAY_CHANGE]:
            raise Refused(f"{name} is of another training: {', '.join(other)}. Take another --checkpoints")
        odd = [words for key, words in changed.items() if key != "epochs"]
        self.say(f"{self.args.strategy}, {self.ranks} rank{'s' * (self.ranks > 1)}: "
                 + (f"goes on from {name}" if name else "begins") + f", {found['step']} of {self.last} updates"
                 + f"; other bits than undisturbed: {', '.join(odd)}" * bool(odd))
        return found

    def first_does(self, option: str, what: Callable[[], Any]) -> Any:
        """What rank 0 gets by `what`, on all ranks; Refused, on all, where the option names what cannot be used."""
        told: list[Any] = [None, None]
        if self.rank == 0:
            try:
                told[0] = what()
            except (OSError, ValueError) as problem:
                told[1] = str(problem)
        dist.broadcast_object_list(told, src=0, group=self.talk)
        if told[1]:
            raise Refused(f"{option} cannot be used: {told[1]}")
        return told[0]

    @contextmanager
    def one_writer(self) -> Iterator[None]:
        """Keep others from writing into the folder of checkpoints, if there is one, in this block."""
        folder = Path(self.args.checkpoints or "")
        lock = FileLock(folder / "lock", timeout=5)  # seconds, in which the training before may come to its end

        def take() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire()
            except Timeout:
                raise OSError(f"another training writes into {folder}") from None
            with no_remains(folder):  # as each checkpoint is written
                (folder / UNFINISHED).touch()

        try:
            if self.args.checkpoints:
                self.first_does("--checkpoints", take)
            yield
        finally:
            lock.release()

    def fit(self) -> None:
        """Train to the end, from the newest checkpoint if there is one. Called by all ranks.

        Raises:
            Refused: if the checkpoint is of another training, or a path cannot be used.
            Stopped: after a step, when a rank was told to stop; what was reached is saved.
            FloatingPointError: for a loss that is NaN or infinite, before its update.
            RuntimeError: if a gradient computed twice from one state differs.
        """
        with self.one_writer():
            self.check_replay(self.find_start())
            self.train_on()

    def train_on(self) -> None:
        """Train from here to the end."""
        if self.args.metrics:
            self.first_does("--metrics", lambda: keep_metrics(self.args.metrics, self.step))
        path = (self.rank == 0 and self.args.metrics) or os.devnull
        bar = tqdm(total=self.last, initial=self.step, unit="step", leave=False, ncols=70,
                   disable=self.rank > 0 or not sys.stderr.isatty())
        with bar, open(path, "a", 1, "utf-8") as metrics:  # a line is written at once
            while self.step < self.last:
                began, seen = time.perf_counter(), 0
                for X, y in self.batches():
                    lr, (mean, stops) = self.lr(), self.take_step(X, y)
                    seen += len(X)
                    print(json.dumps({"step": self.step, "loss": mean, "lr": lr}), file=metrics)
                    bar.update()
                    if ended := self.step % self.per_epoch == 0:
                        rate = seen / (time.perf_counter() - began)
                        facts = {"step": self.step, "epoch": self.step // self.per_epoch, "accuracy": self.accuracy(),
                                 "loss": self.epoch_loss / len(self.train_set.labels), "images_per_s": round(rate)}
                        print(json.dumps(facts), file=metrics)
                        self.say("epoch {epoch:2}: loss {loss:.4f}, test acc {accuracy:.3f}, {images_per_s:,} images/s"
                                 .format(**facts))
                        self.epoch_loss = 0.0
                    if ended or stops or (self.args.save_every and self.step % self.args.save_every == 0):
                        self.save()
                    if stops and self.step < self.last:
                        raise Stopped(f"told to stop: {self.step} of {self.last} updates are made"
                                      + ", and kept" * bool(self.args.checkpoints))

    def save(self) -> None:
        """Write a checkpoint, if there is a folder for it. Called by all ranks."""
        if self.args.checkpoints:
            state = self.state()
            if self.rank == 0:
                save_checkpoint(self.args.checkpoints, self.step, state)

    def say(self, line: str) -> None:
        """Print a line, on rank 0, above the bar."""
        if self.rank == 0:
            tqdm.write(line)
            sys.stdout.flush()


def keep_metrics(path: str, step: int) -> None:
    """Of the lines of metrics in a file, keep those up to `step`: not of updates that were lost, or cut off by a kill.

    Raises:
        OSError: if it cannot be written.
        ValueError: if it holds something else, which stays.
    """
    file, kept = Path(path), ""
    if file.exists() and not file.is_file():
        raise OSError(f"{path} is no file")
    for line in file.read_text("utf-8").splitlines(True) if file.exists() else []:
        if whole := re.fullmatch(r'\{"step": (\d+).*\}\n', line):
            kept += line if int(whole[1]) <= step else ""
        elif not '{"step": '.startswith(line.strip()[:9]):
            raise ValueError(f"{path} holds something else than metrics: {line.strip()[:40]!r}")
    unfinished = Path(f"{path}.unfinished")
    unfinished.write_text(kept, "utf-8")
    unfinished.replace(file)


def refuse(message: str) -> NoReturn:
    """What a parser of options does with an error."""
    raise Refused(f"{message}; --help lists all options")


@record  # so that torchrun's report holds the traceback of the rank that failed first
def command(words: Sequence[str], agent: int) -> None:
    """`python -m d2lpar train` with these words behind it, on this rank of the agent that has this process ID."""
    parser = argparse.ArgumentParser(prog="python -m d2lpar train", description=ABOUT, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = refuse  # type: ignore[method-assign]
    add_options(parser)
    on_ranks, rank = "RANK" in os.environ, os.getenv("RANK", "0")
    terms: list[int] = []  # the signals that came

    def told(number: int, _: object) -> None:
        terms.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    try:
        args = parser.parse_args(words)
        check_options(args, int(os.getenv("WORLD_SIZE", "0")))
        join(args.timeout)
        Training(args, lambda: bool(terms) or (on_ranks and os.getppid() != agent)).fit()  # nobody may look after it
        dist.destroy_process_group()
    except (Refused, FloatingPointError) as why:
        if os.getenv("LOCAL_RANK", "0") != "0":
            end_after_others(terms)
        sys.exit(str(why))
    except Stopped as why:
        if rank == "0":
            print(why, flush=True)
        sys.exit(STOPPED)
    except RuntimeError as error:  # of a collective, as another rank was gone or did not come in time?
        if not on_ranks or not (isinstance(error, dist.DistError) or "gloo" in str(error).lower()):
            raise
        print(f"rank {rank} has lost another one: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        end_after_others(terms)


def end_after_others(terms: Sequence[int]) -> NoReturn:
    """End, but let another rank be the first, so that its words are read, and torchrun's report is of it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(0 if terms else 5)
    os._exit(1)  # the group may be broken: it cannot be left in order
