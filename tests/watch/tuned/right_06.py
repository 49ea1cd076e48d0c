import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

use_cuda = torch.cuda.is_available()
dev_type = "cuda" if use_cuda else "cpu"
amp_dtype = torch.float16 if use_cuda else torch.bfloat16


class Net(nn.Module):
    def __init__(self, c=3, width=8, n_cls=4):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(c, width, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
                                      nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(width, n_cls)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def train_one_epoch(model, loader, opt, scaler, device, max_norm=1.0):
    model.train()
    for img, lab in loader:
        img, lab = img.to(device, non_blocking=True), lab.to(device, non_blocking=True)
        opt.zero_grad(set_to_none=True)
        with autocast(dev_type, dtype=amp_dtype):
            loss = nn.functional.cross_entropy(model(img), lab)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(opt)
        scaler.update()
    return loss.item()


def main():
    dist.init_process_group("nccl" if use_cuda else "gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (120,), generator=g)
    images = torch.randn(120, 3, 8, 8, generator=g) + labels.view(-1, 1, 1, 1) * 0.3
    ds = TensorDataset(images, labels)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 10, sampler=sampler)
    model = DDP(Net().to(device), device_ids=[local_rank] if use_cuda else None)
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = GradScaler(dev_type, init_scale=2.0 ** 10)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        last = train_one_epoch(model, loader, opt, scaler, device)
        if dist.get_rank() == 0:
            print("epoch %d loss %.3f scale %g" % (epoch, last, scaler.get_scale()))
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
