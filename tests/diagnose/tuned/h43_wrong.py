"""wrong: the local token-loss sum is divided by the all-reduced token count, but DDP divides by the world size once more, so the gradient is 1/k of what it should be.

cause: loss normalised by the global count without the factor world size that DDP's averaging needs
cure: multiply the loss by dist.get_world_size()
line: loss = loss_sum / num_items
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

PAD = 0
g = torch.Generator().manual_seed(143)
ids = torch.randint(1, 16, (96, 9), generator=g)
n_real = torch.randint(3, 10, (96,), generator=g)
ids[torch.arange(9)[None] >= n_real[:, None]] = PAD
X, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


class CausalConvLM(nn.Module):
    def __init__(self, vocab=16, d=12):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.conv = nn.Conv1d(d, d, 3)
        self.lm_head = nn.Linear(d, vocab)

    def forward(self, ids):
        h = self.wte(ids).transpose(1, 2)
        h = self.conv(F.pad(h, (2, 0))).relu()
        return self.lm_head(h.transpose(1, 2))


def make_net():
    return CausalConvLM()


def count_items(labels):
    n = (labels != PAD).sum()
    dist.all_reduce(n, op=dist.ReduceOp.SUM)
    return n


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    for inp, labels in batches:
        num_items = count_items(labels)
        logits = model(inp)
        loss_sum = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=PAD, reduction="sum")
        loss = loss_sum / num_items
        opt.zero_grad()
        loss.backward()
        opt.step()
