import argparse, os, shutil
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Toy(Dataset):
    def __init__(self, size):
        gen = torch.Generator().manual_seed(1234)
        self.x = torch.rand(size, 20, generator=gen)
        self.y = self.x.sum(1, keepdim=True) + 0.01 * torch.randn(size, 1, generator=gen)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Trainer:
    def __init__(self, model, loader, optimizer, save_every, folder):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model, self.loader, self.optimizer = model, loader, optimizer
        self.save_every, self.path = save_every, os.path.join(folder, "snapshot.pt")
        self.epochs_run = 0
        if os.path.exists(self.path):
            self._load_snapshot()
        self.model = DistributedDataParallel(self.model)

    def _load_snapshot(self):
        snap = torch.load(self.path, map_location="cpu")
        self.model.load_state_dict(snap["model"])
        self.optimizer.load_state_dict(snap["optim"])
        self.epochs_run = snap["epoch"] + 1

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, until):
        for epoch in range(self.epochs_run, until):
            self.loader.sampler.set_epoch(epoch)
            last = 0.0
            for s, t in self.loader:
                last = self._run_batch(s, t)
            print(f"[rank {self.global_rank}] epoch {epoch} | steps {len(self.loader)} | {last:.4f}")
            if self.global_rank == 0 and epoch % self.save_every == 0:
                torch.save({"model": self.model.module.state_dict(),
                            "optim": self.optimizer.state_dict(), "epoch": epoch}, self.path)
            dist.barrier()


def build(folder, save_every):
    model = nn.Linear(20, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = Toy(96)
    loader = DataLoader(data, batch_size=8, shuffle=False, sampler=DistributedSampler(data))
    return Trainer(model, loader, optimizer, save_every, folder)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--save_every", type=int, default=1)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"snap_{os.environ['MASTER_PORT']}")
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    dist.barrier()
    build(folder, args.save_every).train(args.epochs // 2)
    build(folder, args.save_every).train(args.epochs)      # simulated restart: all ranks load
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()
