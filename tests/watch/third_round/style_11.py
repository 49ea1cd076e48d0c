# functional recipe: full weights exist on rank 0 only, every other rank starts on the meta device
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

EPOCHS, LR, BATCH = 3, 2e-2, int(os.environ.get("BATCH_SIZE", "8"))


def build_model():
    return nn.Sequential(
        nn.Sequential(nn.Linear(12, 24), nn.Tanh()),
        nn.Sequential(nn.Linear(24, 24), nn.Tanh()),
        nn.Sequential(nn.Linear(24, 12)),
    )


def full_state_from_rank0(rank, names):
    state = None
    if rank == 0:
        torch.manual_seed(8)
        state = build_model().state_dict()
        assert list(state) == names
    return state


def load_full_state(model, state, rank):
    sharded = {}
    for name, meta in model.state_dict().items():
        full = state[name].detach() if rank == 0 else torch.empty(meta.shape, dtype=meta.dtype)
        sharded[name] = distribute_tensor(full, meta.device_mesh, meta.placements, src_data_rank=0)
    model.load_state_dict(sharded, assign=True)
    assert all(isinstance(p, DTensor) and not p.is_meta for p in model.parameters())


def make_corpus():
    g = torch.Generator().manual_seed(21)
    basis = torch.randn(3, 12, generator=g)
    return torch.randn(120, 3, generator=g) @ basis + 0.05 * torch.randn(120, 12, generator=g)


def batches(n, epoch, rank, world):
    perm = torch.randperm(n, generator=torch.Generator().manual_seed(1_000 + epoch))
    step = BATCH * world
    for start in range(0, n - n % step, step):
        yield perm[start + rank * BATCH:start + (rank + 1) * BATCH]


def run():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.device("meta"):
        model = build_model()
    for block in model:
        fully_shard(block)
    fully_shard(model)
    load_full_state(model, full_state_from_rank0(rank, list(model.state_dict())), rank)
    opt = torch.optim.RMSprop(model.parameters(), lr=LR / 10, alpha=0.95)
    total_steps = EPOCHS * (120 // (BATCH * world))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=LR / 10, total_steps=total_steps)
    corpus = make_corpus()
    for epoch in range(EPOCHS):
        losses = []
        for idx in batches(len(corpus), epoch, rank, world):
            clean = corpus[idx]
            mask = (idx.unsqueeze(1) + torch.arange(12) + epoch) % 4 != 0
            loss = F.mse_loss(model(clean * mask), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.reduce(mean, dst=0)
        if rank == 0:
            print(f"epoch {epoch} reconstruction {mean.item() / world:.4f}")
    full = {name: value.full_tensor() for name, value in model.state_dict().items()}
    if rank == 0:
        print("parameter norm", round(sum(v.square().sum().item() for v in full.values()) ** 0.5, 4))
    dist.destroy_process_group()


run()
