"""Multi-task learning with learned (homoscedastic) task weights that live INSIDE the wrapped module."""
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Scenes(Dataset):
    def __init__(self, n=180):
        rng = torch.Generator().manual_seed(123)
        self.img = torch.rand(n, 3, 8, 8, generator=rng)
        self.depth = self.img.mean(1, keepdim=True)
        self.seg = (self.img[:, 0] > self.img[:, 1]).long()

    def __getitem__(self, i):
        return self.img[i], self.depth[i], self.seg[i]

    def __len__(self):
        return len(self.img)


class MTNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.InstanceNorm2d(12, affine=True), nn.ReLU())
        self.depth = nn.Conv2d(12, 1, 1)
        self.seg = nn.Conv2d(12, 2, 1)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, img, depth, seg):
        # losses are computed inside forward so that DDP sees log_var, too
        h = self.trunk(img)
        l_d = nn.functional.l1_loss(self.depth(h), depth)
        l_s = nn.functional.cross_entropy(self.seg(h), seg)
        lv = self.log_var
        total = torch.exp(-lv[0]) * l_d + torch.exp(-lv[1]) * l_s + lv.sum()
        return total, {"depth": l_d.detach(), "seg": l_s.detach()}


def reduce_dict(d):
    keys = sorted(d)
    v = torch.stack([d[k] for k in keys])
    dist.all_reduce(v)
    return dict(zip(keys, (v / dist.get_world_size()).tolist()))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = DistributedDataParallel(MTNet())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    milestones = torch.optim.lr_scheduler.MultiStepLR(opt, [2], gamma=0.1)
    ds = Scenes()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=10, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss, parts = model(*batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
        milestones.step()
        parts = reduce_dict(parts)
        if os.environ["RANK"] == "0":
            print("epoch", epoch, parts)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
