import torch
import torch.distributed as dist
import torch.nn as nn
import torch.multiprocessing as mp
import os, socket


def average_models(model, world):
    with torch.no_grad():
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= world


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(30, 40)
        self.fc2 = nn.Linear(40, 10)

    def forward(self, x):
        return nn.functional.log_softmax(self.fc2(torch.relu(self.fc1(x))), dim=1)


def run(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(1234)
    centers = torch.randn(10, 30)
    labels = torch.randint(0, 10, (240,))
    data = centers[labels] + 0.5 * torch.randn(240, 30)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        perm = torch.randperm(240)          # same seed on all ranks
        for idx in perm[rank::world].split(12):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(data[idx]), labels[idx])
            loss.backward()
            optimizer.step()
            average_models(model, world)
        print("Rank", rank, "epoch", epoch, ":", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    size = 2
    mp.spawn(run, args=(size, port), nprocs=size)
