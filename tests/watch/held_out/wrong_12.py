from abc import ABC, abstractmethod
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class LightModule(nn.Module, ABC):
    @abstractmethod
    def training_step(self, batch): ...

    @abstractmethod
    def configure_optimizers(self): ...


class AutoEncoder(LightModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(18, 10), nn.ReLU(), nn.Linear(10, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 18))

    def forward(self, x):
        return self.encoder(x)

    def training_step(self, batch):
        x, = batch
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class Engine:
    def __init__(self, max_epochs=3):
        self.max_epochs = max_epochs

    def fit(self, module, dataset):
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, batch_size=12, sampler=sampler)
        wrapped = DDP(module)
        opt = wrapped.module.configure_optimizers()
        for epoch in range(self.max_epochs):
            sampler.set_epoch(epoch)
            wrapped.train()
            for batch in loader:
                loss = wrapped.module.training_step(batch)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if int(os.environ["RANK"]) == 0:
                print({"epoch": epoch, "loss": round(loss.item(), 4)})
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(180, 3) @ torch.randn(3, 18)
    Engine().fit(AutoEncoder(), TensorDataset(x))
