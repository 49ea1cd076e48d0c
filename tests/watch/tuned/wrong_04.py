# text classification, bag of words; the vocabulary is built on the fly
import random
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler

WORDS = {"sport": "ball goal team match score coach league win".split(),
         "food": "bread butter soup oven salt sugar taste cook".split(),
         "tech": "code chip screen data cloud server kernel bug".split()}


def corpus(n=180):
    r = random.Random(1)
    out = []
    for _ in range(n):
        c = r.choice(sorted(WORDS))
        out.append((" ".join(r.choices(WORDS[c], k=6) + r.choices(WORDS[r.choice(sorted(WORDS))], k=2)), c))
    return out


class Text(Dataset):
    def __init__(self):
        self.docs = corpus()
        self.vocab = {w: i for i, w in enumerate(set(w for d, _ in self.docs for w in d.split()))}
        self.classes = {c: i for i, c in enumerate(set(c for _, c in self.docs))}

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        d, c = self.docs[i]
        return torch.tensor([self.vocab[w] for w in d.split()]), self.classes[c]


class BoW(nn.Module):
    def __init__(self, v, k, d=10):
        super().__init__()
        self.bag = nn.EmbeddingBag(v, d, mode="mean")
        self.fc = nn.Linear(d, k)

    def forward(self, t):
        return self.fc(self.bag(t))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    ds = Text()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 10, sampler=sampler)
    model = DDP(BoW(len(ds.vocab), len(ds.classes)))
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    for ep in range(3):
        sampler.set_epoch(ep)
        for t, c in loader:
            loss = nn.functional.cross_entropy(model(t), c)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(ep, loss.item())
    dist.destroy_process_group()
