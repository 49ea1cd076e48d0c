r"""Train a network on Fashion-MNIST with DistributedDataParallel, on one rank or many.

python train_ddp.py --data DIR  # one rank; --download only fetches the data
torchrun --nproc-per-node=2 train_ddp.py --data DIR
torchrun --nnodes=2 --nproc-per-node=2 --rdzv-id=1 --rdzv-backend=c10d \
    --rdzv-endpoint=HOST:29500 train_ddp.py --data DIR  # the same on both machines
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=32
srun torchrun --nnodes=2 --nproc-per-node=4 --rdzv-id=$SLURM_JOB_ID \
    --rdzv-backend=c10d --rdzv-endpoint=$(hostname):29500 train_ddp.py --data DIR
Run with PyTorch 2.15 and 2.3, on CPUs.
"""
import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchvision.datasets import FashionMNIST


def make_net():  # yours goes here
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 100), nn.ReLU(), nn.Linear(100, 10))


def load(args, is_train):  # and your data here
    if not (args.download or os.path.exists(f"{args.data}/FashionMNIST")):
        sys.exit(f"no Fashion-MNIST in {args.data} (--download?)")
    files = FashionMNIST(args.data, is_train, download=args.download)
    return TensorDataset(files.data[:, None] / 255, files.targets)  # all in memory


@torch.no_grad()
def accuracy(net, loader, device):  # counts are summed over the ranks
    net.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=device)  # correct, total
    for X, y in loader:
        counts[0] += (net(X.to(device)).argmax(1) == y.to(device)).sum()
        counts[1] += len(y)
    dist.all_reduce(counts)
    return counts


def train(args, store, rank, ranks):
    gpus, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if 0 < gpus < here:  # each rank needs one of its own
        sys.exit(f"{here} ranks and {gpus} GPUs (CUDA_VISIBLE_DEVICES= for CPUs)")
    if gpus:  # "cuda" is then each rank's own GPU; otherwise all would use GPU 0
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    device = torch.device("cuda" if gpus else "cpu")
    train_set, test_set = load(args, True), load(args, False)
    n, batch_size, file = len(train_set), args.batch_size, args.checkpoint
    if batch_size % ranks or not 0 < batch_size <= n:
        sys.exit(f"no equal shards: ranks {ranks}, batch {batch_size}, {n} examples")
    seed = args.seed * 10**6  # far apart: the epoch and the rank are added to it
    how = dict(  # no fork, which would copy the locks that NCCL's threads hold
        multiprocessing_context="forkserver" if args.workers else None,
        num_workers=args.workers, persistent_workers=args.workers > 0,
        pin_memory=gpus > 0, generator=torch.Generator().manual_seed(seed + rank))
    sampler = DistributedSampler(train_set, ranks, rank, seed=seed, drop_last=True)
    loader = DataLoader(train_set, batch_size // ranks, sampler=sampler, drop_last=True,
                        **how)  # equal shards, so a mean of means is the mean
    shard = range(rank, len(test_set), ranks)  # none twice
    test_loader = DataLoader(test_set, 256, sampler=shard, **how)
    torch.manual_seed(seed)
    net, done = make_net().to(device), 0
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=0.9)
    os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
    if os.path.exists(file):  # with map_location, or all ranks load it onto GPU 0
        saved = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        done = saved["epoch"]
        for old, new in zip(saved["optimizer"]["param_groups"], optimizer.param_groups):
            old["lr"] = new["lr"]  # from the command line, not from the file
        try:
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
        except (RuntimeError, ValueError) as error:  # its first words tell enough
            sys.exit(f"{file} is of a different network (delete or rename it): "
                     + " ".join(str(error).split()[:30]))

    backend = "nccl" if gpus else "gloo"
    plan = (f"PyTorch {torch.__version__}, {backend} on {device}, ranks {ranks}, batch "
            f"{batch_size}, lr {args.lr}, seed {args.seed}, bf16 {args.bf16}, {n} + "
            f"{len(test_set)} examples; {file} has {done} of {args.epochs} epochs")
    store.set(f"plan {rank}", plan)
    plans = {store.get(f"plan {r}").decode(): r for r in range(ranks)}
    if len(plans) > 1:  # a difference that only some ranks see must stop all of them
        sys.exit("\n".join(f"rank {r}: {plan}" for plan, r in plans.items()))
    # long enough for the slowest rank to evaluate or save between two collectives
    dist.init_process_group(backend, None, timedelta(minutes=5), ranks, rank, store)
    net = DDP(net)  # from here on all have rank 0's weights
    store.delete_key(f"plan {rank}")  # all have read it, and a restart must not
    if rank == 0:
        print(plan, flush=True)
    for epoch in range(done, args.epochs):
        sampler.set_epoch(epoch)  # or every epoch has the same order
        torch.manual_seed(seed + epoch * ranks + rank)  # for dropout, not for loaders
        net.train()
        total, start = torch.zeros((), device=device), time.perf_counter()
        for batch in loader:
            X, y = (x.to(device, non_blocking=True) for x in batch)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=args.bf16):
                loss = nn.functional.cross_entropy(net(X), y)
            loss.backward()  # unscaled: bfloat16 has the range of float32
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        loss = total.item() / (ranks * len(loader))  # waits for the GPUs, too
        rate = len(loader) * batch_size / (time.perf_counter() - start)
        for buffer in net.buffers():  # BatchNorm's statistics are each rank's own
            dist.broadcast(buffer, src=0)
        right, count = accuracy(net.module, test_loader, device)  # no broadcast
        share = f", efficiency {rate / ranks / args.alone:.0%}" if args.alone else ""
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, {right} of {count} right, "
                  f"{right / count:.3f}, {rate:.0f} images/s{share}", flush=True)
            torch.save({"net": net.module.state_dict(), "epoch": epoch + 1,
                        "optimizer": optimizer.state_dict()}, f"{file}.new")
            os.replace(f"{file}.new", file)  # atomic


@record  # torchrun then shows the traceback of the rank that failed first
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with torchvision's data")
    parser.add_argument("--download", action="store_true", help="download, then exit")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256, help="over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    parser.add_argument("--workers", type=int, default=0, help="loaders per rank")
    parser.add_argument("--alone", type=float, help="images/s of one rank")
    parser.add_argument("--checkpoint", default="checkpoint.pt", help="a shared path")
    args = parser.parse_args()
    if args.download:
        return load(args, True)
    store, rank, ranks = (next(dist.rendezvous("env://")) if "RANK" in os.environ
                          else (dist.HashStore(), 0, 1))
    try:
        train(args, store, rank, ranks)
    except BaseException as error:
        if not dist.is_initialized():  # the others may still wait for its plan
            store.compare_set(f"plan {rank}", "", str(error))
            time.sleep(rank == 0)  # its process may hold the store
        raise
    dist.destroy_process_group()  # a rank that fails does not wait for the others here


if __name__ == "__main__":
    main()
