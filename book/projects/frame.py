"""ResNet-18, trained with a DDP of my own.

torchrun --standalone --nproc-per-node=2 my_ddp.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import d2lpar as dp
import my_training


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", choices=["resnet", "mine"], default="resnet")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--plain", action="store_true",
                        help="float64, frozen BatchNorm, no mirroring")
    parser.add_argument("--save", help="write a checkpoint here after each epoch")
    args = parser.parse_args()

    rank, k = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    has_own_gpu = torch.cuda.device_count() >= k
    device = torch.device(f"cuda:{rank}" if has_own_gpu else "cpu")
    dist.init_process_group("nccl" if has_own_gpu else "gloo")
    torch.manual_seed(rank)

    X, y = my_training.load_data()
    dtype = torch.float64 if args.plain else torch.float32
    X = X.to(dtype) if X.is_floating_point() else X
    n = (len(X) - 512) // 48 * 48  # whole minibatches, so that no example is repeated
    train, test = TensorDataset(X[:n], y[:n]), TensorDataset(X[-512:], y[-512:])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=48 // k, sampler=sampler)
    print(f"rank {rank} of {k}: {len(loader)} minibatches of {loader.batch_size}")

    net = dp.resnet18(10, width=8) if args.net == "resnet" else my_training.make_net()
    net = net.to(device, dtype)
    optimizer = my_training.make_optimizer(net.parameters())

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        net.train(not args.plain)
        for X, y in loader:
            X, y = X.to(device), y.to(device)
            if not args.plain:
                chance = torch.rand(len(X), 1, 1, 1, device=device)
                X = torch.where(chance < 0.5, X, X.flip(3))
            ...  # the training step
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
