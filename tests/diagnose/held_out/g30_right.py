"""right: a training loop with a lot of bookkeeping (reduced loss, gathered objects, evaluation, early stopping broadcast from rank 0, barrier), none of which touches the gradients or differs between ranks."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(300)
X = torch.randn(96, 8)
y = (X[:, 0] > X[:, 1]).long()
X_VAL = torch.randn(20, 8)
Y_VAL = (X_VAL[:, 0] > X_VAL[:, 1]).long()


class EarlyStop:
    def __init__(self, patience):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


def make_net():
    return nn.Sequential(nn.Linear(8, 16), nn.PReLU(), nn.Linear(16, 2))


def train(net, batches):
    ddp = DDP(net)
    rank, world = dist.get_rank(), dist.get_world_size()
    opt = torch.optim.SGD(ddp.parameters(), lr=0.2)
    stopper = EarlyStop(patience=5)
    log = []
    dtype = next(net.parameters()).dtype
    for i, (xb, yb) in enumerate(batches):
        ddp.train()
        loss = F.cross_entropy(ddp(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()

        shown = loss.detach().clone()
        dist.all_reduce(shown)
        shown /= world
        infos = [None] * world
        dist.all_gather_object(infos, {"rank": rank, "n": len(xb), "loss": loss.item()})

        ddp.eval()
        flag = [False]
        if rank == 0:
            with torch.no_grad():
                val = F.cross_entropy(net(X_VAL.to(dtype)), Y_VAL).item()
            flag = [stopper(val)]
            log.append((i, shown.item(), val, sum(d["n"] for d in infos)))
        dist.broadcast_object_list(flag, src=0)
        if flag[0]:
            break
    dist.barrier()
    return log
