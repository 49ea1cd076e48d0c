import os, argparse
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.optim.lr_scheduler as sched


def parse():
    ap = argparse.ArgumentParser(description='regression with warmup + cosine, Adam')
    ap.add_argument('--base_lr', default=1e-3, type=float, help='for a batch of 32 in total')
    ap.add_argument('--batch', default=8, type=int)
    ap.add_argument('--epochs', default=4, type=int)
    ap.add_argument('--warmup', default=5, type=int)
    return ap.parse_args()


def main(a):
    dist.init_process_group('gloo')
    rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    lr = a.base_lr * a.batch * world / 32      # linear scaling rule
    gen = torch.Generator(); gen.manual_seed(77)
    feats = torch.randn(192, 7, generator=gen)
    target = feats.norm(dim=1, keepdim=True)
    ds = torch.utils.data.TensorDataset(feats, target)
    sampler = torch.utils.data.distributed.DistributedSampler(ds, world, rank, shuffle=True)
    loader = torch.utils.data.DataLoader(ds, a.batch, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(7, 32), nn.ELU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    total = a.epochs * len(loader)
    s = sched.SequentialLR(opt, [sched.LinearLR(opt, 0.1, 1.0, a.warmup),
                                 sched.CosineAnnealingLR(opt, total - a.warmup)], [a.warmup])
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.huber_loss(model(xb), yb)
            loss.backward()
            opt.step()
            s.step()
        if rank == 0:
            print('epoch {} lr {:.5f} loss {:.4f}'.format(epoch, opt.param_groups[0]['lr'], loss.item()))
    dist.destroy_process_group()


if __name__ == '__main__':
    main(parse())
