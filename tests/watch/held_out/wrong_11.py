import copy, os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

CONFIG = {"lr": 1e-2, "epochs": 3, "batch_size": 10, "optimizer": "adam", "width": 28}


def create_optimizer(name, params, lr):
    return {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[name](params, lr=lr)


def create_model(width):
    return nn.Sequential(nn.Linear(9, width), nn.PReLU(), nn.Linear(width, 1))


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(0)
        self.model = create_model(cfg["width"])
        self.optimizer = create_optimizer(cfg["optimizer"], self.model.parameters(), cfg["lr"])
        # keep an untouched copy of the initial model, wrap the working copy
        self.initial = self.model
        self.model = DistributedDataParallel(copy.deepcopy(self.model))

    def loader(self):
        g = torch.Generator().manual_seed(4)
        x = torch.randn(180, 9, generator=g)
        y = x[:, :1] - x[:, 1:2] * 2
        ds = TensorDataset(x, y)
        self.sampler = DistributedSampler(ds)
        return DataLoader(ds, self.cfg["batch_size"], sampler=self.sampler)

    def run(self):
        loader = self.loader()
        for epoch in range(self.cfg["epochs"]):
            self.sampler.set_epoch(epoch)
            total = 0.0
            for x, y in loader:
                self.model.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
            if os.environ["RANK"] == "0":
                print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Experiment(CONFIG).run()
    dist.destroy_process_group()
