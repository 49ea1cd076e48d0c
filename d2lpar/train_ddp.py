r"""Train a network with DistributedDataParallel, and resume after a kill at any moment.

python train_ddp.py  # one rank
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # a new store after each restart
torchrun --standalone --nproc-per-node=2 --max-restarts=3 train_ddp.py
torchrun --nnodes=2 --nproc-per-node=2 --rdzv-id=1 --rdzv-backend=c10d \
    --rdzv-endpoint=HOST:29500 train_ddp.py  # the same command on both machines
srun --cpus-per-task=$SLURM_CPUS_PER_TASK torchrun --nnodes=2 --nproc-per-node=4 \
    --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$(hostname):29500 \
    train_ddp.py  # in a job with --nodes=2 --ntasks-per-node=1 --cpus-per-task=N

The same command resumes from the newest checkpoint, and ends with the same bits as an
uninterrupted run. After SIGTERM or Ctrl-C, all ranks finish their update and save. The
file `stopped`, next to the checkpoints, then says how far they came. Only rank 0 reads
and writes checkpoints, so several machines need a folder that they share.

Tested with PyTorch 2.15 on the CPUs of one machine; never run on several machines, nor
with NCCL. Change `make_net` and `load_data`, which holds all data in memory.
"""
import os

AGENT = os.getppid()  # torchrun's agent; it may be gone before the slow imports end

import argparse
import copy
import json
import signal
import sys
import time
from contextlib import nullcontext, redirect_stdout
from datetime import timedelta
from math import inf, isfinite
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock, Timeout
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from d2lpar import load_data_fashion_mnist, newest_checkpoint, save_checkpoint
from d2lpar.checkpoints import digest_of
from d2lpar.data import DataError

TIMEOUT = timedelta(seconds=120)  # how long a rank waits for the others
WARM_UP = 20  # updates until the learning rate is --lr
RESTARTS = int(os.getenv("TORCHELASTIC_MAX_RESTARTS", "0"))
STOPPED = 75  # the exit status of sysexits.h for "try again"
DECIDES = ("batch_size", "lr", "seed", "accumulate", "clip", "bf16")  # define the run


class Refused(Exception):
    """The run cannot start or resume; the message says why."""


def make_net():  # yours goes here
    """A new network."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(3136, 128), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(128, 10))


def load_data(folder):  # and your data here
    """Images and labels of the training set, and of the test set, all in memory."""
    if folder is None:
        with redirect_stdout(None):  # it would print a line on each rank
            return [(x.images, x.labels) for x in load_data_fashion_mnist(1)]
    from torchvision.datasets import FashionMNIST

    sets = [FashionMNIST(folder, is_train) for is_train in (True, False)]
    return [(x.data[:, None], x.targets) for x in sets]


def augment(X):
    """Mirror each image with probability 1/2; each rank draws for its own images."""
    return X.where(torch.rand(len(X), 1, 1, 1) < 0.5, X.flip(3))


def learning_rate(step, args):
    """The learning rate after `step` updates: a warm-up, then constant."""
    return args.lr * min(1, (step + 1) / WARM_UP)


def minibatch(data, step, args):
    """This rank's shard of the next minibatch; which one depends on `step` alone."""
    images, labels = data
    epoch, place = divmod(step, len(labels) // args.batch_size)
    generator = torch.Generator().manual_seed(10**6 * args.seed + epoch)
    order = torch.randperm(len(labels), generator=generator)
    whole = order[args.batch_size * place:args.batch_size * (place + 1)]
    mine = whole.tensor_split(dist.get_world_size())[dist.get_rank()]
    return augment(images[mine] / 255), labels[mine]


def backward(net, X, y, args):
    """Accumulate the mean loss's gradient; return this rank's share of the loss."""
    device, share = next(net.parameters()).device, 0.0
    pieces = zip(X.tensor_split(args.accumulate), y.tensor_split(args.accumulate))
    for i, (X, y) in enumerate(pieces, 1):
        X, y = X.to(device), y.to(device)
        with nullcontext() if i == args.accumulate else net.no_sync():
            with torch.autocast(device.type, torch.bfloat16, enabled=args.bf16):
                scores = net(X)
            loss = F.cross_entropy(scores.float() if args.bf16 else scores, y,
                                   reduction="sum") / args.batch_size
            (loss * dist.get_world_size()).backward()  # DDP averages over the ranks
        share += loss.item()
    return share


def update(net, optimizer, X, y, step, args, told_to_stop):
    """Make one update; return its loss, its gradient's norm, and whether to stop."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, args)
    optimizer.zero_grad()
    said = [backward(net, X, y, args), told_to_stop()]
    said = torch.tensor(said, dtype=torch.float64)
    dist.all_reduce(said)  # on CPU tensors, with gloo; all ranks stop together
    loss, stops = said.tolist()
    norm = nn.utils.clip_grad_norm_(net.parameters(), args.clip or inf).item()
    if not isfinite(loss + norm):  # the same on all ranks
        raise Refused(f"update {step + 1} was not applied: its loss is {loss}, and the "
                      f"norm of its gradient is {norm}. Try a smaller --lr or --clip")
    optimizer.step()
    return loss, norm, stops > 0


@torch.no_grad()
def evaluate(net, data, device):
    """Mean loss and accuracy; each example counts once, on one rank."""
    for buffer in net.buffers():  # BatchNorm's statistics are each rank's own
        dist.broadcast(buffer, 0)
    net.eval()
    sums = torch.zeros(3, dtype=torch.float64)  # loss, correct, total
    mine = [x.tensor_split(dist.get_world_size())[dist.get_rank()] for x in data]
    for X, y in zip(*(x.split(256) for x in mine)):
        scores, y = net(X.to(device) / 255), y.to(device)
        loss = F.cross_entropy(scores, y, reduction="sum")
        sums += torch.tensor([loss, (scores.argmax(1) == y).sum(), len(y)])
    net.train()
    dist.all_reduce(sums)
    loss, right, total = sums.tolist()
    return loss / total, right / total


def state_of(net, optimizer, step, plan):
    """Everything that the next update depends on, except functions of the step."""
    random, is_on_gpu = [None] * dist.get_world_size(), net.device.type == "cuda"
    of_gpu = [torch.cuda.get_rng_state()] if is_on_gpu else []
    dist.all_gather_object(random, [torch.get_rng_state(), *of_gpu])
    return {"plan": plan, "step": step, "net": net.module.state_dict(),
            "optimizer": optimizer.state_dict(), "random": random}


def restore(net, optimizer, state, args):
    """Put this rank back to where `state` was saved."""
    net.module.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    optimizer.zero_grad()
    rank, ranks, step = dist.get_rank(), dist.get_world_size(), state["step"]
    torch.manual_seed(10**9 * args.seed + 10**6 * rank + step)  # seeds the GPU, too
    if len(state["random"]) == ranks:  # a different number of ranks draws new ones
        torch.set_rng_state(state["random"][rank][0])
        for of_gpu in state["random"][rank][1:]:
            torch.cuda.set_rng_state(of_gpu)


def on_rank_0(do, *args):
    """Call a function on rank 0; all ranks return its result, or raise Refused."""
    told = [None, None]
    if dist.get_rank() == 0:
        try:
            told[0] = do(*args)
        except OSError as error:  # a full disk, for example
            told[1] = f"the checkpoint folder cannot be used: {error}"
        except ValueError as error:
            told[1] = str(error)
    dist.broadcast_object_list(told, 0)
    if told[1] is not None:
        raise Refused(told[1])
    return told[0]


def changes(old, new, words="{} was {} and is now {}"):
    """What in `new` differs from `old`, in words."""
    return ", ".join(words.format(key, old.get(key), value)
                     for key, value in new.items() if old.get(key) != value)


def agree(args, net, device):
    """The data, and what defines the run and its bits; Refused unless all agree."""
    data, problem, run = [], None, {name: getattr(args, name) for name in DECIDES}
    shapes = {name: tuple(x.shape) for name, x in net.state_dict().items()}
    run |= {"network": digest_of(shapes), "device": device.type}
    bits = {"ranks": dist.get_world_size(), "threads": torch.get_num_threads(),
            "torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(),
            "gpu": torch.cuda.get_device_name() if device.type == "cuda" else None}
    try:
        data = load_data(args.data)
        run["data"], n = digest_of(data[0]), len(data[0][1])
        least = dist.get_world_size() * args.accumulate
        if not least <= args.batch_size <= n:
            raise ValueError(f"--batch-size must be at least {least}, one example per "
                             "rank and backward pass, and at most the number of "
                             f"training examples, {n}; it is {args.batch_size}")
    except (DataError, ImportError, OSError, RuntimeError, ValueError) as error:
        problem = " ".join(str(error).split())
    every = [None] * dist.get_world_size()
    same = run | {"epochs": args.epochs, "save_every": args.save_every}
    dist.all_gather_object(every, (problem, same, bits))
    for rank, (problem, theirs, _) in enumerate(every):
        if problem or theirs != every[0][1]:
            odd = changes(every[0][1], theirs, "{0} is {2}, but {1} on rank 0")
            raise Refused(f"rank {rank}: {problem or odd}")
    bits = {key: "/".join(sorted({str(one[key]) for *_, one in every})) for key in bits}
    return data, {"run": run, "bits": bits}


def open_folder(folder, lock, plan):
    """The newest checkpoint's name and state; later updates' metrics are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"another run is writing to {folder}") from None
    path, state = newest_checkpoint(folder)
    old = state.get("plan", {}) if isinstance(state, dict) else {}
    if path and (different := changes(old.get("run", {}), plan["run"])):
        raise ValueError(f"{path.name} belongs to a different run: {different}. "
                         "Choose a different folder for --checkpoints")
    file, step = folder / "metrics.jsonl", state["step"] if path else 0
    text = file.read_text() if file.exists() else ""
    first, *lines = text.splitlines(True) or [""]
    if first not in ("", begin := json.dumps({"run": plan["run"]}) + "\n"):
        raise ValueError(f"{file} belongs to a different run, or to something else")
    whole = [line for line in lines if line.endswith("\n")]  # a kill may cut one off
    kept = [line for line in whole if json.loads(line)["step"] <= step]
    Path(folder, "metrics.unfinished").write_text("".join([begin, *kept]))
    Path(folder, "metrics.unfinished").replace(file)
    Path(folder, "stopped").unlink(missing_ok=True)
    return path and path.name, state


def write(metrics, **line):
    """Write a line of metrics."""
    try:
        print(json.dumps(line), file=metrics)
    except OSError as error:
        raise Refused(f"the metrics cannot be written: {error}") from error


def save(folder, metrics, step, state):
    """Write a checkpoint; ValueError if the folder is no longer the one of this run."""
    try:
        there = os.stat(folder / "lock") and os.stat(folder / "metrics.jsonl")
    except FileNotFoundError:
        there = None
    if not there or not os.path.samestat(there, os.fstat(metrics.fileno())):
        raise ValueError(f"{folder} or files in it were deleted, moved or replaced "
                         f"while this run was using them: update {step} was not saved")
    save_checkpoint(folder, step, state)


def say(line):
    """Print a line at once, on rank 0."""
    if dist.get_rank() == 0:
        print(line, flush=True)


def fit(args, device, told_to_stop):
    """Train until the end or until told to stop; return whether the end was reached."""
    torch.manual_seed(args.seed)
    net = make_net().to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    (train_set, test_set), plan = agree(args, net, device)
    folder, rank, ranks = Path(args.checkpoints), dist.get_rank(), dist.get_world_size()
    lock = FileLock(folder / "lock", timeout=5)  # seconds for an old run to end
    name, state = on_rank_0(open_folder, folder, lock, plan)
    net = DDP(net)  # from here on, all ranks have rank 0's parameters
    if state is None:
        state = copy.deepcopy({"step": 0, "plan": plan, "net": net.module.state_dict(),
                               "optimizer": optimizer.state_dict(), "random": []})
    # DDP rebuilds its buckets after its first backward pass, and then sums in a
    # different order. With this unused pass, every update is summed in the same order.
    backward(net, *minibatch(train_set, 0, args), args)
    restore(net, optimizer, state, args)
    step, per_epoch = state["step"], len(train_set[1]) // args.batch_size
    last, stops = args.epochs * per_epoch, False
    odd = changes(state["plan"]["bits"], plan["bits"])
    print(f"rank {rank}: process {os.getpid()} on {device}", flush=True)
    say(f"{ranks} rank{'s' * (ranks > 1)}: " + (f"resuming from {name}" if name else
        "starting") + f", {step} of {last} updates done"
        + f"; different bits from an uninterrupted run: {odd}" * bool(odd))
    start, first = time.perf_counter(), step
    path = folder / "metrics.jsonl" if rank == 0 else os.devnull
    with open(path, "a", buffering=1) as metrics:  # a line is written at once
        while step < last and not stops:
            X, y = minibatch(train_set, step, args)
            loss, norm, stops = update(net, optimizer, X, y, step, args, told_to_stop)
            step += 1
            write(metrics, step=step, loss=loss, norm=norm)
            if step % per_epoch == 0:
                rate = (step - first) * args.batch_size / (time.perf_counter() - start)
                loss, right = evaluate(net.module, test_set, device)
                epoch = step // per_epoch
                write(metrics, step=step, epoch=epoch, test_loss=loss, accuracy=right)
                say(f"epoch {epoch}: test loss {loss:.4f}, test accuracy {right:.3f}, "
                    f"{rate:,.0f} images/s")
                start, first = time.perf_counter(), step
            if step % args.save_every == 0 or step == last or stops:
                state = state_of(net, optimizer, step, plan)
                on_rank_0(save, folder, metrics, step, state)
    if step >= last:
        say(f"parameters: {digest_of(net.module.state_dict())}")
    else:  # in a file, too, because torchrun's exit status does not tell
        words = (f"stopped: {step} of {last} updates done and saved; the same command "
                 "resumes the run")
        on_rank_0(Path(folder, "stopped").write_text, f"{words}\n")
        say(words)
    lock.release()
    return step >= last


def join():
    """Join torchrun's ranks, or form a group of one; return this rank's device."""
    gpus, here = torch.cuda.device_count(), int(os.getenv("LOCAL_WORLD_SIZE", "1"))
    if 0 < gpus < here:
        raise Refused(f"too few GPUs on this machine ({gpus}) for {here} ranks: start "
                      "fewer ranks, or set CUDA_VISIBLE_DEVICES= to train on CPUs")
    if RESTARTS and os.getenv("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise Refused("after a restart the ranks would use the old store, and may "
                      "hang: export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 first")
    if gpus:  # each rank takes its own; "cuda" is then that one
        torch.cuda.set_device(int(os.getenv("LOCAL_RANK", "0")))
        torch.backends.cudnn.deterministic = True
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"  # the timeout is for both
    store, rank, ranks = dist.HashStore(), 0, 1
    if "RANK" in os.environ:
        store, rank, ranks = None, -1, -1  # taken from the environment
    dist.init_process_group(backend, None, TIMEOUT, ranks, rank, store)
    return torch.device("cuda" if gpus else "cpu")


def read_options(words=None):
    """The options of the command line, or Refused."""
    def refuse(message):
        raise Refused(f"{message}; --help lists all options")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.error = refuse
    add = parser.add_argument
    add("--epochs", type=int, default=40, help="how many (40)")
    add("--batch-size", type=int, default=128, help="examples per update (128)")
    add("--lr", type=float, default=0.002, help="learning rate (0.002)")
    add("--seed", type=int, default=0, help="for parameters, order and flips (0)")
    add("--accumulate", type=int, default=1, metavar="N",
        help="backward passes per rank and update (1)")
    add("--clip", type=float, help="clip the gradient to this norm")
    add("--bf16", action="store_true", help="autocast to bfloat16")
    add("--checkpoints", default="checkpoints", metavar="DIR",
        help="their folder (checkpoints)")
    add("--save-every", type=int, default=20, metavar="N", help="updates (20)")
    add("--data", metavar="DIR", help="the root of torchvision's Fashion-MNIST "
        "(otherwise: the 3,584 images in the package)")
    args = parser.parse_args(words)
    for name in ("epochs", "batch_size", "lr", "accumulate", "clip", "save_every"):
        if (value := getattr(args, name)) is not None and not 0 < value < inf:
            refuse(f"--{name.replace('_', '-')} must be above 0, got {value}")
    if not 0 <= args.seed <= 10**6:
        refuse(f"--seed must be from 0 to {10**6}, got {args.seed}")
    return args


def wait_for_others(stop):
    """Let the rank that failed exit first: torchrun reports it, and ends the others."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(0 if stop else 5)


@record  # so that torchrun reports the traceback of the rank that failed first
def main():
    """Train as the command line says; exit with a message and a status."""
    stop, on_ranks = [], "RANK" in os.environ

    def told(number, frame):
        stop.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the next one ends it

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    try:
        args, device = read_options(), join()
        ended = fit(args, device, lambda: bool(stop) or (
            "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != AGENT))
        dist.destroy_process_group()
    except Refused as why:
        if os.getenv("LOCAL_RANK", "0") != "0":
            wait_for_others(stop)
        sys.exit(str(why))
    except RuntimeError as error:  # did a collective fail because a rank is gone?
        if not (on_ranks and (isinstance(error, dist.DistError) or "gloo" in
                              str(error).lower())):
            raise
        print(f"rank {os.environ['RANK']} lost contact with another rank: "
              + str(error).splitlines()[0], file=sys.stderr, flush=True)
        wait_for_others(stop)
        os._exit(1)  # leaving a broken group in order might hang
    if not ended:
        sys.exit(0 if RESTARTS else STOPPED)  # or torchrun would start it again


if __name__ == "__main__":
    main()
