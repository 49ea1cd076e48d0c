import os, random, numpy as np, torch
import torch.nn as nn
import torch.distributed as dist
import torch.backends.cudnn as cudnn
from torch.utils.data import Dataset, DataLoader
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Blobs(Dataset):
    def __init__(self, split):
        rs = np.random.RandomState(0 if split == "train" else 1)
        n = 144 if split == "train" else 60
        self.lab = rs.randint(0, 3, n)
        self.img = (rs.randn(n, 1, 10, 10) + self.lab[:, None, None, None] * 0.7).astype("float32")

    def __len__(self):
        return len(self.lab)

    def __getitem__(self, i):
        return torch.from_numpy(self.img[i]), int(self.lab[i])


class SmallCNN(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, w, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True),
            nn.Conv2d(w, w, 3, stride=2, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(w, 3)

    def forward(self, x):
        return self.head(self.features(x))


def main():
    cuda = torch.cuda.is_available()
    gpu = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="nccl" if cuda else "gloo")
    set_seed(2020 + dist.get_rank())
    model = SmallCNN()
    if cuda:
        cudnn.benchmark = True
        torch.cuda.set_device(gpu)
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(gpu)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[gpu] if cuda else None)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    train = Blobs("train")
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=12, sampler=sampler, num_workers=0, pin_memory=cuda)
    test = Blobs("test")
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for img, lab in loader:
            if cuda:
                img, lab = img.cuda(gpu, non_blocking=True), lab.cuda(gpu, non_blocking=True)
            loss = criterion(model(img), lab)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        if dist.get_rank() == 0:
            with torch.no_grad():
                imgs = torch.from_numpy(test.img)
                imgs = imgs.cuda(gpu) if cuda else imgs
                pred = model.module(imgs).argmax(1).cpu().numpy()
            print("epoch", epoch, "test acc", (pred == test.lab).mean())
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
