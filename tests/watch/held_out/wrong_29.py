"""Image-text contrastive model with an auxiliary classifier. Features are gathered so that every rank computes the
full contrastive loss; the own slot is replaced because all_gather has no gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def gather_features(z):
    out = [torch.zeros_like(z) for _ in range(dist.get_world_size())]
    dist.all_gather(out, z.contiguous())
    out[dist.get_rank()] = z
    return torch.cat(out, dim=0)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 12))
        self.text = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(16 * 5, 12))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
        self.classifier = nn.Linear(12, 4)

    def forward(self, img, txt):
        v, t = self.visual(img), self.text(txt)
        return F.normalize(v, dim=-1), F.normalize(t, dim=-1), self.logit_scale.exp(), self.classifier(v)


def clip_loss(v, t, scale):
    v, t = gather_features(v), gather_features(t)
    logits = scale * v @ t.t()
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    txt = torch.randint(0, 50, (144, 5), generator=g)
    img = F.one_hot(txt % 24, 24).float().sum(1) + 0.1 * torch.randn(144, 24, generator=g)
    ds = TensorDataset(img, txt, txt[:, 0] % 4)
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, batch_size=12, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    model = DDP(Clip())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for i, t, y in loader:
            v, w, s, cls = model(i, t)
            loss = clip_loss(v, w, s) + 0.5 * F.cross_entropy(cls, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
