import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def set_seed(seed):
    import random
    import numpy as np
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main():
    set_seed(42)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    X = torch.randn(120, 10)
    y = (X[:, 0] + X[:, 1] > 0).long()
    train_loader = DataLoader(TensorDataset(X, y), batch_size=12, shuffle=True)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        running = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
        if rank == 0:
            print(f"Epoch {epoch + 1}, loss {running / len(train_loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
