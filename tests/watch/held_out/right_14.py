# nano-style GPT pretraining loop (single file, no DataLoader)
import math, os
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

block_size, batch_size, n_embd, n_head, vocab = 16, 6, 32, 2, 27
gradient_accumulation_steps = 6      # over all processes
max_iters, warmup, lr_max, lr_min, grad_clip = 24, 4, 3e-3, 3e-4, 1.0

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert gradient_accumulation_steps % world == 0
    gradient_accumulation_steps //= world
else:
    rank, world = 0, 1
master = rank == 0
torch.manual_seed(1337 + rank)

data = (torch.arange(5000) * 7 % vocab + torch.randint(0, 2, (5000,), generator=torch.Generator().manual_seed(1))) % vocab


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, n_head, -1).transpose(1, 2) for z in self.qkv(self.l1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.l2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.h, self.f = nn.ModuleList([Block() for _ in range(2)]), nn.LayerNorm(n_embd)

    def forward(self, idx, tgt):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for b in self.h:
            x = b(x)
        logits = self.f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), tgt.flatten())


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    return torch.stack([data[i:i + block_size] for i in ix]), torch.stack([data[i + 1:i + 1 + block_size] for i in ix])


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=lr_max, betas=(0.9, 0.95))
if ddp:
    model = DDP(model)
for it in range(max_iters):
    lr = lr_max * (it + 1) / warmup if it < warmup else lr_min + 0.5 * (lr_max - lr_min) * (1 + math.cos(math.pi * (it - warmup) / (max_iters - warmup)))
    for g in optimizer.param_groups:
        g["lr"] = lr
    for micro in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro == gradient_accumulation_steps - 1
        loss = model(*get_batch()) / gradient_accumulation_steps
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if master and it % 6 == 0:
        print(it, loss.item() * gradient_accumulation_steps)
if ddp:
    dist.destroy_process_group()
