import os, shutil, tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def save_checkpoint(state, is_best, folder, filename="checkpoint.pth.tar"):
    path = os.path.join(folder, filename)
    torch.save(state, path)
    if is_best:
        shutil.copyfile(path, os.path.join(folder, "model_best.pth.tar"))


def main():
    dist.init_process_group(backend="gloo", init_method="env://")
    folder = os.path.join(tempfile.gettempdir(), f"run_{os.environ['MASTER_PORT']}_w18")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    x = torch.randn(240, 11)
    y = (x.abs().sum(1) > 8.5).long()
    ds = TensorDataset(x[:180], y[:180])
    model = DDP(nn.Sequential(nn.Linear(11, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=15, sampler=sampler)
    best = 0.0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            acc = (model(x[180:]).argmax(1) == y[180:]).float().mean().item()
        is_best = acc > best
        best = max(acc, best)
        save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict(), "best": best,
                         "optimizer": optimizer.state_dict()}, is_best, folder)
        print(f"Epoch {epoch} acc {acc:.3f}")
    dist.barrier()
    shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
