# inception style: main loss + 0.5 * auxiliary loss
import torch
from torch import nn, distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class TwoExits(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(14, 28), nn.ReLU())
        self.aux = nn.Linear(28, 3)
        self.deep = nn.Sequential(nn.Linear(28, 28), nn.ReLU(), nn.Linear(28, 3))
    def forward(self, x):
        h = self.stem(x)
        if self.training:
            return self.deep(h), self.aux(h)
        return self.deep(h)

def main():
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    torch.manual_seed(40)
    X = torch.randn(150, 14); T = (X.sum(1) > 2).long() + (X.sum(1) > -2).long()
    tr, va = TensorDataset(X[:126], T[:126]), TensorDataset(X[126:], T[126:])
    smp = DistributedSampler(tr, shuffle=True)
    train_dl = DataLoader(tr, 7, sampler=smp)
    val_dl = DataLoader(va, 4, sampler=DistributedSampler(va, shuffle=False))
    net = DistributedDataParallel(TwoExits())
    crit = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for ep in range(3):
        smp.set_epoch(ep)
        net.train()
        for x, t in train_dl:
            main_out, aux_out = net(x)
            loss = crit(main_out, t) + 0.5 * crit(aux_out, t)
            opt.zero_grad(); loss.backward(); opt.step()
        net.eval()
        stat = torch.zeros(2, dtype=torch.float64)
        with torch.no_grad():
            for x, t in val_dl:
                stat += torch.tensor([(net(x).argmax(1) == t).sum(), len(t)], dtype=torch.float64)
        dist.all_reduce(stat)
        if rank == 0: print(f'ep {ep} val acc {(stat[0] / stat[1]).item():.3f}')
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
