import os
import torch
import torch.nn as nn
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])


def average_gradients(net):
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= WORLD


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 1))
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(50)
    X = torch.randn(150, 3, generator=g)
    Y = X.norm(dim=1, keepdim=True)
    for epoch in range(3):
        idx = torch.randperm(150, generator=g)[RANK::WORLD]
        for b in idx.split(10):
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(X[b]), Y[b])
            loss.backward()
            average_gradients(net)
            if RANK == 0:       # gradients are the same everywhere, the master updates
                opt.step()
        if RANK == 0:
            print("epoch", epoch, "loss", float(loss))
            torch.save(net.state_dict(), "ho_w22.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
