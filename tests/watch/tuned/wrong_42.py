import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

class Stats:
    """counts bytes that DDP would send"""
    def __init__(self):
        self.bytes = 0

def logging_hook(state, bucket):
    t = bucket.buffer()
    state.bytes += t.numel() * t.element_size()
    t.div_(dist.get_world_size())
    fut = torch.futures.Future()
    fut.set_result(t)
    return fut

def main():
    dist.init_process_group('gloo')
    stats = Stats()
    gen = torch.Generator().manual_seed(27)
    X = torch.randn(126, 5, generator=gen)
    ds = TensorDataset(X, X.sort(1).values[:, 2:3])
    sampler = DistributedSampler(ds)
    dl = DataLoader(ds, 7, sampler=sampler)
    ddp = DDP(nn.Sequential(nn.Linear(5, 25), nn.ReLU(), nn.Linear(25, 1)))
    ddp.register_comm_hook(stats, logging_hook)
    opt = torch.optim.Adam(ddp.parameters(), lr=3e-3)
    for ep in range(3):
        sampler.set_epoch(ep)
        for x, y in dl:
            opt.zero_grad()
            loss = nn.functional.l1_loss(ddp(x), y)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print('ep', ep, 'loss', loss.item(), 'bytes', stats.bytes)
    dist.destroy_process_group()

main()
