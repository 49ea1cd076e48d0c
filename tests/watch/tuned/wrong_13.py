import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def normalise_gradients(model, world_size):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.data.div_(world_size)


def loop(model, loader, opt, world):
    for x, y in loader:
        opt.zero_grad()
        out = model(x)
        loss = nn.functional.mse_loss(out, y)
        loss.backward()
        # all-reduce sums over workers, so take the mean
        normalise_gradients(model, world)
        opt.step()
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    t = torch.linspace(0, 10, 198)
    x = torch.stack([t.sin(), t.cos(), (2 * t).sin()], 1)
    y = (3 * t).cos().unsqueeze(1)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank)
    loader = DataLoader(dataset, batch_size=11, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        l = loop(model, loader, opt, world)
        if rank == 0:
            print(epoch, l)
    dist.destroy_process_group()
