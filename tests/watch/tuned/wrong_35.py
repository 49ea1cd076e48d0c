import torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

class BinaryNet(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.fc1 = nn.Linear(n_in, 20)
        self.fc2 = nn.Linear(20, 1)
    def forward(self, x):
        x = torch.relu(self.fc1(x))
        return torch.softmax(self.fc2(x), dim=1)

def main():
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(1)
    x = torch.randn(120, 6, generator=g)
    y = (x.sum(1, keepdim=True) > 0).float()
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=10, sampler=sampler)
    net = DDP(BinaryNet(6))
    optim = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            p = net(xb)
            loss = nn.functional.mse_loss(p, yb)
            optim.zero_grad()
            loss.backward()
            optim.step()
        if rank == 0:
            print('epoch', epoch, 'loss', loss.item())
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
