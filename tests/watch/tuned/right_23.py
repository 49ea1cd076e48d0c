# autoencoder with tied weights
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist

class TiedAE(nn.Module):
  def __init__(self, d, h):
    super().__init__()
    self.enc = nn.Linear(d, h)
    self.bias = nn.Parameter(torch.zeros(d))
  def forward(self, x):
    z = torch.sigmoid(self.enc(x))
    return F.linear(z, self.enc.weight.t(), self.bias), z

def main():
  dist.init_process_group('gloo')
  rank, n = dist.get_rank(), dist.get_world_size()
  torch.manual_seed(3)
  base = torch.randn(4, 18)
  X = torch.randn(216, 4) @ base
  torch.manual_seed(500 + rank)        # denoising noise is this rank's own
  model = nn.parallel.DistributedDataParallel(TiedAE(18, 6))
  opt = torch.optim.Adam(model.parameters(), lr=0.01)
  gen = torch.Generator().manual_seed(0)
  bs = 12
  for epoch in range(3):
    order = torch.randperm(len(X), generator=gen)    # the same on all
    mine = order[rank::n]
    for k in range(0, len(mine), bs):
      x = X[mine[k:k + bs]]
      rec, z = model(x + 0.1 * torch.randn_like(x))
      loss = F.mse_loss(rec, x) + 1e-3 * z.abs().mean()
      opt.zero_grad()
      loss.backward()
      opt.step()
    if rank == 0:
      print('epoch', epoch, 'loss', loss.item())
  dist.destroy_process_group()

if __name__ == '__main__':
  main()
