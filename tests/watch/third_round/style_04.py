"""PPO on a toy token task: sharded actor and critic, rollout and update in one process group."""
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

config = SimpleNamespace(prompts=64, prompt_len=4, response_len=6, vocab=12, train_batch=32, mini_batch=16, micro_batch=4,
                         clip_ratio=0.2, entropy_coeff=0.01, grad_clip=1.0, epochs=3, seed=5)


class Backbone(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True)
        self.out = nn.Linear(24, out)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])

    @torch.no_grad()
    def generate(self, ids, n):
        for _ in range(n):
            probs = self.out(self.rnn(self.embed(ids))[0])[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probs, 1)], dim=1)
        return ids


def masked_sum(x, mask):
    return (x * mask).sum()


def global_sum(*values):
    t = torch.stack([v.detach().float() for v in values])
    dist.all_reduce(t)
    return t.unbind()


def masked_whiten(x, mask):
    s, n = global_sum(masked_sum(x, mask), mask.sum())
    (sq,) = global_sum(masked_sum((x - s / n) ** 2, mask))
    return (x - s / n) * torch.rsqrt(sq / n + 1e-8) * mask


class Worker:
    def __init__(self, out, lr, mesh):
        self.module = Backbone(out)
        fully_shard(self.module, mesh=mesh)
        register_fsdp_forward_method(self.module, "generate")
        assert isinstance(self.module, FSDPModule)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=lr, weight_decay=0.01)

    def optimizer_step(self):
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), config.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.full_tensor().item()


def log_probs(logits, actions):
    logp = logits.log_softmax(-1)
    return logp.gather(-1, actions.unsqueeze(-1)).squeeze(-1), -(logp.exp() * logp).sum(-1)


def rollout(actor, critic, prompts):
    ids = actor.module.generate(prompts, config.response_len)
    acts = ids[:, config.prompt_len:]
    mask = ((acts == 0).cumsum(1) - (acts == 0).long() == 0).float()
    rewards = ((acts % 3 == prompts[:, -1:] % 3).float() * mask).sum(1) / mask.sum(1)
    with torch.no_grad():
        old = log_probs(actor.module(ids)[:, config.prompt_len - 1:-1], acts)[0]
        values = critic.module(ids)[:, config.prompt_len - 1:-1, 0]
    returns = rewards.unsqueeze(1).expand_as(values)
    adv = masked_whiten(returns - values, mask)
    return dict(ids=ids, acts=acts, mask=mask, old=old, returns=returns, adv=adv), rewards


def update(actor, critic, batch, world):
    n = len(batch["ids"])
    for start in range(0, n, config.mini_batch // world):
        mini = {k: v[start:start + config.mini_batch // world] for k, v in batch.items()}
        (tokens,) = global_sum(mini["mask"].sum())
        micros = [dict(zip(mini, vs)) for vs in zip(*(v.split(config.micro_batch) for v in mini.values()))]
        for i, mb in enumerate(micros):
            for worker in (actor, critic):
                worker.module.set_requires_gradient_sync(i == len(micros) - 1)
            logp, entropy = log_probs(actor.module(mb["ids"])[:, config.prompt_len - 1:-1], mb["acts"])
            ratio = (logp - mb["old"]).exp()
            surrogate = torch.minimum(ratio * mb["adv"], ratio.clamp(1 - config.clip_ratio, 1 + config.clip_ratio) * mb["adv"])
            pg = masked_sum(-surrogate - config.entropy_coeff * entropy, mb["mask"])
            (pg * world / tokens).backward()
            values = critic.module(mb["ids"])[:, config.prompt_len - 1:-1, 0]
            (masked_sum((values - mb["returns"]) ** 2, mb["mask"]) * world / tokens).backward()
        norms = actor.optimizer_step(), critic.optimizer_step()
    return norms


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    torch.manual_seed(config.seed)
    actor, critic = Worker(config.vocab, 3e-3, mesh), Worker(1, 1e-2, mesh)
    prompts = torch.randint(1, config.vocab, (config.prompts, config.prompt_len), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(config.seed + 1000 * (rank + 1))
    for epoch in range(config.epochs):
        order = torch.randperm(len(prompts), generator=torch.Generator().manual_seed(epoch))
        for chunk in order.split(config.train_batch):
            batch, rewards = rollout(actor, critic, prompts[chunk.chunk(world)[rank]])
            norms = update(actor, critic, batch, world)
            total, count = global_sum(rewards.sum(), torch.tensor(len(rewards)))
            if rank == 0:
                print(f"epoch {epoch} reward {total / count:.3f} actor/critic grad norm {norms[0]:.3f}/{norms[1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
