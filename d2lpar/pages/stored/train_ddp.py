"""Train a network on Fashion-MNIST by DistributedDataParallel, on one rank or many.

python train_ddp.py --data DIR --download
torchrun --nproc-per-node=2 train_ddp.py --data DIR
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
    try:
        files = FashionMNIST(args.data, is_train, download=args.download)
    except (RuntimeError, OSError) as error:
        sys.exit(f"no Fashion-MNIST in {args.data} (--download?): {error}")
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
    torch.manual_seed(args.seed)
    net = DDP(make_net().to(device))  # from here on all have rank 0's weights
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=0.9)
    saved = [None]
    if rank == 0:
        args.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        if args.checkpoint.exists():
            saved = [torch.load(args.checkpoint, map_location="cpu")]
    dist.broadcast_object_list(saved, src=0)  # only rank 0 reads the file
    done = saved[0]["epoch"] if saved[0] else 0
    if done:
        net.module.load_state_dict(saved[0]["net"])
        optimizer.load_state_dict(saved[0]["optimizer"])
        optimizer.param_groups[0]["lr"] = args.lr  # of this call, not of the file
    if rank == 0:
        print(f"{world_size} ranks, {dist.get_backend()} on {device.type}; "
              f"{args.checkpoint} has {done} of {args.epochs} epochs", flush=True)
    for epoch in range(done, args.epochs):
        sampler.set_epoch(epoch)  # or every epoch has the same order
        torch.manual_seed(args.seed + epoch * world_size + rank)  # for dropout
        net.train()
        for X, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(X.to(device)), y.to(device)).backward()
            optimizer.step()
        for buffer in net.buffers():  # BatchNorm's statistics are each rank's own
            dist.broadcast(buffer, src=0)
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
    parser.add_argument("--download", action="store_true", help="fetch it, and end")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256, help="of all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default="checkpoint.pt",
                        help="where all machines see it: rank 0 may be on any")
    args = parser.parse_args()
    if args.download == ("LOCAL_RANK" in os.environ):  # only training takes torchrun
        sys.exit("start it by one of these:" + __doc__.partition("many.")[2])
    if args.download:
        return load(args, True)
    local_rank, here = (int(os.environ[x]) for x in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    gpus = torch.cuda.device_count()
    if 0 < gpus < here:  # each rank needs one of its own
        sys.exit(f"{here} ranks and {gpus} GPUs (CUDA_VISIBLE_DEVICES= for CPUs)")
    device = torch.device("cuda", local_rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo", timeout=timedelta(minutes=5),
                            device_id=device if gpus else None)
    train(args, device)
    dist.destroy_process_group()  # a rank that fails does not wait for the others here


if __name__ == "__main__":
    main()
