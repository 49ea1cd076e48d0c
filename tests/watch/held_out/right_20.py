import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class OverlapReducer:
    """Asynchronous all-reduce started from post-accumulate hooks; wait() before the step."""

    def __init__(self, model):
        self.world = dist.get_world_size()
        self.pending = []
        for t in list(model.parameters()) + list(model.buffers()):
            dist.broadcast(t.data, src=0)
        for p in model.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._hook)

    def _hook(self, p):
        p.grad.mul_(1.0 / self.world)
        self.pending.append(dist.all_reduce(p.grad, async_op=True))

    def wait(self):
        for h in self.pending:
            h.wait()
        self.pending.clear()


def model_fn():
    return nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 8, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 4))


def data_fn():
    torch.manual_seed(31)
    sig = torch.randn(156, 2, 20)
    lab = torch.randint(0, 4, (156,))
    sig += torch.sin(torch.arange(20) * (lab[:, None] + 1) * 0.5)[:, None, :]
    return TensorDataset(sig, lab)


def main():
    dist.init_process_group("gloo")
    dataset = data_fn()
    torch.manual_seed(dist.get_rank())
    model = model_fn()
    reducer = OverlapReducer(model)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, amsgrad=True)
    sampler = DistributedSampler(dataset)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        correct = torch.zeros(2)
        for sig, lab in DataLoader(dataset, batch_size=13, sampler=sampler):
            model.zero_grad(set_to_none=True)
            logits = model(sig)
            nn.functional.cross_entropy(logits, lab, label_smoothing=0.05).backward()
            reducer.wait()
            opt.step()
            correct += torch.tensor([(logits.argmax(1) == lab).sum().item(), len(lab)])
        dist.all_reduce(correct)
        if dist.get_rank() == 0:
            print("train acc", (correct[0] / correct[1]).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
