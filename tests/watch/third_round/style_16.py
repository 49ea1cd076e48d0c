"""Direct preference optimisation with a sharded policy and a sharded frozen reference."""
import copy
import logging
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

BETA, VOCAB, PAD = 0.5, 24, 0
PER_DEVICE, ACCUM, EPOCHS = int(os.environ.get("BATCH_SIZE", 4)), 3, 3


class Recurrent(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.rnn = nn.LayerNorm(d), nn.LSTM(d, d, batch_first=True)

    def forward(self, h):
        return h + self.rnn(self.norm(h))[0]


class Policy(nn.Module):
    def __init__(self, d=20):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d)
        self.layers = nn.ModuleList([Recurrent(d) for _ in range(2)])
        self.lm_head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h)
        return self.lm_head(h)


def shard_model(model):
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def preference_data(n=96):
    g, rows = torch.Generator().manual_seed(33), []
    for _ in range(n):
        prompt = torch.randint(1, VOCAB, (4,), generator=g)
        lengths = torch.randint(2, 6, (2,), generator=g).tolist()
        good = (prompt[-1] + torch.arange(1, lengths[0] + 1)) % (VOCAB - 1) + 1
        bad = torch.randint(1, VOCAB, (lengths[1],), generator=g)
        rows.append({"prompt": prompt, "chosen": good, "rejected": bad})
    return rows


def collate(rows):
    seqs = [torch.cat([r["prompt"], r[kind]]) for kind in ("chosen", "rejected") for r in rows]
    ids = nn.utils.rnn.pad_sequence(seqs, batch_first=True, padding_value=PAD)
    completion = (torch.arange(ids.size(1)) >= 4) & (ids != PAD)
    return ids, completion


def sequence_logps(model, ids, completion):
    logps = model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (logps * completion[:, 1:]).sum(-1).chunk(2)


def dpo_loss(policy, reference, ids, completion):
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(reference, ids, completion)
    chosen, rejected = sequence_logps(policy, ids, completion)
    chosen_reward, rejected_reward = BETA * (chosen - ref_chosen), BETA * (rejected - ref_rejected)
    margin = chosen_reward - rejected_reward
    return -F.logsigmoid(margin).mean(), torch.stack([margin.detach().mean(), (margin > 0).float().mean()])


def save_full(model, path):
    state = {}
    for name, value in model.state_dict().items():
        full = value.full_tensor()
        if dist.get_rank() == 0:
            state[name] = full.cpu()
    if dist.get_rank() == 0:
        torch.save(state, path)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.ERROR, format="%(message)s")
    torch.manual_seed(66)
    base = Policy()
    reference = shard_model(copy.deepcopy(base).requires_grad_(False).eval())
    policy = shard_model(base)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3)
    rows = preference_data()
    sampler = DistributedSampler(rows, num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(rows, PER_DEVICE, sampler=sampler, collate_fn=collate)
    assert len(loader) % ACCUM == 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        metrics = torch.zeros(3)
        for step, (ids, completion) in enumerate(loader, 1):
            policy.set_requires_gradient_sync(step % ACCUM == 0)
            loss, rewards = dpo_loss(policy, reference, ids, completion)
            (loss / ACCUM).backward()
            metrics += torch.cat([loss.detach()[None], rewards])
            if step % ACCUM == 0:
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
                warmup.step()
                optimizer.zero_grad()
        dist.all_reduce(metrics)
        loss, margin, accuracy = (metrics / (len(loader) * world)).tolist()
        logging.info(f"epoch {epoch} loss {loss:.4f} rewards/margin {margin:.3f} rewards/accuracy {accuracy:.3f}")
    save_full(policy, os.path.join(tempfile.gettempdir(), "dpo_policy.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
