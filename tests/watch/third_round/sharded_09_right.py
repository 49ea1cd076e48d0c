"""Hybrid-sharded language model trained with several micro-batches per update."""
import contextlib
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MICRO_BATCHES = 2


class GatedBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.gate, self.value, self.proj = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        h, _ = self.mixer(self.norm(x))
        return x + self.proj(F.silu(self.gate(h)) * self.value(h))


class TinyLM(nn.Module):
    def __init__(self, vocab=20, width=16, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(GatedBlock(width) for _ in range(depth))
        self.unembed = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)


@contextlib.contextmanager
def within_replica(model):
    model.set_requires_all_reduce(False)
    try:
        yield
    finally:
        model.set_requires_all_reduce(True)


def update(model, optimizer, micro):
    optimizer.zero_grad(set_to_none=True)
    shown = 0.0
    for k, ids in enumerate(micro):
        last = k == len(micro) - 1
        with contextlib.nullcontext() if last else within_replica(model):
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / len(micro)
            loss.backward()
        shown += loss.item()
    optimizer.step()
    return shown


dist.init_process_group("gloo")
world = int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
g = torch.Generator().manual_seed(3)
first, jump = torch.randint(0, 20, (2, 128, 1), generator=g)
corpus = TensorDataset((first + (jump % 4 + 1) * torch.arange(10)) % 20)
sampler = DistributedSampler(corpus, seed=5)
loader = DataLoader(corpus, batch_size=8, sampler=sampler)
torch.manual_seed(21)
model = TinyLM()
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    sampler.set_epoch(epoch)
    pending = []
    for (ids,) in loader:
        pending.append(ids)
        if len(pending) == MICRO_BATCHES:
            shown = update(model, optimizer, pending)
            pending = []
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {shown:.4f}")
dist.destroy_process_group()
