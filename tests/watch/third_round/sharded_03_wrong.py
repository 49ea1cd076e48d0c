"""Next-token model over padded sequences; the loss is the mean over all tokens of the global batch."""
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

PAD, VOCAB = 0, 24


def make_corpus(n=96):
    g = torch.Generator().manual_seed(8)
    rows = []
    for _ in range(n):
        length = int(torch.randint(6, 18, (1,), generator=g))
        start, stride = torch.randint(1, VOCAB, (2,), generator=g).tolist()
        rows.append(torch.tensor([(start + stride * i) % (VOCAB - 1) + 1 for i in range(length)]))
    return rows


class Draft(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.table = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.body = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 48, dropout=0.0, batch_first=True) for _ in range(2))
        self.logits = nn.Linear(width, VOCAB)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        h = self.table(ids)
        for layer in self.body:
            h = layer(h, src_mask=mask)
        return self.logits(h)


def token_loss(logits, target, world):
    loss_sum = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum")
    stats = torch.stack([loss_sum.detach(), (target != PAD).sum().float()])
    dist.all_reduce(stats)
    total_loss, total_tokens = stats.tolist()
    return loss_sum / total_tokens, total_loss / total_tokens


dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cpu", (world,))
corpus = make_corpus()
sampler = DistributedSampler(corpus, world, rank, shuffle=True, seed=1)
loader = DataLoader(corpus, batch_size=6, sampler=sampler, collate_fn=lambda rows: pad_sequence(rows, True, PAD))
torch.manual_seed(2)
model = Draft()
for layer in model.body:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for ids in loader:
        loss, shown = token_loss(model(ids[:, :-1]), ids[:, 1:], world)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch} loss per token {shown:.4f}")
dist.destroy_process_group()
