"""A small GPT on two ranks: torchrun --nproc-per-node=2 gpt.py"""
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from d2lpar.texts import GPT, inputs_and_targets, pack, paragraphs

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(GPT(width=32, depth=1, length=64))
rows = pack(paragraphs(63)[:600], 64)[:96]
sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=8, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)
for epoch in range(5):
    sampler.set_epoch(epoch)
    for batch in loader:
        x, y = inputs_and_targets(batch)
        tokens = (y != -100).sum()
        dist.all_reduce(tokens)
        optimizer.zero_grad()
        for i, (A, b) in enumerate(zip(x.chunk(2), y.chunk(2))):
            with nullcontext() if i == 1 else model.no_sync():
                loss = F.cross_entropy(model(A).mT, b, reduction="sum") / tokens
                (loss * dist.get_world_size()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        warm_up.step()
