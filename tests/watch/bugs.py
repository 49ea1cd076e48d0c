"""One DDP script and what can go wrong in it: `watch bugs.py NAME`. EXPECTED says what must be found first."""

import os
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

EXPECTED = {
    # right
    "right": [], "spawned": [], "spawned by Process": [], "iterable": [], "no loader": [], "sharded": [], "scaler": [],
    "accumulated": [], "rows by hand": [], "weighted sampling": [], "several epochs of twenty": [], "GAN": [],
    "half the loss": [], "rank 0 evaluates and saves": [], "sum over all examples": [], "joined": [], "compiled": [],
    "own data on each rank": [], "BatchNorm evaluated": [], "LBFGS": [], "EMA": [], "next(iter)": [], "autocast": [],
    "sharded, summed": [], "resumed": [], "gradient noise": [], "training subset": [], "penalty by hand": [], "local rank argument": [],
    "dict batches": [], "loss from forward": [], "endless": [], "noise": [], "sharded, accumulated": [], "sharded, clipped": [], "resumed from a file": [], "two networks": [], "two networks, rows by hand": [],
    # wrong
    "parameters gathered in step": ["not synchronised"], "norms reduced in step": ["not synchronised"],
    "parameters averaged in step": ["not synchronised"], "exchanged in step, drifts": ["not synchronised"],
    "no set_epoch": ["same order in every epoch"], "no sampler": ["same examples on all ranks"],
    "split without a seed": ["different data sets"], "data without a seed": ["different data sets"],
    "rank as the shuffling seed": ["repeated examples"], "unequal batches": ["different numbers of batches"],
    "a rank stops": ["hangs"], "a rank raises": ["raises"], "no zero_grad": ["gradients of earlier steps"],
    "no group": ["no group"], "all save": ["all ranks save"], "clipped while scaled": ["clipped while scaled"],
    "summed loss": ["divided twice"], "loss times the ranks": ["loss multiplied by world size"],
    "sharded, loss times the ranks": ["loss multiplied by world size"],
    "one class": ["zero gradients"], "optimizer of a copy": ["wrong parameters"], "loaded on rank 0": ["different start"],
    "net.module": ["DDP bypassed"], "rank 0 evaluates through DDP": ["hangs"], "no_sync": ["in no_sync"],
    "clipped by value before": ["clipped before the average"], "spawned, no set_epoch": ["same order in every epoch"],
    "rates differ": ["different learning rates"], "unfrozen later": ["not exchanged"], "NaN": ["NaN"],
    "clipped in each micro-batch": ["clipped in each micro-batch"],
    "bfloat16, clipped in each micro-batch": ["clipped in each micro-batch"],
    "bfloat16, summed": ["summed"], "iterable, all of it": ["same examples on all ranks"], "other collectives": ["different collectives", "hangs"],
    "sum over the batch": ["divided twice"], "no set_epoch, sum over the batch": ["same order in every epoch"], "one term times the ranks": ["one term times the world size"],
    "two networks, the second one bare": ["DDP bypassed", "not exchanged", "not synchronised"],
    "dict batches, no sampler": ["same examples on all ranks"], "endless, no set_epoch": ["same order in every epoch"],
    "loss from forward, times the ranks": ["loss multiplied by world size"],
    "iterable, all of it in its own order": ["same examples on all ranks"],
    "sharded, head left out": ["not exchanged"], "sharded over one rank": ["not synchronised"],
    "sharded, each part clipped by its own norm": ["parts scaled differently"],
    "sharded, first pass sent": ["backward pass not exchanged"], "centre of a shard": ["different buffers"],
    "resumed without the epoch": ["resumed run differs"], "resumed without the optimizer": ["resumed run differs"],
    # right, with a note
    "same augmentation": ["same augmentation"], "same dropout": ["same dropout"], "not evaluated": ["evaluation in training mode"],
    "padded evaluation": ["padded"], "bfloat16": ["reduced precision"], "same noise": ["same random numbers"],
    "exchanged in step": ["exchanged inside step()"],
}
NOTES = {"same augmentation", "same dropout", "evaluation in training mode", "padded", "reduced precision",
         "exchanged inside step()", "same random numbers"}


class Noisy(Dataset):
    """Changes its examples at random."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i] + 0.1 * torch.randn(10), self.y[i]


class Stream(IterableDataset):
    def __init__(self, X, y, rank, k):
        self.rows = list(zip(X, y))[rank::k]

    def __iter__(self):
        return iter(self.rows)


class Centred(nn.Module):
    """Subtracts a running mean of what it has seen."""

    def __init__(self, n):
        super().__init__()
        self.register_buffer("centre", torch.zeros(n))

    def forward(self, x):
        self.centre = 0.9 * self.centre + 0.1 * x.detach().mean(0)
        return x - self.centre


class TakesDicts(nn.Module):
    """Takes a minibatch as a dict, and may return the loss itself."""

    def __init__(self, inner, times=0):
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, batch):
        scores = self.inner(batch["x"])
        return self.times * F.cross_entropy(scores, batch["y"]) if self.times else scores


def as_dicts(rows):
    """A minibatch with a mask, which is the same for all examples."""
    return {"mask": torch.ones(len(rows), 10), "x": torch.stack([x for x, _ in rows]), "y": torch.stack([y for _, y in rows])}


def again_and_again(loader):
    while True:
        yield from loader


class InParts(torch.optim.Optimizer):
    """Averages the gradients itself; each rank updates its part of each parameter, and gets the other parts."""

    def __init__(self, params, name, rank, k):
        super().__init__(params, {"lr": 0.1})
        self.name, self.rank, self.k = name, rank, k

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"]):
            if self.name == "parameters averaged in step":
                p -= 0.1 * p.grad
                dist.all_reduce(p)
                p /= self.k
                continue
            if self.name == "norms reduced in step":
                dist.all_reduce(p.grad.norm())
            rest = -p.numel() % self.k
            old, grad = F.pad(p.flatten(), (0, rest)), F.pad(p.grad.flatten(), (0, rest))
            part = grad.chunk(self.k)[self.rank].clone()
            if self.name.startswith("exchanged in step"):
                dist.reduce_scatter_tensor(part, grad)
                part /= self.k
            dist.all_gather_into_tensor(grad, old.chunk(self.k)[self.rank] - 0.1 * part)
            p.copy_(grad[:p.numel()].view_as(p))
            if self.name == "exchanged in step, drifts":
                p += 0.001 * self.rank


def has(name, *bugs):
    return name in bugs


def train(name, rank, k):
    torch.manual_seed(rank if has(name, "data without a seed") else 0)
    n = 480 if has(name, "several epochs of twenty") or name.startswith("endless") else 97 if has(name, "padded evaluation") else 96
    X, y = torch.randn(n, 10), torch.randint(1 if name == "one class" else 3, (n,))
    classes = 1 if name == "one class" else 3
    if not has(name, "same augmentation", "same dropout", "same noise"):
        torch.manual_seed(rank)
    data = Noisy(X, y) if has(name, "same augmentation") else TensorDataset(X, y)
    if has(name, "split without a seed"):
        data, _ = random_split(data, [72, 24])
    if has(name, "training subset"):
        data = Subset(data, list(range(0, 96, 2)))
    sampler = DistributedSampler(data, k, rank)
    if has(name, "rank as the shuffling seed"):
        sampler = torch.randperm(n)[rank::k].tolist()
    if has(name, "weighted sampling"):
        sampler = torch.utils.data.WeightedRandomSampler(torch.ones(n), n // k)
    if has(name, "unequal batches", "joined"):
        sampler = list(range(rank, n - (20 if rank else 0), k))
    shuffled = has(name, "no sampler")
    loader = DataLoader(data, 8, shuffle=shuffled, sampler=None if shuffled else sampler, drop_last=True)
    if name == "iterable, all of it in its own order":
        order = torch.randperm(n, generator=torch.Generator().manual_seed(rank))
        loader = DataLoader(Stream(X[order], y[order], 0, 1), 8)
    if name.startswith("dict batches"):
        loader = DataLoader(data, 8, sampler=sampler if name == "dict batches" else torch.randperm(n).sort()[1].tolist(), collate_fn=as_dicts)
    if has(name, "iterable", "iterable, all of it"):
        loader = DataLoader(Stream(X, y, *((0, 1) if name == "iterable, all of it" else (rank, k))), 8)
    if has(name, "own data on each rank"):
        loader = DataLoader(TensorDataset(X[rank::k], y[rank::k]), 8, shuffle=True)
    if has(name, "rows by hand"):
        loader = DataLoader(data, 8 * k, shuffle=True, generator=torch.Generator().manual_seed(1), drop_last=True)

    layers = [nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, classes)]
    if has(name, "same dropout"):
        layers.insert(2, nn.Dropout(0.3))
    if has(name, "BatchNorm evaluated", "not evaluated", "rank 0 evaluates through DDP"):
        layers.insert(1, nn.BatchNorm1d(16))
    if has(name, "unfrozen later"):
        layers[0].requires_grad_(False)
    if has(name, "centre of a shard"):
        layers.insert(1, Centred(16))
    inner = nn.Sequential(*layers)
    if name.startswith(("dict batches", "loss from forward")):
        inner = TakesDicts(inner, 0 if name.startswith("dict") else k if name == "loss from forward, times the ranks" else 1)
    if name.startswith("bfloat16"):
        inner.bfloat16()
    if name.startswith("sharded"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (k, 1), mesh_dim_names=("data", "parts"))
        net = inner
        for layer in inner[:1] if name == "sharded, head left out" else [inner]:
            fully_shard(layer, mesh=mesh["parts"] if name == "sharded over one rank" else mesh["data"])
        if name == "sharded, summed":
            net.set_gradient_divide_factor(1.0)
            net.set_force_sum_reduction_for_comms(True)
    else:
        own = has(name, "no group", "clipped by value before", "bfloat16, summed") or "in step" in name
        net = inner if own else DDP(
            torch.compile(inner) if name == "compiled" else inner, find_unused_parameters=name.startswith("loss from forward"))
    trained = __import__("copy").deepcopy(inner) if has(name, "optimizer of a copy") else net
    if has(name, "clipped by value before", "bfloat16, summed") or "in step" in name:
        for p in net.parameters():
            dist.broadcast(p.data, 0)
    if has(name, "loaded on rank 0") and rank == 0:
        inner.load_state_dict({key: x + 0.1 for key, x in inner.state_dict().items()})
    if has(name, "unfrozen later"):
        inner[0].requires_grad_(True)
    lr = 0.1 * (1 + rank) if has(name, "rates differ") else 0.1
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3) if name == "LBFGS" else torch.optim.SGD(
        trained.parameters(), lr=lr, momentum=0.9)
    if name == "resumed":
        state = optimizer.state_dict()
        state["state"] = {i: {"momentum_buffer": torch.zeros_like(p)} for i, p in enumerate(net.parameters())}
        optimizer.load_state_dict(state)
    first = 0
    if name.startswith("resumed ") and os.path.exists("net.pt"):
        state = torch.load("net.pt")
        inner.load_state_dict(state["net"])
        if not has(name, "resumed without the optimizer"):
            optimizer.load_state_dict(state["optimizer"])
        first = 0 if has(name, "resumed without the epoch") else state["epoch"] + 1
    optimizer = InParts(net.parameters(), name, rank, k) if "in step" in name else optimizer
    scaler = torch.amp.GradScaler("cpu", enabled=has(name, "scaler", "clipped while scaled"))
    average = torch.optim.swa_utils.AveragedModel(inner) if name == "EMA" else None

    def loss_of(X, y):
        if has(name, "noise", "same noise"):
            X = X + 0.1 * torch.randn_like(X)
        if has(name, "rows by hand"):
            X, y = X[rank::k], y[rank::k]
        if name.startswith(("dict batches", "loss from forward")):
            scores = net({"mask": torch.ones_like(X), "x": X, "y": y})
            return scores if name.startswith("loss from forward") else F.cross_entropy(scores, y)
        scores = (inner if has(name, "net.module") else net)(X.to(next(inner.parameters()).dtype)).float()
        if has(name, "one class"):
            return F.cross_entropy(scores, y)
        if has(name, "summed loss"):
            return F.cross_entropy(scores, y, reduction="sum")
        if has(name, "sum over the batch", "no set_epoch, sum over the batch"):
            return F.cross_entropy(scores, y, reduction="sum") / (8 * k)
        if has(name, "sum over all examples", "sharded, summed"):
            return F.cross_entropy(scores, y, reduction="sum") / (8 * k) * (1 if name.startswith("sharded") else k)
        loss = F.cross_entropy(scores, y)
        loss = loss * (k if has(name, "loss times the ranks", "sharded, loss times the ranks") else 1)
        if has(name, "one term times the ranks"):
            loss = loss + k * 0.3 * scores.square().mean()
        return loss * float("nan") if has(name, "NaN") and rank else loss / 2 if has(name, "half the loss") else loss

    def step(i, X, y):
        micro = 2 if has(name, "accumulated", "sharded, accumulated", "sharded, first pass sent") else 8 if "bfloat16" in name or "each micro-batch" in name else 1
        if name == "LBFGS":
            def closure():
                optimizer.zero_grad()
                loss = loss_of(X, y)
                loss.backward()
                return loss
            return optimizer.step(closure)
        if not has(name, "no zero_grad"):
            optimizer.zero_grad()
        for m in range(micro):
            quiet = has(name, "no_sync") or (m + 1 < micro and "each micro-batch" not in name)
            if micro > 1 and name.startswith("sharded"):
                net.set_requires_gradient_sync(quiet if name == "sharded, first pass sent" else not quiet)
            with net.no_sync() if quiet and net is not inner else nullcontext():
                with torch.autocast("cpu", torch.bfloat16, enabled=has(name, "autocast")):
                    loss = loss_of(X[m::micro], y[m::micro]) / micro
                scaler.scale(loss).backward()
            if "each micro-batch" in name:
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        if has(name, "scaler"):
            scaler.unscale_(optimizer)
        if has(name, "sharded, clipped"):
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        if has(name, "sharded, each part clipped by its own norm"):
            norm = sum(p.grad.to_local().square().sum() for p in net.parameters()).sqrt()
            for p in net.parameters():
                p.grad.to_local().mul_(0.1 / norm)
        if has(name, "scaler", "clipped while scaled"):
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        if has(name, "clipped by value before"):
            nn.utils.clip_grad_value_(net.parameters(), 0.01)
            for p in net.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
                p.grad /= k
        if has(name, "bfloat16, summed"):
            for p in net.parameters():
                dist.all_reduce(p.grad)
        if has(name, "gradient noise"):
            noise = torch.Generator().manual_seed(i)
            for p in net.parameters():
                p.grad += 0.01 * torch.randn(p.shape, generator=noise)
        if has(name, "penalty by hand"):
            for p in net.parameters():
                p.grad += 0.01 * p.detach()
        scaler.step(optimizer)
        scaler.update()
        if average:
            average.update_parameters(inner)

    endless = again_and_again(loader)
    for epoch in range(first, 3):
        if hasattr(sampler, "set_epoch") and not has(
                name, "no set_epoch", "spawned, no set_epoch", "no set_epoch, sum over the batch", "endless, no set_epoch"):
            sampler.set_epoch(epoch)
        net.train()
        if name == "next(iter)":
            batches = iter(loader)
            for i in range(len(loader)):
                step(i, *next(batches))
            continue
        if name.startswith("endless"):
            for i in range(len(loader)):
                step(i, *next(endless))
            continue
        if name == "no loader":
            for i in range(30):
                rows = torch.randint(n, (8,))
                step(i, X[rows], y[rows])
            continue
        with net.join() if name == "joined" else nullcontext():
            for i, batch in enumerate(loader):
                X_, y_ = batch if isinstance(batch, list) else (batch["x"], batch["y"])
                if has(name, "a rank stops") and rank and i == 3:
                    break
                if has(name, "a rank raises") and rank and i == 2:
                    raise ValueError("a bad example")
                if has(name, "other collectives") and i == 2:
                    x = torch.zeros(5 + 3 * rank)
                    dist.all_reduce(x)
                step(i, X_, y_)
        if has(name, "rank 0 evaluates and saves", "rank 0 evaluates through DDP") and rank == 0:
            (inner if name == "rank 0 evaluates and saves" else net).eval()
            with torch.no_grad():
                for X_, _ in DataLoader(TensorDataset(X, y), 32):
                    (inner if name == "rank 0 evaluates and saves" else net)(X_)
            torch.save(inner.state_dict(), os.devnull)
        if has(name, "BatchNorm evaluated", "padded evaluation", "not evaluated"):
            if name != "not evaluated":
                net.eval()
            part = DistributedSampler(TensorDataset(X, y), k, rank, shuffle=False)
            with torch.no_grad():
                for X_, _ in DataLoader(TensorDataset(X, y), 16, sampler=part):
                    net(X_)
        if name.startswith("resumed ") and rank == 0:
            torch.save({"net": inner.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "net.pt")
        if has(name, "all save"):
            torch.save(inner.state_dict(), "net.pt")
        if dist.is_initialized():
            dist.barrier()


def train_gan(rank, k):
    torch.manual_seed(rank)
    makes, judges = DDP(nn.Linear(4, 6)), DDP(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)))
    of_makes, of_judges = (torch.optim.Adam(net.parameters(), 1e-2) for net in (makes, judges))
    data = TensorDataset(torch.randn(96, 6, generator=torch.Generator().manual_seed(1)))
    sampler = DistributedSampler(data, k, rank)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (X,) in DataLoader(data, 8, sampler=sampler):
            fake = makes(torch.randn(8, 4))
            of_judges.zero_grad()
            real_loss = F.binary_cross_entropy_with_logits(judges(torch.cat([X, fake.detach()])), torch.cat(
                [torch.ones(len(X), 1), torch.zeros(8, 1)]))
            real_loss.backward()
            of_judges.step()
            of_makes.zero_grad()
            F.binary_cross_entropy_with_logits(judges(fake), torch.ones(8, 1)).backward()
            of_makes.step()


def train_two(name, rank, k):
    """An encoder and a decoder with an optimizer each, which step after one backward pass."""
    torch.manual_seed(0)
    encoder, decoder = DDP(nn.Linear(6, 3)), nn.Sequential(nn.Tanh(), nn.Linear(3, 6))
    decoder = decoder if name == "two networks, the second one bare" else DDP(decoder)
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (encoder, decoder)]
    data = TensorDataset(torch.randn(96, 6, generator=torch.Generator().manual_seed(1)))
    by_hand = name == "two networks, rows by hand"
    sampler = None if by_hand else DistributedSampler(data, k, rank)
    loader = DataLoader(data, 8 * k if by_hand else 8, sampler=sampler, shuffle=by_hand, generator=torch.Generator().manual_seed(2))
    for epoch in range(3):
        if sampler:
            sampler.set_epoch(epoch)
        for (X,) in loader:
            X = X[rank::k] if by_hand else X
            for optimizer in optimizers:
                optimizer.zero_grad()
            F.mse_loss(decoder(encoder(X)), X).backward()
            for optimizer in optimizers:
                optimizer.step()


def start(rank, name, k):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=k)
    train(name, rank, k)
    dist.destroy_process_group()


if __name__ == "__main__":
    name = sys.argv[1]
    if name == "spawned by Process":
        ranks = [mp.get_context("spawn").Process(target=start, args=(rank, name, 2)) for rank in range(2)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
    elif name.startswith("spawned"):
        k = max(torch.cuda.device_count(), 1)
        mp.spawn(start, (name, k), nprocs=k)
    elif name == "no group":
        train(name, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        dist.init_process_group()
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank) if torch.cuda.is_available() else None
        rank, k = dist.get_rank(), dist.get_world_size()
        train_gan(rank, k) if name == "GAN" else (train_two if name.startswith("two networks") else train)(name, rank, k)
        dist.destroy_process_group()
