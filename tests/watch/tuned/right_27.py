# no DDP: loss is divided by the global batch, gradients are only summed
import os, torch
import torch.distributed as dist
import torch.nn.functional as F

def mlp(sizes):
    mods = []
    for i, o in zip(sizes[:-1], sizes[1:]):
        mods += [torch.nn.Linear(i, o), torch.nn.ReLU()]
    return torch.nn.Sequential(*mods[:-1])

def main():
    dist.init_process_group('gloo')
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(123)   # the same weights everywhere
    net = mlp([8, 24, 24, 4])
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    g = torch.Generator().manual_seed(124)
    X = torch.randn(240, 8, generator=g)
    Y = (X[:, :2] > 0).long() @ torch.tensor([1, 2])
    GLOBAL_BATCH = 24
    for epoch in range(3):
        perm = torch.randperm(len(X), generator=g)
        for start in range(0, len(X), GLOBAL_BATCH):
            batch = perm[start:start + GLOBAL_BATCH]
            mine = batch.chunk(world)[rank]
            loss = F.cross_entropy(net(X[mine]), Y[mine], reduction='sum') / len(batch)
            net.zero_grad()
            loss.backward()
            for p in net.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            opt.step()
        with torch.no_grad():
            acc = (net(X[rank::world]).argmax(1) == Y[rank::world]).float().mean()
        dist.all_reduce(acc)
        if rank == 0:
            print('epoch', epoch, 'acc', acc.item() / world)
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
