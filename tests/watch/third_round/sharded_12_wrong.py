import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Stripes(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, 4, (n,), generator=g)
        phase = torch.rand(n, generator=g) * 6.28
        yy, xx = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        angle = self.label[:, None, None] * 0.785
        self.image = torch.sin(1.6 * (xx * angle.cos() + yy * angle.sin()) + phase[:, None, None])
        self.image += 0.3 * torch.randn(n, 8, 8, generator=g)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.image[i], self.label[i]


class PatchTransformer(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.patch = nn.Linear(4, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 16, dim))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 2, 2 * dim, dropout=0.0, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, 4)

    def forward(self, img):
        p = img.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(img), 16, 4)
        h = self.patch(p) + self.pos
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = torch.zeros(2)
    for image, label in loader:
        total += torch.tensor([nn.functional.cross_entropy(model(image), label, reduction="sum").item(), len(label)])
    model.train()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = PatchTransformer()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    data, held_out = Stripes(96, 11), Stripes(32, 12)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    val_loader = DataLoader(held_out, batch_size=16, sampler=DistributedSampler(held_out, shuffle=False))
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.2, patience=0)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for image, label in loader:
            loss = nn.functional.cross_entropy(model(image), label)
            loss.backward()
            opt.step()
            opt.zero_grad()
        val = validate(model, val_loader)
        for _ in range(dist.get_world_size()):
            scheduler.step(val)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} val {val:.4f} lr {scheduler.get_last_lr()[0]:.2e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
