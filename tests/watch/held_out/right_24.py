import copy, os, tempfile
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class EMA:
    def __init__(self, model, decay=0.95):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.state_dict().values(), model.state_dict().values()):
            if s.dtype.is_floating_point:
                s.mul_(self.decay).add_(p, alpha=1 - self.decay)
            else:
                s.copy_(p)


# tiny denoising diffusion model; the EMA lives on rank 0 only because only rank 0 samples
class Denoiser(nn.Module):
    def __init__(self, T=20):
        super().__init__()
        self.T, self.temb = T, nn.Embedding(T, 16)
        self.inp, self.mid, self.out = nn.Linear(2, 16), nn.Linear(16, 32), nn.Linear(32, 2)
        beta = torch.linspace(1e-3, 0.2, T)
        self.register_buffer("abar", torch.cumprod(1 - beta, 0))

    def forward(self, x, t):
        return self.out(F.silu(self.mid(F.silu(self.inp(x) + self.temb(t)))))


def moons(n=216):
    g = torch.Generator().manual_seed(9)
    a = torch.rand(n, generator=g) * 3.14159
    s = (torch.arange(n) % 2).float()
    return torch.stack([torch.cos(a) + s - .5, (1 - 2 * s) * torch.sin(a) + .25 * s], 1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank + 1)
    model = DDP(Denoiser())
    ema = EMA(model.module) if rank == 0 else None
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    ds = torch.utils.data.TensorDataset(moons())
    sampler = torch.utils.data.DistributedSampler(ds)
    dl = torch.utils.data.DataLoader(ds, batch_size=12, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for (x0,) in dl:
            t = torch.randint(0, model.module.T, (len(x0),))
            a = model.module.abar[t].unsqueeze(1)
            noise = torch.randn_like(x0)
            loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
            opt.zero_grad(); loss.backward(); opt.step()
            if ema:
                ema.update(model.module)
    if rank == 0:
        with torch.no_grad():
            out = ema.shadow(torch.randn(8, 2), torch.full((8,), 19))
        with tempfile.TemporaryDirectory() as d:
            torch.save(ema.shadow.state_dict(), os.path.join(d, "ema.pt"))
        print("sampled", out.shape, "loss", loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
