"""Top-k sparsified gradients with error feedback, as a DDP communication hook."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class TopKState:
    def __init__(self, ratio=0.25):
        self.ratio = ratio
        self.error = {}


def topk_hook(state, bucket):
    buf = bucket.buffer()
    err = state.error.get(bucket.index())
    acc = buf if err is None or err.shape != buf.shape else buf + err
    k = max(1, int(acc.numel() * state.ratio))
    thresh = acc.abs().topk(k).values[-1]
    sparse = torch.where(acc.abs() >= thresh, acc, torch.zeros_like(acc))
    state.error[bucket.index()] = acc - sparse
    fut = torch.futures.Future()
    fut.set_result(sparse)
    return fut


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(192, 14, generator=g)
    y = torch.relu(x @ torch.randn(14, 2, generator=g))
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 2)))
    model.register_comm_hook(TopKState(), topk_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
