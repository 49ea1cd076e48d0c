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
from d2lpar.ddp import at_end_of_backward


class MyDDP(nn.Module):
    """`module` with the parameters of rank 0; backward averages the gradients."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for x in [*module.parameters(), *module.buffers()]:
            dist.broadcast(x.detach(), src=0)
        self.params = [p for p in module.parameters() if p.requires_grad][::-1]
        self.there, self.sent = set(), []
        for p in self.params:
            p.register_post_accumulate_grad_hook(self.arrive)

    def forward(self, X):
        return self.module(X)

    def arrive(self, p):
        if not self.there:
            at_end_of_backward(self.finish)
        self.there.add(p)
        n = len(self.params)
        while len(self.sent) < n and self.params[len(self.sent)] in self.there:
            grad = self.params[len(self.sent)].grad
            self.sent.append(dist.all_reduce(grad, async_op=True))

    def finish(self):
        assert len(self.sent) == len(self.params), "a parameter got no gradient"
        for p, work in zip(self.params, self.sent):
            work.wait()
            p.grad /= dist.get_world_size()
        self.there, self.sent = set(), []


def evaluate(net, data, rank, k, device):
    """The share of the examples that the ranks classify correctly."""
    for x in net.module.buffers():  # BatchNorm's statistics
        dist.broadcast(x, src=0)
    net.eval()
    right = torch.zeros((), device=device)
    with torch.no_grad():
        for X, y in DataLoader(Subset(data, range(rank, len(data), k)), 256):
            right += dp.count_right(net.module, X.to(device), y.to(device))
    dist.all_reduce(right)
    return right.item() / len(data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", choices=["resnet", "mine"], default="resnet")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--plain", action="store_true",
                        help="float64, frozen BatchNorm, no mirroring")
    parser.add_argument("--save", help="write a checkpoint here after each epoch")
    parser.add_argument("--resume", help="start from this checkpoint")
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

    net = dp.resnet18(10, width=8) if args.net == "resnet" else my_training.make_net()
    net = MyDDP(net.to(device, dtype))
    optimizer = my_training.make_optimizer(net.parameters())
    first = 0
    if args.resume:
        saved = torch.load(args.resume, map_location=device)
        first = saved["epoch"]
        net.module.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        net.train(not args.plain)
        for X, y in loader:
            X, y = X.to(device), y.to(device)
            if not args.plain:
                chance = torch.rand(len(X), 1, 1, 1, device=device)
                X = torch.where(chance < 0.5, X, X.flip(3))
            optimizer.zero_grad()
            my_training.loss(net(X), y).mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        accuracy = evaluate(net, test, rank, k, device)
        if rank == 0:
            print(f"epoch {epoch + 1}: test accuracy {accuracy:.3f}", flush=True)
            if args.save:
                saved = {"epoch": epoch + 1, "net": net.module.state_dict()}
                saved["optimizer"] = optimizer.state_dict()
                torch.save(saved, args.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
