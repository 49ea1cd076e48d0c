"""
Small GPT trained on random crops, in the manner of nanoGPT.
"""
import math, os, time
import numpy as np
import torch, torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group, destroy_process_group

batch_size, block_size, gradient_accumulation_steps = 6, 16, 6
n_embd, n_head, vocab = 24, 2, 32
max_iters, warmup, learning_rate, min_lr = 24, 4, 3e-3, 3e-4
grad_clip = 1.0

ddp = int(os.environ.get('RANK', -1)) != -1
if ddp:
    init_process_group(backend='gloo')
    ddp_rank, ddp_world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    master_process = ddp_rank == 0
    seed_offset = ddp_rank  # each process gets a different seed
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size
else:
    master_process, seed_offset, ddp_world_size = True, 0, 1
torch.manual_seed(1337 + seed_offset)

rs = np.random.RandomState(0)
train_data = np.cumsum(rs.randint(0, 3, size=4000)) % vocab

def get_batch():
    ix = torch.randint(len(train_data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(train_data[i:i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(train_data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 2 * n_embd), nn.GELU(), nn.Linear(2 * n_embd, n_embd))
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.proj(a)
        return x + self.mlp(self.ln2(x))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.h = Block()
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
    def forward(self, idx, targets):
        x = self.h(self.wte(idx) + self.wpe(torch.arange(idx.size(1))))
        return F.cross_entropy(self.lm_head(x).view(-1, vocab), targets.view(-1))

def get_lr(it):
    if it < warmup: return learning_rate * (it + 1) / (warmup + 1)
    r = (it - warmup) / (max_iters - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * r)) * (learning_rate - min_lr)

model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
if ddp: model = DDP(model)
X, Y = get_batch()
for it in range(max_iters):
    for pg in optimizer.param_groups: pg['lr'] = get_lr(it)
    for micro_step in range(gradient_accumulation_steps):
        if ddp: model.require_backward_grad_sync = (micro_step == gradient_accumulation_steps - 1)
        loss = model(X, Y) / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if it % 8 == 0 and master_process: print(f"iter {it}: loss {loss.item() * gradient_accumulation_steps:.4f}")
if ddp: destroy_process_group()
