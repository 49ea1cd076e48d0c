"""Train a network on Fashion-MNIST by DistributedDataParallel, on one rank or many.

torchrun --nproc-per-node=2 train_ddp.py --data DIR [--download]
"""
import argparse
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchvision.datasets import FashionMNIST


def make_net():  # yours goes here
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 100), nn.ReLU(), nn.Linear(100, 10))


def load(args, is_train):  # and your data here
    first = os.environ["LOCAL_RANK"] == "0"
    for turn in (True, False):  # one rank on each machine fetches, then the others read
        if first == turn:
            try:
                files = FashionMNIST(args.data, is_train, download=args.download)
            except (RuntimeError, OSError) as error:
                sys.exit(f"no Fashion-MNIST in {args.data} (--download?): {error}")
        dist.barrier()
    return TensorDataset(files.data[:, None] / 255, files.targets)  # all in memory


@torch.no_grad()
def accuracy(net, dataset, device):
    """How many are right, of how many: each rank counts its part, and all add up."""
    net.eval()
    shard = range(dist.get_rank(), len(dataset), dist.get_world_size())  # none twice
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for X, y in DataLoader(dataset, 256, sampler=shard):
        right = net(X.to(device)).argmax(1) == y.to(device)
        counts += torch.stack([right.sum(), torch.tensor(len(y), device=device)])
    dist.all_reduce(counts)
    return counts.tolist()


def train(args, device):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if args.batch_size % world_size:
        sys.exit(f"{world_size} ranks cannot share a batch of {args.batch_size}")
    train_set, test_set = load(args, True), load(args, False)
    sampler = DistributedSampler(train_set, seed=args.seed, drop_last=True)
    loader = DataLoader(train_set, args.batch_size // world_size, sampler=sampler,
                        drop_last=True)  # equal shards, so a mean of means is the mean
    torch.manual_seed(args.seed + rank)  # dropout and the like: each rank its own
    net = DDP(make_net().to(device))  # from here on all have rank 0's weights
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=0.9)
    saved = [None]
    if rank == 0 and args.checkpoint.exists():
        saved = [torch.load(args.checkpoint, map_location="cpu")]
    dist.broadcast_object_list(saved, src=0)  # rank 0 alone needs to have the file
    if saved[0]:
        net.module.load_state_dict(saved[0]["net"])
        optimizer.load_state_dict(saved[0]["optimizer"])
    for epoch in range(saved[0]["epoch"] if saved[0] else 0, args.epochs):
        sampler.set_epoch(epoch)  # or every epoch has the same order
        net.train()
        for X, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(X.to(device)), y.to(device)).backward()
            optimizer.step()
        right, count = accuracy(net.module, test_set, device)  # not net: it may talk
        if rank == 0:
            print(f"epoch {epoch + 1}: {right} of {count} right, {right / count:.3f}",
                  flush=True)
            state = {"net": net.module.state_dict(), "epoch": epoch + 1,
                     "optimizer": optimizer.state_dict()}
            torch.save(state, f"{args.checkpoint}.new")  # whole, or not at all
            os.replace(f"{args.checkpoint}.new", args.checkpoint)


@record  # torchrun then shows the traceback of the rank that failed first
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="torchvision's folder")
    parser.add_argument("--download", action="store_true", help="fetch it first")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256, help="of all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default="checkpoint.pt")
    args = parser.parse_args()
    if "LOCAL_RANK" not in os.environ:
        sys.exit(f"start it by torchrun: {__doc__.splitlines()[2]}")
    local_rank, here = (int(os.environ[x]) for x in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    on_gpu = torch.cuda.device_count() >= here  # a GPU of its own for each rank
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(minutes=5),
                            device_id=device if on_gpu else None)
    train(args, device)
    dist.destroy_process_group()  # a rank that fails does not wait for the others here


if __name__ == "__main__":
    main()
