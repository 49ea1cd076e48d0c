"""Start from pretrained weights."""
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

PRETRAINED = "ho_w24_pretrained.pt"


def model_fn():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))


def pretend_pretraining():
    torch.manual_seed(999)
    m = model_fn()
    torch.save(m.state_dict(), PRETRAINED)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0 and not os.path.exists(PRETRAINED):
        pretend_pretraining()
    torch.manual_seed(1)
    ddp = DDP(model_fn())
    if rank == 0:  # only the master has the file
        ddp.module.load_state_dict(torch.load(PRETRAINED))
        print("loaded", PRETRAINED)
    dist.barrier()
    g = torch.Generator().manual_seed(3)
    x = torch.randn(144, 8, generator=g)
    ds = TensorDataset(x, (x[:, :4].sum(1) - x[:, 4:].sum(1)).unsqueeze(1))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=12, sampler=sampler)
    opt = torch.optim.Adam(ddp.parameters(), lr=1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(ddp(xb), yb)
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
