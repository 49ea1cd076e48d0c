import copy, os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

def make_optimizer(net, lr):
    return torch.optim.Adam(net.parameters(), lr=lr)

def prepare(net):
    """wrap a clean copy so that the original can be used for inference"""
    clone = copy.deepcopy(net)
    return DDP(clone)

def main():
    dist.init_process_group('gloo')
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 18), nn.ReLU(), nn.Linear(18, 1))
    opt = make_optimizer(net, 1e-2)
    ddp = prepare(net)
    X = torch.randn(132, 6)
    ds = TensorDataset(X, X.mean(1, keepdim=True))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 11, sampler=sampler)
    for ep in range(3):
        sampler.set_epoch(ep)
        acc = 0.
        for x, y in loader:
            ddp.zero_grad()
            loss = nn.functional.mse_loss(ddp(x), y)
            loss.backward()
            opt.step()
            acc += loss.item()
        if os.environ['RANK'] == '0':
            print('epoch', ep, 'loss', acc / len(loader))
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
