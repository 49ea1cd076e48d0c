"""right: plain DDP; the all_reduce of a detached clone of the loss and the all_gather_object of metrics serve logging alone and run on every rank."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(28)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def reduce_mean(t):
    out = t.detach().clone()
    dist.all_reduce(out)
    return out / dist.get_world_size()


def is_main():
    return dist.get_rank() == 0


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    log = []
    for step, (x, y) in enumerate(batches):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        mean_loss = reduce_mean(loss)
        per_rank = [None] * dist.get_world_size()
        dist.all_gather_object(per_rank, {"rank": dist.get_rank(), "correct": int((logits.argmax(1) == y).sum())})
        if is_main():
            log.append((step, mean_loss.item(), sum(d["correct"] for d in per_rank)))
    return log
