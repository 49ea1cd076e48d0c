import torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

class SGDGC(torch.optim.SGD):
    '''SGD with gradient centralization (Yong et al. 2020)'''
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is not None and p.grad.dim() > 1:
                    p.grad.sub_(p.grad.mean(dim=tuple(range(1, p.grad.dim())), keepdim=True))
        return super().step(closure)

def get_loader(bs):
    g = torch.Generator().manual_seed(55)
    img = torch.randn(132, 1, 6, 6, generator=g)
    lab = (img[:, 0, :3].sum((1, 2)) > img[:, 0, 3:].sum((1, 2))).long()
    ds = TensorDataset(img, lab)
    s = DistributedSampler(ds)
    return DataLoader(ds, bs, sampler=s), s

def main():
    dist.init_process_group(backend='gloo')
    loader, sampler = get_loader(11)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))
    net = DDP(net)
    opt = SGDGC(net.parameters(), lr=0.05, momentum=0.9)
    sch = torch.optim.lr_scheduler.StepLR(opt, 2, 0.1)
    for ep in range(4):
        sampler.set_epoch(ep)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        sch.step()
        if dist.get_rank() == 0: print(ep, loss.item(), sch.get_last_lr())
    dist.destroy_process_group()

main()
