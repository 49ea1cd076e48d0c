# language model, accumulation over micro batches, gradients exchanged by hand
import torch, torch.distributed as dist
import torch.nn as nn, torch.nn.functional as F

VOCAB, CTX, BS, ACCUM, STEPS = 16, 8, 4, 3, 18

class TinyLM(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(CTX, d)
        self.att = nn.MultiheadAttention(d, 2, batch_first=True)
        self.ff = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.head = nn.Linear(d, VOCAB)
        self.register_buffer('mask', torch.triu(torch.ones(CTX, CTX, dtype=torch.bool), 1))

    def forward(self, idx):
        h = self.tok(idx) + self.pos(torch.arange(CTX))
        a, _ = self.att(h, h, h, attn_mask=self.mask, need_weights=False)
        h = h + a
        return self.head(h + self.ff(h))

def batch(stream, gen):
    i = torch.randint(len(stream) - CTX - 1, (BS,), generator=gen)
    return (torch.stack([stream[k:k + CTX] for k in i]), torch.stack([stream[k + 1:k + CTX + 1] for k in i]))

def main():
    dist.init_process_group('gloo')
    rank, world = dist.get_rank(), dist.get_world_size()
    stream = torch.tensor([(i * i + 3 * i) % VOCAB for i in range(3000)])
    gen = torch.Generator().manual_seed(10 + rank)
    torch.manual_seed(0)
    model = TinyLM()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        for _ in range(ACCUM):
            x, y = batch(stream, gen)
            loss = F.cross_entropy(model(x).transpose(1, 2), y) / ACCUM
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
        for p in model.parameters():
            p.grad /= world
        opt.step()
        if rank == 0 and step % 6 == 0: print('step', step, 'loss', loss.item() * ACCUM)
    dist.destroy_process_group()

main()
