"""Two-tower contrastive training with negatives from the whole global batch."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        ctx.rows = len(x)
        return torch.cat(out)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad.narrow(0, dist.get_rank() * ctx.rows, ctx.rows)


class Pairs(Dataset):
    def __init__(self, n=112):
        g = torch.Generator().manual_seed(15)
        concept = torch.randn(n, 6, generator=g)
        self.image = torch.tanh(concept @ torch.randn(6, 3 * 5 * 5, generator=g)).view(n, 3, 5, 5)
        self.text = concept @ torch.randn(6, 14, generator=g) + 0.1 * torch.randn(n, 14, generator=g)

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return dict(image=self.image[i], text=self.text[i])


class TwoTower(nn.Module):
    def __init__(self, width=24, out=12):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(3, width, 3), nn.GELU(), nn.Flatten(), nn.Linear(9 * width, out))
        self.textual = nn.Sequential(nn.Linear(14, width), nn.GELU(), nn.Linear(width, out))
        self.logit_scale = nn.Parameter(torch.full((1,), 2.0))

    def forward(self, image, text):
        return F.normalize(self.visual(image), dim=-1), F.normalize(self.textual(text), dim=-1), self.logit_scale.exp()


def clip_loss(img, txt, scale):
    all_img, all_txt = GatherLayer.apply(img), GatherLayer.apply(txt)
    target = torch.arange(len(img)) + dist.get_rank() * len(img)
    return 0.5 * (F.cross_entropy(scale * img @ all_txt.T, target) + F.cross_entropy(scale * txt @ all_img.T, target))


@torch.no_grad()
def clip_gradients(params, limit):
    grads = [p.grad.to_local() for p in params if p.grad is not None]
    square = torch.stack([g.square().sum() for g in grads]).sum()
    dist.all_reduce(square)
    norm = square.sqrt()
    for g in grads:
        g.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


def main(opt):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(opt.seed)
    model = TwoTower()
    fully_shard(model.visual)
    fully_shard(model.textual)
    fully_shard(model)
    named = list(model.named_parameters())
    no_decay = [p for n, p in named if p.ndim < 2 or "logit_scale" in n]
    decay = [p for n, p in named if not (p.ndim < 2 or "logit_scale" in n)]
    optimizer = torch.optim.AdamW([{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.2}],
                                  lr=opt.lr, betas=(0.9, 0.98))
    data = Pairs()
    sampler = DistributedSampler(data, drop_last=True, seed=opt.seed)
    loader = DataLoader(data, batch_size=opt.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(opt.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss = clip_loss(*model(batch["image"], batch["text"]))
            loss.backward()
            norm = clip_gradients([p for _, p in named], 1.0)
            optimizer.step()
        value = loss.detach().clone()
        dist.all_reduce(value)
        if rank == 0:
            print(f"epoch {epoch}: contrastive loss {value.item() / world:.4f}, grad norm {norm.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    for flag, default in (("--lr", 4e-3), ("--batch-size", 8), ("--epochs", 3), ("--seed", 0)):
        p.add_argument(flag, type=type(default), default=default)
    main(p.parse_args())
