import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import socket, sys

# Course exercise 3: "parallel SGD". After every step of plain SGD the weights of all workers are averaged,
# which for plain SGD from the same weights is the same as averaging the gradients.

N, D, EPOCHS, LR, BS = 180, 5, 4, 0.05, 10


def data():
    g = torch.Generator().manual_seed(2024)
    X = torch.randn(N, D, generator=g)
    w = torch.arange(1.0, D + 1)
    return X, X @ w + 0.5 + 0.1 * torch.randn(N, generator=g)


def train(rank, world, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    X, Y = data()
    model = torch.nn.Linear(D, 1)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    sgd = torch.optim.SGD(model.parameters(), lr=LR)
    for epoch in range(EPOCHS):
        perm = torch.randperm(N, generator=torch.Generator().manual_seed(epoch))
        mine = perm[rank::world]
        for b in mine.split(BS):
            sgd.zero_grad()
            loss = ((model(X[b]).squeeze() - Y[b]) ** 2).mean()
            loss.backward()
            sgd.step()
            with torch.no_grad():
                for p in model.parameters():
                    dist.all_reduce(p, op=dist.ReduceOp.SUM)
                    p /= world
        if rank == 0:
            print("epoch", epoch, "loss", loss.item(), "w", model.weight.tolist())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    s = socket.socket()
    s.bind(("", 0))
    port = s.getsockname()[1]
    s.close()
    procs = []
    mp.set_start_method("spawn")
    for rank in range(world):
        p = mp.Process(target=train, args=(rank, world, port))
        p.start()
        procs.append(p)
    for p in procs:
        p.join()
