import os
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp


def evaluate_on_main(net, X, Y):
    """only called by rank 0, with the unwrapped module: no communication in here"""
    was = net.training
    net.eval()
    with torch.inference_mode():
        pred = net(X).argmax(dim=1)
    net.train(was)
    return (pred == Y).float().mean().item()


def main_worker(gpu, ngpus):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29871")
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo", rank=gpu, world_size=ngpus)
    device = torch.device("cuda:%d" % gpu if cuda else "cpu")
    torch.manual_seed(7 * gpu + 1)  # dropout below
    g = torch.Generator().manual_seed(0)
    X = torch.randn(200, 9, generator=g)
    Y = (X[:, 0] > X[:, 1]).long()
    train = torch.utils.data.TensorDataset(X[:168], Y[:168])
    sampler = torch.utils.data.distributed.DistributedSampler(train, ngpus, gpu)
    loader = torch.utils.data.DataLoader(train, batch_size=12, sampler=sampler)
    net = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2)).to(device)
    ddp = nn.parallel.DistributedDataParallel(net, device_ids=[gpu] if cuda else None)
    opt = torch.optim.Adam(ddp.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(ddp(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 5 == 4 and gpu == 0:   # in the middle of the epoch the others simply go on
                print("   step", i, "val acc", evaluate_on_main(net, X[168:].to(device), Y[168:].to(device)))
    if gpu == 0:
        torch.save(net.state_dict(), "ho_r33.pth")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count() if torch.cuda.is_available() else 2
    mp.spawn(main_worker, nprocs=n, args=(n,))
