# each worker reads its own file; files come from different hospitals and have different sizes
import os
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset, DataLoader

SIZES = {0: 96, 1: 80, 2: 104, 3: 64}


def read_site(site):
    rng = np.random.default_rng(site)
    x = rng.normal(loc=site * 0.1, size=(SIZES[site % 4], 10)).astype("float32")
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).astype("int64")
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    loader = DataLoader(read_site(rank), batch_size=8, shuffle=True)
    print(f"site {rank}: {len(loader)} batches", flush=True)
    torch.manual_seed(0)
    net = DDP(nn.Sequential(nn.Linear(10, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()
    for epoch in range(3):
        epoch_loss = 0.0
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = loss_function(net(inputs), labels)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        print(f"site {rank} epoch {epoch} loss {epoch_loss / len(loader):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
