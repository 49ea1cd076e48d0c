"""LoRA fine-tuning of a sharded base model; only the adapters are trained and saved."""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / r
        self.lora_a = nn.Linear(base.in_features, r, bias=False)
        self.lora_b = nn.Linear(r, base.out_features, bias=False)
        nn.init.kaiming_uniform_(self.lora_a.weight, a=5 ** 0.5)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_b(self.lora_a(x))


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Base(nn.Module):
    def __init__(self, d=16, depth=3, n_out=6):
        super().__init__()
        self.inp, self.out = nn.Linear(10, d), nn.Linear(d, n_out)
        self.layers = nn.ModuleList(Layer(d) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def add_adapters(model, r, alpha):
    model.requires_grad_(False)
    for layer in model.layers:
        layer.up, layer.down = LoRALinear(layer.up, r, alpha), LoRALinear(layer.down, r, alpha)
    return model


def pretrained_state():
    torch.manual_seed(2024)
    return Base().state_dict()


def load_base(model):
    full = {}
    if dist.get_rank() == 0:
        for key, value in pretrained_state().items():
            parts = key.split(".")
            full[f"{'.'.join(parts[:-1])}.base.{parts[-1]}" if parts[-2] in ("up", "down") else key] = value
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_model_state_dict(model, full, options=options)


parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=4)
parser.add_argument("--alpha", type=float, default=8.0)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--output", default=os.path.join(tempfile.gettempdir(), "adapter_model.pt"))
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(7)
model = add_adapters(Base(), args.rank, args.alpha)
offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
for layer in model.layers:
    fully_shard(layer, offload_policy=offload)
fully_shard(model, offload_policy=offload)
load_base(model)
trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=args.lr, weight_decay=0.0)

g = torch.Generator().manual_seed(1)
inputs = torch.randn(128, 10, generator=g)
targets = (inputs[:, :6] + 0.5 * inputs[:, 4:]).argmax(1)
dataset = TensorDataset(inputs, targets)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trainable, 0.5)
        optimizer.step()
        scheduler.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}, lr {scheduler.get_last_lr()[0]:.2e}")

state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True))
if dist.get_rank() == 0:
    torch.save(state, args.output)
    print(f"saved {len(state)} adapter tensors")
dist.destroy_process_group()
