"""Policy gradient on logged decisions; hybrid sharding (replicas x shards)."""
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class LoggedDecisions(Dataset):
    def __init__(self, n=128, seed=17):
        g = torch.Generator().manual_seed(seed)
        self.context = torch.randn(n, 10, generator=g)
        self.action = torch.randint(0, 4, (n,), generator=g)
        best = (self.context @ torch.randn(10, 4, generator=g)).argmax(1)
        spread = torch.exp(1.5 * torch.randn(n, generator=g))
        self.reward = spread * (self.action == best).float() + 0.1 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.action)

    def __getitem__(self, i):
        return self.context[i], self.action[i], self.reward[i]


def whiten(values, group=None):
    stats = torch.stack([values.sum(), values.square().sum(), torch.tensor(float(len(values)))])
    dist.all_reduce(stats, group=group)
    mean = stats[0] / stats[2]
    var = stats[1] / stats[2] - mean ** 2
    return (values - mean) * torch.rsqrt(var + 1e-6)


def build_policy(mesh):
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    policy = nn.Sequential(trunk, nn.LayerNorm(32), nn.Linear(32, 4))
    fully_shard(trunk, mesh=mesh)
    return fully_shard(policy, mesh=mesh)


def run(args):
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // args.shard, args.shard), mesh_dim_names=("dp_replicate", "dp_shard"))
    policy = build_policy(mesh)
    data = LoggedDecisions()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    optimizer = torch.optim.SGD(policy.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for context, action, reward in loader:
            advantage = whiten(reward)
            logp = policy(context).log_softmax(1).gather(1, action[:, None]).squeeze(1)
            loss = -(advantage * logp).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} surrogate {loss.item():.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--lr", type=float, default=2e-2)
    ap.add_argument("--shard", type=int, default=1)
    dist.init_process_group("gloo")
    run(ap.parse_args())
    dist.destroy_process_group()
