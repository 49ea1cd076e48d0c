"""Tiny mixture-of-experts language model with a second prediction head, sharded with FSDP2."""
import itertools
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, DIM, SEQ, EXPERTS, TOPK, BIAS_RATE = 24, 16, 12, 4, 2, 0.02

class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.w_in = nn.Parameter(torch.randn(EXPERTS, DIM, 2 * DIM) * DIM ** -0.5)
        self.w_out = nn.Parameter(torch.randn(EXPERTS, 2 * DIM, DIM) * (2 * DIM) ** -0.5)
        self.register_buffer("expert_bias", torch.zeros(EXPERTS))
        self.register_buffer("tokens_per_expert", torch.zeros(EXPERTS))

    def forward(self, x):
        scores = self.router(x).sigmoid()
        mask = torch.zeros_like(scores).scatter(-1, (scores + self.expert_bias).topk(TOPK).indices, 1.0)
        self.tokens_per_expert += mask.detach().sum((0, 1))
        gates = F.normalize(scores * mask, p=1, dim=-1)
        hidden = F.silu(torch.einsum("btd,edh->bteh", x, self.w_in))
        return torch.einsum("bteh,ehd,bte->btd", hidden, self.w_out, gates)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn, self.moe = nn.MultiheadAttention(DIM, 2, batch_first=True), MoE()

    def forward(self, x):
        causal = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=causal)[0]
        return x + self.moe(self.norm2(x))

class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCAB, DIM), nn.Linear(DIM, VOCAB)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.mtp_layers = nn.ModuleList([Layer()])

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(x), self.out(self.mtp_layers[0](x))

@torch.no_grad()
def balance_experts(model):
    for layer in model.layers:
        dist.all_reduce(layer.moe.tokens_per_expert)
    for layer in itertools.chain(model.layers, model.mtp_layers):
        load = layer.moe.tokens_per_expert
        delta = BIAS_RATE * torch.sign(load.mean() - load)
        layer.moe.expert_bias += delta - delta.mean()
        load.zero_()

dist.init_process_group("gloo")
gen = torch.Generator().manual_seed(3)
start, stride = torch.randint(0, VOCAB, (96, 1), generator=gen), torch.randint(1, 5, (96, 1), generator=gen)
tokens = (start + stride * torch.arange(SEQ + 2)) % VOCAB
sampler = DistributedSampler(TensorDataset(tokens), shuffle=True)
loader = DataLoader(sampler.dataset, batch_size=6, sampler=sampler)
torch.manual_seed(0)
model = LM()
for layer in itertools.chain(model.layers, model.mtp_layers):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (ids,) in loader:
        logits, ahead = model(ids[:, :SEQ])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:SEQ + 1].flatten())
        loss = loss + 0.3 * F.cross_entropy(ahead.flatten(0, 1), ids[:, 2:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        balance_experts(model)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}")
dist.destroy_process_group()
