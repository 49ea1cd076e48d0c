import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector


def flat_grads(params):
    return torch.cat([p.grad.reshape(-1) for p in params])


def unflatten_into(params, vec):
    off = 0
    for p in params:
        n = p.numel()
        p.grad.copy_(vec[off:off + n].view_as(p))
        off += n


def shard(n, rank, world, epoch):
    g = torch.Generator().manual_seed(epoch)
    return torch.randperm(n, generator=g)[rank::world]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 3)
        self.c2 = nn.Conv2d(6, 6, 3)
        self.fc = nn.Linear(6 * 16, 3)

    def forward(self, x):
        x = torch.relu(self.c1(x))
        x = torch.relu(self.c2(x))
        return self.fc(x.flatten(1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    model = Net()
    params = list(model.parameters())
    vec = parameters_to_vector(params).detach()
    dist.broadcast(vec, src=0)
    nn.utils.vector_to_parameters(vec, params)
    x = torch.randn(180, 1, 8, 8)
    y = torch.randint(0, 3, (180,))
    x[:, 0, 0, :] += y[:, None].float()
    sgd = torch.optim.SGD(params, lr=0.02, momentum=0.9)
    for epoch in range(3):
        for idx in shard(180, rank, world, epoch).split(10):
            sgd.zero_grad()
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            loss.backward()
            g = flat_grads(params)
            dist.all_reduce(g)
            unflatten_into(params, g)
            sgd.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()
