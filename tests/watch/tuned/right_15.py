import torch, torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def buckets(tensors, cap=400):
    cur, n = [], 0
    for t in tensors:
        if cur and n + t.numel() > cap:
            yield cur
            cur, n = [], 0
        cur.append(t)
        n += t.numel()
    if cur:
        yield cur


def sync_grads(params):
    """all-reduce in flat buckets, overlapped"""
    W = dist.get_world_size()
    grads = [p.grad for p in params if p.grad is not None]
    pending = []
    for b in buckets(grads):
        flat = _flatten_dense_tensors(b)
        flat.div_(W)
        pending.append((dist.all_reduce(flat, async_op=True), flat, b))
    for work, flat, b in pending:
        work.wait()
        for old, new in zip(b, _unflatten_dense_tensors(flat, b)):
            old.copy_(new)


def sync_params(module, src=0):
    with torch.no_grad():
        for t in list(module.parameters()) + list(module.buffers()):
            dist.broadcast(t, src)


if __name__ == '__main__':
    dist.init_process_group('gloo')
    model = nn.Sequential(nn.Linear(9, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 3))
    sync_params(model)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.Adam(params, 2e-3)
    g = torch.Generator().manual_seed(8)
    X = torch.randn(198, 9, generator=g)
    Y = X.view(-1, 3, 3).mean(1)
    ds = TensorDataset(X, Y)
    sampler = DistributedSampler(ds, seed=21)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(ds, 11, sampler=sampler):
            model.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            sync_grads(params)
            opt.step()
        if not dist.get_rank():
            print(epoch, loss.item())
    dist.destroy_process_group()
