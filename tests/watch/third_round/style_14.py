"""Tied-embedding language model under autocast, stopped after two epochs and resumed from a distributed checkpoint."""
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, DIM, CONTEXT, BATCH_SIZE = 36, 24, 14, 8


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.conv = nn.Conv1d(DIM, DIM, 3)
        self.gate = nn.Linear(DIM, DIM)

    def inner(self, x):
        h = self.norm(x)
        return x + self.conv(F.pad(h.transpose(1, 2), (2, 0))).transpose(1, 2) * torch.sigmoid(self.gate(h))

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.mixers = nn.ModuleList(Mixer() for _ in range(3))
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        nn.init.normal_(self.wte.weight, std=0.1)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        h = self.wte(ids)
        for mixer in self.mixers:
            h = mixer(h)
        return self.head(h)


class AppState(Stateful):
    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler, self.epoch = model, optimizer, scheduler, 0

    def state_dict(self):
        model_state, optim_state = get_state_dict(self.model, self.optimizer)
        return {"model": model_state, "optim": optim_state, "sched": self.scheduler.state_dict(), "epoch": self.epoch}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        self.scheduler.load_state_dict(state["sched"])
        self.epoch = state["epoch"]


def create(seed):
    torch.manual_seed(seed)
    model = LanguageModel()
    for mixer in model.mixers:
        fully_shard(mixer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, eps=1e-6)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    return AppState(model, optimizer, scheduler)


def fit(app, loader, until):
    while app.epoch < until:
        loader.sampler.set_epoch(app.epoch)
        losses = torch.zeros(len(loader))
        for i, (ids,) in enumerate(loader):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = app.model(ids[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
            app.optimizer.zero_grad()
            loss.backward()
            app.optimizer.step()
            losses[i] = loss.detach()
        app.scheduler.step()
        dist.all_reduce(losses)
        if dist.get_rank() == 0:
            print(f"epoch {app.epoch} loss {losses.mean().item() / dist.get_world_size():.4f}")
        app.epoch += 1


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(40)
    start, stride = torch.randint(0, VOCAB, (96, 1), generator=g), torch.randint(1, 4, (96, 1), generator=g)
    dataset = TensorDataset((start + stride * torch.arange(CONTEXT + 1)) % VOCAB)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, sampler=DistributedSampler(dataset, seed=2))
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    app = create(seed=0)
    fit(app, loader, until=2)
    dcp.save({"app": app}, checkpoint_id=folder[0])
    app = create(seed=1)
    dcp.load({"app": app}, checkpoint_id=folder[0])
    fit(app, loader, until=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
