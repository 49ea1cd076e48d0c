import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

# message passing on random graphs of different sizes; loss is per GRAPH, equal number of graphs per rank


def random_graph(seed):
    r = np.random.RandomState(seed)
    n = r.randint(4, 12)
    a = (r.rand(n, n) < 0.4).astype("float32")
    a = np.triu(a, 1)
    a = a + a.T
    return torch.from_numpy(r.randn(n, 3).astype("float32")), torch.from_numpy(a), torch.tensor([a.sum() / n])


class GNN(nn.Module):
    def __init__(self, h=16):
        super().__init__()
        self.w1, self.w2, self.u1, self.u2 = nn.Linear(3, h), nn.Linear(3, h), nn.Linear(h, h), nn.Linear(h, h)
        self.read = nn.Linear(h, 1)

    def forward(self, graphs):
        # block diagonal batching
        x = torch.cat([g[0] for g in graphs])
        adj = torch.block_diag(*[g[1] for g in graphs])
        seg = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([len(g[0]) for g in graphs]))
        h = torch.relu(self.w1(x) + adj @ self.w2(x))
        h = torch.relu(self.u1(h) + adj @ self.u2(h))
        pooled = torch.zeros(len(graphs), h.size(1)).index_add(0, seg, h)
        size = torch.bincount(seg, minlength=len(graphs)).unsqueeze(1)
        return self.read(pooled / size)


class GraphSampler(torch.utils.data.Sampler):
    def __init__(self, n, rank, world, seed=0):
        self.n, self.rank, self.world, self.seed, self.epoch = n, rank, world, seed, 0

    def __iter__(self):
        order = np.random.RandomState(self.seed + self.epoch).permutation(self.n)
        self.epoch += 1                     # a new order each time the loader is iterated
        return iter(order[self.rank::self.world].tolist())

    def __len__(self):
        return self.n // self.world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    graphs = [random_graph(s) for s in range(162)]
    loader = torch.utils.data.DataLoader(graphs, batch_size=9, sampler=GraphSampler(162, rank, world),
                                         collate_fn=list)
    torch.manual_seed(3)
    model = nn.parallel.DistributedDataParallel(GNN())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(4):
        for batch in loader:
            target = torch.stack([g[2] for g in batch])
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(batch), target)
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
