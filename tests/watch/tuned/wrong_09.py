import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.box = nn.Linear(24, 4)
        self.cls = nn.Linear(24, 3)

    def forward(self, x):
        h = self.backbone(x)
        return self.box(h), self.cls(h)


class LossWrapper(nn.Module):
    """computes the losses along with the forward pass"""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.l1, self.ce = nn.SmoothL1Loss(), nn.CrossEntropyLoss()

    def forward(self, x, box, cls):
        b, c = self.net(x)
        return self.l1(b, box) + self.ce(c, cls)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    g = torch.Generator().manual_seed(16)
    x = torch.randn(144, 12, generator=g)
    ds = TensorDataset(x, x[:, 4:8] * 2, x[:, :3].argmax(1))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    net = Detector()
    criterion = LossWrapper(net)
    net = DDP(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        net.train()
        for batch in loader:
            loss = criterion(*batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
            torch.save(net.module.state_dict(), "ho_w09.pt")
    dist.destroy_process_group()


main()
