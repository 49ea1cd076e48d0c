import torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import TensorDataset, DataLoader, random_split
from torch.utils.data.distributed import DistributedSampler

def accuracy(model, dl):
    model.eval()
    c = torch.zeros(2)
    with torch.no_grad():
        for x, y in dl:
            c += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)], dtype=torch.float)
    dist.all_reduce(c)
    model.train()
    return (c[0] / c[1]).item()

def main():
    dist.init_process_group('gloo')
    g = torch.Generator().manual_seed(5)
    X = torch.randn(240, 6, generator=g)
    Y = (X.pow(2).sum(1) > 5.3).long()
    dataset = TensorDataset(X, Y)
    n_val = int(0.2 * len(dataset))
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val])
    train_sampler = DistributedSampler(train_set)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_dl = DataLoader(train_set, 16, sampler=train_sampler)
    val_dl = DataLoader(val_set, 8, sampler=val_sampler)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        for x, y in train_dl:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
        acc = accuracy(model, val_dl)
        if dist.get_rank() == 0:
            print('epoch', epoch, 'val acc', acc)
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
