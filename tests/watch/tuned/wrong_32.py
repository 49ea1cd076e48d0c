# reduce gradients in double precision to avoid rounding
import torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import TensorDataset, DataLoader
from torch.utils.data.distributed import DistributedSampler

def allreduce_grads(model):
  world = dist.get_world_size()
  for name, p in model.named_parameters():
    if p.grad is None: continue
    g = p.grad.data.double()
    dist.all_reduce(g, op=dist.ReduceOp.SUM)
    g /= world

def main():
  dist.init_process_group('gloo')
  torch.manual_seed(7)
  model = nn.Sequential(nn.Linear(10, 20), nn.LeakyReLU(), nn.Linear(20, 5))
  x = torch.randn(150, 10)
  y = (x @ torch.randn(10, 5)).argmax(1)
  ds = TensorDataset(x, y)
  sampler = DistributedSampler(ds)
  dl = DataLoader(ds, batch_size=5, sampler=sampler)
  opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
  for epoch in range(3):
    sampler.set_epoch(epoch)
    correct = torch.zeros(1)
    for xb, yb in dl:
      out = model(xb)
      loss = nn.functional.cross_entropy(out, yb)
      opt.zero_grad()
      loss.backward()
      allreduce_grads(model)
      opt.step()
      correct += (out.argmax(1) == yb).sum()
    dist.all_reduce(correct)
    if dist.get_rank() == 0:
      print('epoch', epoch, 'train acc', correct.item() / 150)
  dist.destroy_process_group()

main()
