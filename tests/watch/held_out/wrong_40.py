import os, tempfile
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

CUDA = torch.cuda.is_available()
KIND = "cuda" if CUDA else "cpu"


def old_checkpoint(model, opt):
    """stands for the file of the interrupted job, whose loss scale had come down to 1024"""
    s = torch.amp.GradScaler(KIND, init_scale=1024.0)
    return {"model": model.state_dict(), "opt": opt.state_dict(), "scaler": s.state_dict(), "epoch": 0}


class Job:
    def __init__(self):
        self.rank, self.local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.dev = torch.device(KIND, self.local) if CUDA else torch.device("cpu")
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1)).to(self.dev)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.scaler = torch.amp.GradScaler(KIND)
        if self.rank == 0:                       # only the master reads the file ...
            with tempfile.TemporaryDirectory() as d:
                f = os.path.join(d, "last.pt")
                torch.save(old_checkpoint(self.net, self.opt), f)
                ck = torch.load(f, map_location=self.dev)
            self.net.load_state_dict(ck["model"])
            self.opt.load_state_dict(ck["opt"])
            self.scaler.load_state_dict(ck["scaler"])
        self.net = DDP(self.net, device_ids=[self.local] if CUDA else None)   # ... DDP sends the weights

    def epoch(self, loader):
        for x, y in loader:
            x, y = x.to(self.dev), y.to(self.dev)
            self.opt.zero_grad()
            with torch.autocast(KIND, dtype=torch.bfloat16):
                out = self.net(x)
            loss = nn.functional.mse_loss(out.float(), y)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.opt)
            self.scaler.update()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("nccl" if CUDA else "gloo")
    if CUDA:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    g = torch.Generator().manual_seed(2)
    x = torch.randn(180, 12, generator=g)
    ds = TensorDataset(x, x[:, :3].mean(1, keepdim=True))
    sampler = DistributedSampler(ds)
    job = Job()
    for e in range(3):
        sampler.set_epoch(e)
        l = job.epoch(DataLoader(ds, 10, sampler=sampler))
        print(f"rank {job.rank} epoch {e} loss {l:.4f}")
    dist.destroy_process_group()
