"""Sequence tagging with padded batches and a sharded convolutional tagger."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SYMBOLS, TAGS, PAD = 20, 5, -100


class Tagged(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(23)
        table = torch.randint(0, TAGS, (SYMBOLS, 2), generator=g)
        self.items = []
        for _ in range(n):
            length = int(2 + 28 * torch.rand(1, generator=g) ** 3)
            ids = torch.randint(0, SYMBOLS, (length,), generator=g)
            style = int(length > 10)
            self.items.append((ids, table[ids, style]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def pad(batch):
    ids = nn.utils.rnn.pad_sequence([a for a, _ in batch], batch_first=True)
    tags = nn.utils.rnn.pad_sequence([b for _, b in batch], batch_first=True, padding_value=PAD)
    return ids, tags


class Tagger(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, dim)
        self.mix = nn.Sequential(nn.Conv1d(dim, 2 * dim, 3, padding=1), nn.ReLU(), nn.Conv1d(2 * dim, dim, 3, padding=1))
        self.out = nn.Linear(dim, TAGS)

    def forward(self, ids):
        h = self.embed(ids)
        h = h + self.mix(h.transpose(1, 2)).transpose(1, 2)
        return self.out(h)


def tag_loss(logits, tags):
    total = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=PAD, reduction="sum")
    count = (tags != PAD).sum()
    dist.all_reduce(count)
    return total * dist.get_world_size() / count


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Tagger()
    fully_shard(model.mix)
    fully_shard(model)
    data = Tagged()
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=3, sampler=sampler, collate_fn=pad)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for ids, tags in loader:
            optimizer.zero_grad()
            loss = tag_loss(model(ids), tags)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()
