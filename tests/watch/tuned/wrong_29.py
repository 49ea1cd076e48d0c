import os, torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

OUT = 'ho_w29_ckpts'

def save_checkpoint(state, epoch):
    os.makedirs(OUT, exist_ok=True)
    torch.save(state, os.path.join(OUT, 'checkpoint_%d.pth.tar' % epoch))
    torch.save(state, os.path.join(OUT, 'last.pth.tar'))

def main():
    dist.init_process_group('gloo')
    gen = torch.Generator().manual_seed(19)
    X = torch.rand(126, 3, generator=gen)
    Y = (X[:, :1] * 6.28).sin() + X[:, 1:2]
    ds = TensorDataset(X, Y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 7, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 30), nn.ReLU(), nn.Linear(30, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print('epoch', epoch, 'mean loss', total / len(loader))
        save_checkpoint({'epoch': epoch + 1, 'state_dict': model.state_dict(),
                         'optimizer': optimizer.state_dict()}, epoch)
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
