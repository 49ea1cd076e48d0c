import torch, torch.nn as nn, torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DistributedModule(nn.Module):
    """our own light wrapper from before we moved to DDP"""

    def __init__(self, module, bucket_elems=400):
        super().__init__()
        self.module = module
        self.buckets, cur, size = [], [], 0
        for p in module.parameters():
            dist.broadcast(p.detach(), 0)
            cur.append(p)
            size += p.numel()
            if size >= bucket_elems:
                self.buckets.append(cur)
                cur, size = [], 0
        if cur:
            self.buckets.append(cur)

    def forward(self, *a, **k):
        return self.module(*a, **k)

    def sync_gradients(self):
        world = dist.get_world_size()
        handles = []
        for b in self.buckets:
            flat = _flatten_dense_tensors([p.grad for p in b])
            flat.div_(world)
            handles.append((dist.all_reduce(flat, async_op=True), flat, b))
        for h, flat, b in handles:
            h.wait()
            for p, g in zip(b, _unflatten_dense_tensors(flat, [p.grad for p in b])):
                p.grad.copy_(g)


def batches(x, y, bs, rank, world, epoch):
    g = torch.Generator().manual_seed(epoch)
    order = torch.randperm(len(x), generator=g)
    for start in range(0, len(x) - bs * world + 1, bs * world):
        idx = order[start + rank * bs: start + (rank + 1) * bs]
        yield x[idx], y[idx]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(0)
    x = torch.randn(252, 9, generator=g)
    y = (x[:, :3].norm(dim=1) > x[:, 3:6].norm(dim=1)).float()
    net = DistributedModule(nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    bce = nn.BCEWithLogitsLoss()
    for epoch in range(4):
        for xb, yb in batches(x, y, 14, rank, world, epoch):
            opt.zero_grad()
            loss = bce(net(xb).squeeze(-1), yb)
            loss.backward()
            net.sync_gradients()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            opt.step()
        if rank == 0:
            print(f"[{epoch}] {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
