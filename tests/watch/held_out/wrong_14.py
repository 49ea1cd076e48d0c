import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def cnn():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                         nn.Linear(32, 2))


def validate(model, loader):
    """Run over the validation set and return the accuracy"""
    model.eval()
    correct = total = 0
    loss_sum = torch.zeros(1)
    with torch.no_grad():
        for img, target in loader:
            out = model(img)
            loss_sum += nn.functional.cross_entropy(out, target, reduction="sum")
            correct += (out.argmax(1) == target).sum().item()
            total += target.numel()
    dist.all_reduce(loss_sum)          # averaged for the log
    return correct / total, loss_sum.item() / total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    img = torch.randn(240, 1, 7, 7)
    lab = (img[:, 0, 3, 3] > 0).long()
    train = TensorDataset(img[:180], lab[:180])
    val = TensorDataset(img[180:], lab[180:])
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=10, sampler=sampler)
    val_loader = DataLoader(val, batch_size=20)
    model = DDP(cnn())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for im, la in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(im), la).backward()
            optimizer.step()
        if rank == 0:
            acc, vloss = validate(model, val_loader)
            print(f"epoch {epoch} val acc {acc:.3f} loss {vloss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
