"""Pretraining of a small decoder: meta init, activation checkpointing, FSDP2, global token normalisation."""
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.utils.data import DataLoader, IterableDataset

IGNORE = -100


@dataclass
class JobConfig:
    vocab_size: int = 48
    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    seq_len: int = 20
    local_batch_size: int = int(os.environ.get("BATCH_SIZE", 8))
    epochs: int = 3
    lr: float = 3e-3
    warmup_steps: int = 4
    max_norm: float = 1.0
    seed: int = 17


class Docs(IterableDataset):
    def __init__(self, cfg, dp_rank, dp_world_size):
        gen = torch.Generator().manual_seed(cfg.seed)
        self.docs = [torch.randint(1, cfg.vocab_size, (int(n),), generator=gen).sort().values
                     for n in torch.randint(6, cfg.seq_len + 2, (96,), generator=gen)]
        self.cfg, self.dp_rank, self.dp_world_size = cfg, dp_rank, dp_world_size

    def __iter__(self):
        for epoch in range(self.cfg.epochs):
            order = torch.randperm(len(self.docs), generator=torch.Generator().manual_seed(epoch)).tolist()
            for i in order[self.dp_rank::self.dp_world_size]:
                doc = self.docs[i]
                pad = self.cfg.seq_len + 1 - len(doc)
                yield F.pad(doc, (0, pad))[:-1], F.pad(doc, (0, pad), value=IGNORE)[1:]


class TransformerBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.attention_norm, self.ffn_norm = nn.RMSNorm(cfg.dim), nn.RMSNorm(cfg.dim)
        self.wqkv, self.wo = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False), nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.w1, self.w2 = nn.Linear(cfg.dim, 4 * cfg.dim, bias=False), nn.Linear(4 * cfg.dim, cfg.dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.wqkv(self.attention_norm(x)).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        h = x + self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return h + self.w2(F.silu(self.w1(self.ffn_norm(h))))


class Transformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok_embeddings, self.pos_embeddings = nn.Embedding(cfg.vocab_size, cfg.dim), nn.Embedding(cfg.seq_len, cfg.dim)
        self.layers = nn.ModuleDict({str(i): TransformerBlock(cfg) for i in range(cfg.n_layers)})
        self.norm = nn.RMSNorm(cfg.dim)
        self.output = nn.Linear(cfg.dim, cfg.vocab_size, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens) + self.pos_embeddings(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers.values():
            h = layer(h)
        return self.output(self.norm(h))

    @torch.no_grad()
    def init_weights(self, seed):
        gen = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            full = torch.ones(p.shape) if "norm" in name else torch.randn(p.shape, generator=gen) * 0.05
            p.copy_(distribute_tensor(full, p.device_mesh, p.placements))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        dist.init_process_group("gloo")
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
        self.loader = DataLoader(Docs(cfg, self.mesh.get_local_rank(), self.mesh.size()), batch_size=cfg.local_batch_size)
        with torch.device("meta"):
            self.model = Transformer(cfg)
        for key, block in list(self.model.layers.items()):
            self.model.layers[key] = checkpoint_wrapper(block, preserve_rng_state=False)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in self.model.layers.values():
            fully_shard(block, mesh=self.mesh, mp_policy=policy, reshard_after_forward=True)
        fully_shard(self.model, mesh=self.mesh, mp_policy=policy)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self.model.to_empty(device="cpu")
        self.model.init_weights(cfg.seed)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / cfg.warmup_steps))

    def train_step(self, tokens, labels):
        self.optimizer.zero_grad()
        valid = (labels != IGNORE).sum()
        dist.all_reduce(valid, group=self.mesh.get_group())
        logits = self.model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE, reduction="sum") / valid
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_norm).full_tensor()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach(), grad_norm

    def train(self):
        self.model.train()
        for step, (tokens, labels) in enumerate(self.loader, 1):
            loss, grad_norm = self.train_step(tokens, labels)
            dist.all_reduce(loss, group=self.mesh.get_group())
            if dist.get_rank() == 0 and step % 6 == 0:
                print(f"step: {step:3d}  loss: {loss.item():.4f}  grad_norm: {grad_norm.item():.4f}")
        dist.destroy_process_group()


if __name__ == "__main__":
    Trainer(JobConfig()).train()
