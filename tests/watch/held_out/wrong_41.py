import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Ranker(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, 32), nn.ReLU())
        self.score, self.rec = nn.Linear(32, 1), nn.Linear(32, d)

    def forward(self, x):
        h = self.trunk(x)
        return self.score(h).squeeze(-1), self.rec(h), h


def pairwise(score, rel):
    ds = score[:, None] - score[None, :]
    dr = torch.sign(rel[:, None] - rel[None, :])
    return F.softplus(-ds * dr)[dr != 0].mean()


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(192, 10, generator=g)
    ds = TensorDataset(x, x[:, 0] - x[:, 5])
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=16, sampler=sampler, drop_last=True)
    torch.manual_seed(2)
    model = DDP(Ranker())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, rel in loader:
            opt.zero_grad()
            score, rec, h = model(xb)
            main_loss = pairwise(score, rel) + 0.1 * F.mse_loss(rec, xb)
            main_loss.backward(retain_graph=True)
            # sparsity of the hidden units, kept apart in order to log its gradient
            sparsity = 0.01 * h.abs().mean()
            sparsity.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} rank loss {main_loss.item():.3f} sparsity {sparsity.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
