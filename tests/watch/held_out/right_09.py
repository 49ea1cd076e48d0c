# adversarial training (FGSM). The attack only needs gradients w.r.t. the input,
# so it goes through the bare module; the training pass goes through DDP.
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset, DataLoader, DistributedSampler


def fgsm(net, x, y, eps=0.1):
    x = x.clone().requires_grad_(True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x).float(), y)
    g, = torch.autograd.grad(loss, x)
    return (x + eps * g.sign()).detach()


def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        acc = (net(x).argmax(1) == y).float().mean().item()
    adv = fgsm(net, x, y)
    with torch.no_grad():
        rob = (net(adv).argmax(1) == y).float().mean().item()
    net.train()
    return acc, rob


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    x = torch.randn(320, 12)
    y = (x[:, :4].sum(1) > 0).long() + (x[:, 4:8].sum(1) > 0).long()
    train, (vx, vy) = TensorDataset(x[:240], y[:240]), (x[240:], y[240:])
    net = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 3))
    ddp = DistributedDataParallel(net)
    opt = torch.optim.AdamW(ddp.parameters(), lr=4e-3, weight_decay=1e-3)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=16, sampler=sampler, drop_last=True)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            xadv = fgsm(ddp.module, xb, yb)
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = ddp(torch.cat([xb, xadv]))
            loss = F.cross_entropy(out.float(), yb.repeat(2))
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print("clean %.3f robust %.3f" % evaluate(ddp.module, vx, vy))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
