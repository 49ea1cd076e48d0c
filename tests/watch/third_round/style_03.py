# nano-style pretraining: one flat script, own token loader, Muon for the matrices and AdamW for the rest
import math
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

# -----------------------------------------------------------------------------
device_batch_size = int(os.environ.get("BATCH_SIZE", 4))
total_batch_size = 512        # tokens per optimizer step, over all ranks
sequence_len = 16
vocab, n_embd, n_layer, n_head = 32, 32, 2, 2
num_epochs = 3
matrix_lr, embedding_lr = 0.02, 0.01
# -----------------------------------------------------------------------------

dist.init_process_group("gloo")
ddp_rank, ddp_world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
print0 = print if ddp_rank == 0 else (lambda *a, **k: None)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab, n_embd)
        self.wpe = nn.Embedding(sequence_len, n_embd)
        self.h = nn.ModuleList([Block() for _ in range(n_layer)])
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight[: idx.size(1)]
        for block in self.h:
            x = block(x)
        logits = 15 * torch.tanh(self.lm_head(F.rms_norm(x, (n_embd,))) / 15)
        return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=False)
        self.c_out = nn.Linear(4 * n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, n_head, -1).transpose(1, 2) for t in self.c_qkv(F.rms_norm(x, (C,))).chunk(3, -1))
        x = x + self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.c_out(F.relu(self.c_fc(F.rms_norm(x, (C,)))).square())


rng = torch.Generator().manual_seed(1337)
tokens = (torch.arange(128 * sequence_len + 1) * 5 + torch.randint(0, 3, (128 * sequence_len + 1,), generator=rng)) % vocab


def token_loader():
    stride = device_batch_size * sequence_len
    pos = ddp_rank * stride
    while True:
        if pos + stride + 1 > len(tokens):
            pos = ddp_rank * stride
        buf = tokens[pos : pos + stride + 1]
        yield buf[:-1].view(device_batch_size, sequence_len), buf[1:].view(device_batch_size, sequence_len)
        pos += stride * ddp_world_size


tokens_per_fwdbwd = device_batch_size * sequence_len * ddp_world_size
assert total_batch_size % tokens_per_fwdbwd == 0
grad_accum_steps = total_batch_size // tokens_per_fwdbwd
num_iterations = num_epochs * (len(tokens) - 1) // total_batch_size
print0(f"gradient accumulation steps: {grad_accum_steps}, iterations: {num_iterations}")

torch.manual_seed(42)
model = GPT()
for p in model.h.parameters():
    nn.init.uniform_(p, -math.sqrt(3 / n_embd), math.sqrt(3 / n_embd))
for block in model.h:
    fully_shard(block)
fully_shard(model)
optimizers = [
    torch.optim.AdamW([*model.wte.parameters(), *model.wpe.parameters(), *model.lm_head.parameters()],
                      lr=embedding_lr, betas=(0.8, 0.95), weight_decay=0.0),
    torch.optim.Muon(model.h.parameters(), lr=matrix_lr, momentum=0.95),
]
for opt in optimizers:
    for group in opt.param_groups:
        group["initial_lr"] = group["lr"]

train_loader = token_loader()
x, y = next(train_loader)
for it in range(num_iterations):
    train_loss = torch.zeros(())
    for micro_step in range(grad_accum_steps):
        model.set_requires_gradient_sync(micro_step == grad_accum_steps - 1)
        loss = model(x, y) / grad_accum_steps
        train_loss += loss.detach()
        loss.backward()
        x, y = next(train_loader)
    lrm = 1.0 if it < num_iterations // 2 else 2 * (num_iterations - it) / num_iterations
    for opt in optimizers:
        for group in opt.param_groups:
            group["lr"] = group["initial_lr"] * lrm
        opt.step()
    model.zero_grad(set_to_none=True)
    dist.all_reduce(train_loss, op=dist.ReduceOp.SUM)
    print0(f"step {it:02d} | loss {train_loss.item() / ddp_world_size:.4f} | lrm {lrm:.2f}")
dist.destroy_process_group()
