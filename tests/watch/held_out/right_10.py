'''
Parameter-server flavour: gradients are reduced on rank 0, which averages and clips
them by value, and sends the result back. All workers then take the same step.
'''
import os
import torch
import torch.distributed as dist


class LogReg(torch.nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.lin = torch.nn.Linear(d, k)
        torch.nn.init.zeros_(self.lin.weight)
        torch.nn.init.zeros_(self.lin.bias)

    def forward(self, x):
        return torch.log_softmax(self.lin(x), -1)


class Server:
    def __init__(self, params, clip):
        self.params, self.clip = list(params), clip
        self.rank, self.n = dist.get_rank(), dist.get_world_size()

    def push_pull(self):
        for p in self.params:
            dist.reduce(p.grad, dst=0, op=dist.ReduceOp.SUM)
        if self.rank == 0:
            for p in self.params:
                p.grad.div_(self.n)
            torch.nn.utils.clip_grad_value_(self.params, self.clip)
        for p in self.params:
            dist.broadcast(p.grad, src=0)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gen = torch.Generator().manual_seed(17)
    X = torch.randn(180, 6, generator=gen)
    Y = torch.bucketize(X[:, 0] - X[:, 3], torch.tensor([-0.7, 0.7]))
    X, Y = X[rank::world], Y[rank::world]
    model = LogReg(6, 3)
    server = Server(model.parameters(), clip=0.05)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.2)
    local = torch.Generator().manual_seed(rank)
    for epoch in range(4):
        order = torch.randperm(len(X), generator=local)
        for idx in order.split(15):
            model.zero_grad()
            loss = torch.nn.functional.nll_loss(model(X[idx]), Y[idx])
            loss.backward()
            server.push_pull()
            opt.step()
        hits = (model(X).argmax(1) == Y).sum()
        dist.all_reduce(hits)
        if rank == 0:
            print("epoch", epoch, "accuracy", hits.item() / 180)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
