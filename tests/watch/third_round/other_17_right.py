"""Next-token training of a small recurrent model on sentences of very different lengths."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PAD, VOCAB = -100, 20


class Sentences(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(14)
        self.rows = []
        for _ in range(n):
            size = 3 + int(40 * torch.rand(1, generator=g).item() ** 3)
            first, pace = torch.randint(0, VOCAB, (2,), generator=g).tolist()
            self.rows.append((first + (1 + pace % 3) * torch.arange(size)) % VOCAB)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    width = max(map(len, rows)) - 1
    inputs = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), PAD)
    for i, row in enumerate(rows):
        inputs[i, :len(row) - 1] = row[:-1]
        labels[i, :len(row) - 1] = row[1:]
    return inputs, labels


class GRULM(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed, self.gru, self.out = nn.Embedding(VOCAB, dim), nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        return self.out(self.gru(self.embed(tokens))[0])


def token_loss(logits, labels):
    count = (labels != PAD).sum()
    dist.all_reduce(count)
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum")
    return total * dist.get_world_size() / count


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = Sentences()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, collate_fn=collate)
    torch.manual_seed(15)
    model = DDP(GRULM())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = token_loss(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
