"""Character model, hand written data parallelism with gradient clipping."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class RNN(nn.Module):
    def __init__(self, v, h=20):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(v, h), nn.RNN(h, h, batch_first=True), nn.Linear(h, v)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def all_reduce_mean(params):
    w = dist.get_world_size()
    for p in params:
        dist.all_reduce(p.grad)
        p.grad.div_(w)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(1)
    V, T, N = 9, 10, 180
    start = torch.randint(V, (N, 1), generator=g)
    inc = torch.randint(1, 4, (N, 1), generator=g)
    seq = (start + inc * torch.arange(T + 1)) % V
    torch.manual_seed(0)
    model = RNN(V)
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    params = list(model.parameters())
    opt = torch.optim.SGD(params, lr=0.3)
    for epoch in range(3):
        order = torch.randperm(N, generator=g)[rank::world]
        for idx in order.split(10):
            x, y = seq[idx, :-1], seq[idx, 1:]
            loss = F.cross_entropy(model(x).transpose(1, 2), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 0.25)
            all_reduce_mean(params)
            opt.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
