# MLP with dropout
import torch
from torch import nn, optim
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset, DataLoader, DistributedSampler

torch.manual_seed(0)      # reproducible

def data():
  g = torch.Generator().manual_seed(31)
  x = torch.randn(168, 20, generator=g)
  return TensorDataset(x, x[:, :5].sum(1, keepdim=True).sigmoid())

class Net(nn.Module):
  def __init__(self):
    super().__init__()
    self.f = nn.Sequential(
      nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.5),
      nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5),
      nn.Linear(64, 1))
  def forward(self, x): return self.f(x)

def main():
  dist.init_process_group('gloo')
  ds = data()
  sampler = DistributedSampler(ds)
  dl = DataLoader(ds, batch_size=14, sampler=sampler)
  net = DDP(Net())
  opt = optim.Adam(net.parameters())
  net.train()
  for ep in range(3):
    sampler.set_epoch(ep)
    for x, y in dl:
      opt.zero_grad()
      loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
      loss.backward()
      opt.step()
    if dist.get_rank() == 0: print('loss', loss.item())
  dist.destroy_process_group()

main()
