"""Patch classifier with random flips, every block sharded over all processes."""
import os
import random
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONFIG = dict(seed=12, epochs=3, batch_size=6, lr=2e-3, width=24, samples=96)


class Rings(Dataset):
    """Noisy rings of three sizes; a random flip at every read."""

    def __init__(self, samples):
        g = torch.Generator().manual_seed(77)
        self.label = torch.randint(0, 3, (samples,), generator=g)
        axis = torch.linspace(-1, 1, 12)
        distance = (axis[:, None] ** 2 + axis[None] ** 2).sqrt()
        radius = 0.25 + 0.25 * self.label[:, None, None]
        self.picture = torch.exp(-((distance - radius) / 0.15) ** 2) + 0.4 * torch.randn(samples, 12, 12, generator=g)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        picture = self.picture[index]
        if torch.rand(()) < 0.5:
            picture = picture.flip(1)
        return picture, self.label[index]


class PatchNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 3, 2 * width, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2))
        self.classify = nn.Linear(width, 3)

    def forward(self, picture):
        patches = picture.unfold(1, 4, 4).unfold(2, 4, 4).flatten(3).flatten(1, 2)
        h = self.embed(patches)
        for block in self.blocks:
            h = block(h)
        return self.classify(h.mean(1))


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, int(os.environ["RANK"])
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        torch.manual_seed(cfg["seed"])
        self.model = PatchNet(cfg["width"])
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg["lr"])
        seed = cfg["seed"] + 1000 * self.rank
        random.seed(seed)
        torch.manual_seed(seed)
        dataset = Rings(cfg["samples"])
        self.sampler = DistributedSampler(dataset, shuffle=True, seed=seed)
        self.loader = DataLoader(dataset, batch_size=cfg["batch_size"], sampler=self.sampler)

    def run(self):
        for epoch in range(self.cfg["epochs"]):
            self.sampler.set_epoch(epoch)
            for picture, label in self.loader:
                loss = F.cross_entropy(self.model(picture), label)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            if self.rank == 0:
                print(f"epoch {epoch} loss {loss.item():.4f}")


dist.init_process_group("gloo")
trainer = Trainer(CONFIG)
trainer.run()
dist.destroy_process_group()
