"""Bag-of-words classifier whose word vectors start from an SVD of the co-occurrence counts."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

WORDS, DIM, TOPICS, LENGTH = 64, 12, 4, 14


def make_corpus(n=128):
    g = torch.Generator().manual_seed(2)
    topic = torch.randint(0, TOPICS, (n,), generator=g)
    probs = torch.rand(TOPICS, WORDS, generator=g) ** 6 + 0.02
    docs = torch.multinomial(probs[topic], LENGTH, replacement=True, generator=g)
    return docs, topic


def svd_vectors(docs):
    counts = torch.zeros(len(docs), WORDS).scatter_add_(1, docs, torch.ones_like(docs, dtype=torch.float))
    together = torch.log1p(counts.T @ counts)
    u, s, _ = torch.linalg.svd(together - together.mean())
    vectors = u[:, :DIM] * s[:DIM].sqrt()
    return vectors / vectors.std()


class TextNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, DIM, mode="mean")
        self.body = nn.Sequential(nn.Linear(DIM, 24), nn.ReLU(), nn.Linear(24, TOPICS))

    def forward(self, docs):
        return self.body(self.words(docs))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    docs, topic = make_corpus()
    model = TextNet()
    if rank == 0:
        with torch.no_grad():
            model.words.weight.copy_(svd_vectors(docs))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    fully_shard(model.body)
    fully_shard(model)
    data = TensorDataset(docs, topic)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=4)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        hits = seen = 0
        for batch, label in loader:
            optimizer.zero_grad()
            logits = model(batch)
            F.cross_entropy(logits, label).backward()
            optimizer.step()
            hits += (logits.argmax(1) == label).sum().item()
            seen += len(label)
        if rank == 0:
            print(f"epoch {epoch} accuracy on this rank {hits / seen:.3f}")
    dist.destroy_process_group()


main()
