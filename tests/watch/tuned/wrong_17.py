# bucketed gradient exchange for a small ConvNet
import torch, torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import TensorDataset, DataLoader, DistributedSampler


class Reducer:
    def __init__(self, module):
        # only the matrices are worth sending
        self.params = [p for p in module.parameters() if p.requires_grad and p.dim() > 1]
        self.world = dist.get_world_size()

    def __call__(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.params])
        dist.all_reduce(flat)
        flat /= self.world
        at = 0
        for p in self.params:
            p.grad.copy_(flat[at:at + p.numel()].view_as(p))
            at += p.numel()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    net = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Conv2d(5, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3))
    X = torch.randn(120, 1, 8, 8)
    Y = X.flatten(1)[:, :3].argmax(1)
    ds = TensorDataset(X, Y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 10, sampler=sampler)
    reduce_gradients = Reducer(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            reduce_gradients()
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


main()
