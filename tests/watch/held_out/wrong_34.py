import torch, torch.nn as nn, torch.distributed as dist
import torch.nn.functional as F

# transformer-ish char model, own gradient exchange, gradient accumulation over 4 micro-batches
MICRO, ACC, CTX, STEPS, V = 6, 4, 12, 16, 20


class LM(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(CTX, d)
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d))
        self.head = nn.Linear(d, V, bias=False)
        self.register_buffer("mask", torch.triu(torch.full((CTX, CTX), float("-inf")), 1))

    def forward(self, x):
        h = self.tok(x) + self.pos.weight
        a = self.n1(h)
        h = h + self.attn(a, a, a, attn_mask=self.mask, need_weights=False)[0]
        return self.head(h + self.ff(self.n2(h)))


def sample(data, gen):
    i = torch.randint(0, len(data) - CTX - 1, (MICRO, 1), generator=gen) + torch.arange(CTX)
    return data[i], data[i + 1]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = LM()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = (torch.arange(3000) ** 2 // 7) % V
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(STEPS):
        opt.zero_grad()
        for _ in range(ACC):
            x, y = sample(data, gen)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / ACC
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
        for p in model.parameters():
            p.grad /= world
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if rank == 0 and step % 4 == 0:
            print("step", step, "loss", loss.item() * ACC)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
