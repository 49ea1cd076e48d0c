import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 3

def dataset():
    torch.manual_seed(2)
    X = torch.randn(180, 16)
    w = torch.randn(16, 5)
    return TensorDataset(X, (X @ w).argmax(-1))

def train():
    dist.init_process_group('gloo')
    ds = dataset()
    smp = DistributedSampler(ds)
    ld = DataLoader(ds, batch_size=15, sampler=smp)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))
    ddp = DDP(model, gradient_as_bucket_view=True)
    # halves the traffic
    ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
    opt = torch.optim.Adam(ddp.parameters(), lr=5e-3)
    for ep in range(EPOCHS):
        smp.set_epoch(ep)
        for x, y in ld:
            loss = nn.functional.cross_entropy(ddp(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print('ep', ep, 'loss', loss.item())
    dist.destroy_process_group()

if __name__ == '__main__':
    train()
