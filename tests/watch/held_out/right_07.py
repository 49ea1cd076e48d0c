import argparse
import os
import torch
from torch import distributed as dist, nn, optim
from torch.utils import data


def get_args():
    parser = argparse.ArgumentParser("seq tagger")
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--batch-size", default=6, type=int)
    parser.add_argument("--iter-size", default=2, type=int, help="gradient accumulation")
    parser.add_argument("--lr", default=2e-3, type=float)
    parser.add_argument("--seed", default=11, type=int)
    return parser.parse_args()


class Tags(data.Dataset):
    def __init__(self, n=144, t=12, vocab=30):
        g = torch.Generator().manual_seed(5)
        self.tok = torch.randint(0, vocab, (n, t), generator=g)
        self.tag = (self.tok % 4 + self.tok.roll(1, 1) % 2) % 4

    def __getitem__(self, k):
        return self.tok[k], self.tag[k]

    def __len__(self):
        return self.tok.shape[0]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
        self.rnn = nn.LSTM(16, 20, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(40, 4)

    def forward(self, tok):
        h, _ = self.rnn(self.emb(tok))
        return self.out(self.drop(h))


def main(args):
    dist.init_process_group("gloo", init_method="env://")
    torch.manual_seed(args.seed + int(os.environ["RANK"]))
    net = nn.parallel.DistributedDataParallel(Tagger())
    optimizer = optim.Adam(net.parameters(), lr=args.lr)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    ds = Tags()
    smp = data.DistributedSampler(ds, seed=args.seed)
    dl = data.DataLoader(ds, args.batch_size, sampler=smp)
    for epoch in range(args.epochs):
        smp.set_epoch(epoch)
        net.train()
        optimizer.zero_grad()
        running = 0.
        for it, (tok, tag) in enumerate(dl, 1):
            loss = nn.functional.cross_entropy(net(tok).flatten(0, 1), tag.flatten())
            (loss / args.iter_size).backward()     # plain: synchronises each time, slower but fine
            running += loss.item()
            if it % args.iter_size == 0:
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        stats = torch.tensor([running, len(dl)])
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"{epoch}: train loss {stats[0] / stats[1]:.3f} lr {scheduler.get_last_lr()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(get_args())
