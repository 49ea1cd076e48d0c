import argparse
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

def kd_loss(s, t, y, T, alpha):
    soft = F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction='batchmean') * T * T
    return alpha * soft + (1 - alpha) * F.cross_entropy(s, y)

def net(w):
    return nn.Sequential(nn.Linear(10, w), nn.BatchNorm1d(w), nn.ReLU(), nn.Linear(w, 4))

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('-T', type=float, default=3.0)
    ap.add_argument('--alpha', type=float, default=0.7)
    ap.add_argument('--epochs', type=int, default=2)
    a = ap.parse_args()
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    torch.manual_seed(1)                     # the teacher is the same one everywhere, and is not wrapped
    teacher = net(64).eval().requires_grad_(False)
    student = nn.parallel.DistributedDataParallel(net(12))
    X = torch.randn(216, 10)
    y = teacher(X).argmax(1)
    ds = TensorDataset(X, y)
    sampler = DistributedSampler(ds)
    dl = DataLoader(ds, 12, sampler=sampler)
    opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        student.train()
        for xb, yb in dl:
            with torch.no_grad():
                tl = teacher(xb)
            loss = kd_loss(student(xb), tl, yb, a.T, a.alpha)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print('epoch', epoch, 'kd', loss.item())
            torch.save(student.module.state_dict(), 'ho_r37_student.pt')
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
