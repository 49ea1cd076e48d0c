import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Layer(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=p, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim), nn.Dropout(p))

    def forward(self, x):
        y = self.ln1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class Classifier(nn.Module):
    def __init__(self, n_features=6, dim=16, heads=2, n_layers=4, n_classes=5, p=0.1):
        super().__init__()
        self.proj = nn.Linear(n_features, dim)
        self.layers = nn.ModuleList([Layer(dim, heads, p) for _ in range(n_layers)])
        self.head = nn.Linear(dim, n_classes)

    def forward(self, x):
        x = self.proj(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(dim=1))


def set_modules_to_forward_prefetch(model, num_to_prefetch):
    for i, layer in enumerate(model.layers[:-num_to_prefetch]):
        layer.set_modules_to_forward_prefetch([model.layers[i + j] for j in range(1, num_to_prefetch + 1)])


def set_modules_to_backward_prefetch(model, num_to_prefetch):
    for i, layer in enumerate(model.layers):
        if i >= num_to_prefetch:
            layer.set_modules_to_backward_prefetch([model.layers[i - j] for j in range(1, num_to_prefetch + 1)])


def save(model, optim, folder):
    opts = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_sd = get_model_state_dict(model=model, options=opts)
    optim_sd = get_optimizer_state_dict(model=model, optimizers=optim, options=opts)
    if dist.get_rank() == 0:
        torch.save({"model": model_sd, "optim": optim_sd}, os.path.join(folder, "fsdp2_classifier.pt"))
    dist.barrier()


def make_data():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(128, 7, 6, generator=g)
    y = (x.sum(1) @ torch.randn(6, 5, generator=g)).argmax(1)
    return TensorDataset(x, y)


def main(args):
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Classifier(p=args.dropout)
    fsdp_kwargs = {}
    if args.mixed_precision:
        fsdp_kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    if args.explicit_prefetching:
        set_modules_to_forward_prefetch(model, num_to_prefetch=2)
        set_modules_to_backward_prefetch(model, num_to_prefetch=2)
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(1000 + rank)

    dataset = make_data()
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True, seed=11)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            if args.explicit_prefetching:
                model.unshard(async_op=True)
            loss = F.cross_entropy(model(x).float(), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optim.step()
            optim.zero_grad()
            total += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    save(model, optim, args.checkpoint_dir)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="FSDP2 example")
    parser.add_argument("--explicit-prefetching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--mixed-precision", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--checkpoint-dir", default=tempfile.gettempdir())
    main(parser.parse_args())
