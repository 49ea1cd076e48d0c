# gradient accumulation, the lazy way (communicates at each micro batch; slower but the same result)
import torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import *
from torch.utils.data.distributed import DistributedSampler

ACC = 2
def build():
  layers = []
  d = 8
  for h in (32, 32):
    layers += [nn.Linear(d, h), nn.GELU()]
    d = h
  return nn.Sequential(*layers, nn.Linear(d, 1))

def run():
  dist.init_process_group(backend='gloo', init_method='env://')
  me = dist.get_rank()
  torch.manual_seed(99)
  X = torch.rand(288, 8)
  Y = (X ** 2).sum(1, keepdim=True)
  ds = TensorDataset(X, Y)
  samp = DistributedSampler(ds, shuffle=True, seed=4)
  dl = DataLoader(ds, batch_size=8, sampler=samp)
  net = nn.parallel.DistributedDataParallel(build())
  opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
  step = 0
  for ep in range(3):
    samp.set_epoch(ep)
    running = 0
    opt.zero_grad()
    for x, y in dl:
      l = nn.functional.mse_loss(net(x), y)
      (l / ACC).backward()
      running += l.detach()
      step += 1
      if step % ACC == 0:
        opt.step()
        opt.zero_grad()
    dist.all_reduce(running)
    if me == 0: print(ep, float(running) / len(dl) / dist.get_world_size())
  dist.destroy_process_group()

run()
