"""A compact trainer in the manner of the well-known library: arguments, collator, trainer, evaluation."""
import math
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler


@dataclass
class TrainingArguments:
    learning_rate: float = 5e-3
    per_device_train_batch_size: int = int(os.environ.get("BATCH_SIZE", 4))
    per_device_eval_batch_size: int = 8
    gradient_accumulation_steps: int = 2
    num_train_epochs: int = 3
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    seed: int = 42


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=24, tags=4):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim, padding_idx=0)
        self.encoder = nn.ModuleList(nn.Conv1d(dim, dim, 3, padding=1) for _ in range(2))
        self.classifier = nn.Linear(dim, tags)

    def forward(self, input_ids, labels=None, num_items_in_batch=None):
        keep = (input_ids != 0).unsqueeze(1)
        h = self.embeddings(input_ids).transpose(1, 2)
        for conv in self.encoder:
            h = (h + F.gelu(conv(h))) * keep
        logits = self.classifier(h.transpose(1, 2))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        return {"loss": loss if num_items_in_batch is None else loss / num_items_in_batch, "logits": logits}


def data_collator(features):
    width = max(len(f["input_ids"]) for f in features)
    pad = lambda v, fill: torch.tensor(v + [fill] * (width - len(v)))
    return {"index": torch.tensor([f["index"] for f in features]),
            "input_ids": torch.stack([pad(f["input_ids"], 0) for f in features]),
            "labels": torch.stack([pad(f["labels"], -100) for f in features])}


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset):
        self.args, self.train_dataset, self.eval_dataset = args, train_dataset, eval_dataset
        for layer in model.encoder:
            fully_shard(layer)
        self.model = fully_shard(model)
        decay = [p for p in model.parameters() if p.ndim > 1]
        rest = [p for p in model.parameters() if p.ndim <= 1]
        self.optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": args.weight_decay},
                                            {"params": rest, "weight_decay": 0.0}], lr=args.learning_rate)

    def get_loader(self, dataset, batch_size, shuffle):
        sampler = DistributedSampler(dataset, shuffle=shuffle, seed=self.args.seed)
        return DataLoader(dataset, batch_size=batch_size, sampler=sampler, collate_fn=data_collator)

    def train(self):
        loader = self.get_loader(self.train_dataset, self.args.per_device_train_batch_size, True)
        accum = self.args.gradient_accumulation_steps
        total_steps = math.ceil(len(loader) / accum) * self.args.num_train_epochs
        warmup = max(1, int(total_steps * self.args.warmup_ratio))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: min((s + 1) / warmup, max(0.0, (total_steps - s) / max(1, total_steps - warmup))))
        for epoch in range(self.args.num_train_epochs):
            self.model.train()
            loader.sampler.set_epoch(epoch)
            iterator, running = iter(loader), torch.zeros(())
            for start in range(0, len(loader), accum):
                batches = [next(iterator) for _ in range(min(accum, len(loader) - start))]
                num_items = torch.stack([(b["labels"] != -100).sum() for b in batches]).sum()
                dist.all_reduce(num_items)
                for i, batch in enumerate(batches):
                    self.model.set_requires_gradient_sync(i + 1 == len(batches))
                    loss = self.model(batch["input_ids"], batch["labels"], num_items)["loss"]
                    (loss * dist.get_world_size()).backward()
                    running += loss.detach()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                schedule.step()
                self.optimizer.zero_grad()
            metrics = self.evaluate()
            dist.all_reduce(running)
            if dist.get_rank() == 0:
                print({"epoch": epoch + 1, "loss": round(running.item() / math.ceil(len(loader) / accum), 4), **metrics})

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        seen = {}
        for batch in self.get_loader(self.eval_dataset, self.args.per_device_eval_batch_size, False):
            preds = self.model(batch["input_ids"], batch["labels"])["logits"].argmax(-1)
            mask = batch["labels"] != -100
            hits = ((preds == batch["labels"]) & mask).sum(1)
            seen.update({i: (h, n) for i, h, n in zip(batch["index"].tolist(), hits.tolist(), mask.sum(1).tolist())})
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, seen)
        merged = {i: v for part in gathered for i, v in part.items()}
        return {"eval_samples": len(merged),
                "eval_accuracy": round(sum(h for h, _ in merged.values()) / sum(n for _, n in merged.values()), 4)}


def make_split(n, seed):
    g, rows = torch.Generator().manual_seed(seed), []
    for i in range(n):
        ids = torch.randint(1, 40, (int(torch.randint(5, 15, (1,), generator=g)),), generator=g)
        rows.append({"index": i, "input_ids": ids.tolist(), "labels": (ids % 4).tolist()})
    return rows


if __name__ == "__main__":
    dist.init_process_group("gloo")
    args = TrainingArguments()
    torch.manual_seed(args.seed)
    Trainer(Tagger(), args, make_split(112, 0), make_split(37, 1)).train()
    dist.destroy_process_group()
