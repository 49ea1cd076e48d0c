"""Scripts that train through a trainer, for `book/tools/try_trainers.py`, which runs `watch` on each of them.

BASES has a script for each trainer, which is right. VARIANTS change them: a right variant in one or several places, and
a wrong one in a single place. The part of a name before the comma is the trainer's. This file needs no trainer.
"""

from typing import NamedTuple

BASES = {}

BASES["Accelerate"] = """\
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def make_data(n):
    X = np.random.default_rng(1).standard_normal((n, 8), dtype=np.float32)
    return TensorDataset(torch.from_numpy(X), torch.from_numpy(X.sum(1) > 0).long())


def main():
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration())
    set_seed(42)
    train, val = random_split(make_data(233), [192, 41], generator=torch.Generator().manual_seed(2))
    train_loader = DataLoader(train, batch_size=8, shuffle=True)
    val_loader = DataLoader(val, batch_size=8)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, scheduler = accelerator.prepare(net, optimizer, scheduler)
    train_loader, val_loader = accelerator.prepare(train_loader, val_loader)
    for epoch in range(3):
        model.train()
        for X, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), y)
            accelerator.backward(loss)
            optimizer.step()
        scheduler.step()
        model.eval()
        right = total = 0
        with torch.no_grad():
            for X, y in val_loader:
                guess, y = accelerator.gather_for_metrics((model(X).argmax(1), y))
                right, total = right + int((guess == y).sum()), total + len(y)
        accelerator.print(epoch, right / total)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "net.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
"""

BASES["Transformers"] = """\
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, set_seed


class Points(Dataset):
    def __init__(self, n, seed):
        self.X = np.random.default_rng(seed).standard_normal((n, 8), dtype=np.float32)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return {"X": torch.from_numpy(self.X[i]), "labels": int(self.X[i].sum() > 0)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, X, labels=None):
        scores = self.net(X)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


def main():
    set_seed(42)
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=8, num_train_epochs=3, learning_rate=1e-2,
                             eval_strategy="epoch", save_strategy="epoch", report_to=[], use_cpu=True)
    trainer = Trainer(Net(), args, train_dataset=Points(192, 1), eval_dataset=Points(41, 2))
    trainer.train()


if __name__ == "__main__":
    main()
"""

BASES["Transformers, GPT-2"] = """\
import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Sentences(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(1)
        self.rows = [rng.integers(1, 50, k).tolist() for k in rng.integers(3, 20, n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i]}


def pad(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


def main():
    set_seed(42)
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=4, num_train_epochs=3, learning_rate=1e-3,
                             gradient_accumulation_steps=2, save_strategy="no", report_to=[], use_cpu=True)
    trainer = Trainer(GPT2LMHeadModel(config), args, train_dataset=Sentences(160), data_collator=pad)
    trainer.train()


if __name__ == "__main__":
    main()
"""

BASES["Lightning"] = """\
import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset


class Data(L.LightningDataModule):
    def setup(self, stage):
        X = torch.randn(233, 8, generator=torch.Generator().manual_seed(1))
        order = np.random.default_rng(2).permutation(233)
        every = TensorDataset(X, (X.sum(1) > 0).long())
        self.train, self.val = Subset(every, order[:192]), Subset(every, order[192:])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=8)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def training_step(self, batch, i):
        X, y = batch
        loss = F.cross_entropy(self.net(X), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, i):
        X, y = batch
        self.log("val_loss", F.cross_entropy(self.net(X), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    L.seed_everything(42)
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", devices=2, strategy="ddp")
    trainer.fit(Net(), Data())
"""

BASES["Fabric"] = """\
import torch
from lightning.fabric import Fabric
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(42)
    X = torch.randn(192, 8, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(X, (X.sum(1) > 0).long()), batch_size=8, shuffle=True)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    model, optimizer = fabric.setup(net, optimizer)
    loader = fabric.setup_dataloaders(loader)
    for epoch in range(3):
        for i, (X, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), y)
            fabric.backward(loss)
            optimizer.step()
    fabric.save("net.ckpt", {"model": model})


if __name__ == "__main__":
    main()
"""

BASES["ignite"] = """\
import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


def training(local_rank):
    torch.manual_seed(42)
    X = torch.randn(192, 8, generator=torch.Generator().manual_seed(1))
    loader = idist.auto_dataloader(TensorDataset(X, (X.sum(1) > 0).long()), batch_size=16, shuffle=True)
    model = idist.auto_model(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = idist.auto_optim(torch.optim.AdamW(model.parameters(), lr=1e-2))

    def step(engine, batch):
        model.train()
        X, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)

    @trainer.on(Events.EPOCH_STARTED)
    def shuffle(engine):
        loader.sampler.set_epoch(engine.state.epoch)

    trainer.run(loader, max_epochs=3)


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)
"""

BASES["StatefulDataLoader"] = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    X = torch.randn(192, 8, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(X, (X.sum(1) > 0).long())
    sampler = DistributedSampler(data)
    loader = StatefulDataLoader(data, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for X, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(X), y).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

BASES["webdataset"] = """\
import tempfile

import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def write_shards(folder):
    generator, names = torch.Generator().manual_seed(1), []
    for shard in range(8):
        names.append(f"{folder}/{shard}.tar")
        with wds.TarWriter(names[-1]) as tar:
            for i, x in enumerate(torch.randn(24, 8, generator=generator)):
                tar.write({"__key__": f"{shard}{i:02}", "x.npy": x.numpy(), "y.cls": int(x.sum() > 0)})
    return names


def main(folder):
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    data = wds.WebDataset(write_shards(folder), shardshuffle=False, nodesplitter=wds.split_by_node)
    data = data.shuffle(20, initial=20).decode().to_tuple("x.npy", "y.cls").batched(8, partial=False)
    loader = wds.WebLoader(data, batch_size=None, num_workers=0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for X, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.as_tensor(X)), torch.as_tensor(y))
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
"""


class Script(NamedTuple):
    """One script: its trainer, what `watch` must find first (one of these, or nothing), and its text."""

    trainer: str
    expected: list[str]
    text: str


class Variant(NamedTuple):
    """A script that differs from another one, of which each `old` text, found once, is replaced by the `new` one."""

    of: str
    expected: list[str]
    changes: list[tuple[str, str]]


def between(text: str, first: str, end: str) -> str:
    """The part of a text from `first` to where `end` begins."""
    return text[text.index(first):text.index(end)]


LOOP = between(BASES["Accelerate"], "        for X, y in train_loader", "        scheduler.step()")
ACCUMULATED = """\
        for X, y in train_loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(X), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
"""
ALL_OF_IT = "map(self.data.__getitem__, range(len(self.data)))"
PART_OF_IT = f"islice({ALL_OF_IT}, dist.get_rank(), None, dist.get_world_size())"
STREAM = f"""\
class Stream(IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return {ALL_OF_IT}


"""
OWN_TRAINER = """\
class Own(Trainer):
    def get_train_dataloader(self):
        loader = DataLoader(self.train_dataset, batch_size=8, shuffle=True, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs["loss"]
        return (loss, outputs) if return_outputs else loss


"""
OWN_SAMPLER = """\
class Own(Sampler):
    epoch = 0

    def __init__(self, n):
        self.n = n

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch))
        return iter(order[dist.get_rank()::dist.get_world_size()].tolist())

    def __len__(self):
        return self.n // dist.get_world_size()


"""
AUTOMATIC = between(BASES["Lightning"], "        loss = F.cross", "    def validation_step")
MANUAL = """\
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = F.cross_entropy(self.net(X), y)
        self.manual_backward(loss)
        optimizer.step()

"""
FABRIC_STEP = between(BASES["Fabric"], "            optimizer.zero_grad()", "    fabric.save")
FABRIC_ACCUMULATED = """\
            with fabric.no_backward_sync(model, enabled=i % 2 == 0):
                loss = F.cross_entropy(model(X), y)
                fabric.backward(loss / 2)
            if i % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
"""

VARIANTS = {
    # right
    "Accelerate, dispatch_batches": Variant("Accelerate", [], [
        ("DataLoaderConfiguration()", "DataLoaderConfiguration(dispatch_batches=True)")]),
    "Accelerate, split_batches": Variant("Accelerate", [], [
        ("DataLoaderConfiguration()", "DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)")]),
    "Accelerate, IterableDataset": Variant("Accelerate", [], [
        ("import DataLoader, ", "import DataLoader, IterableDataset, "), ("def main():", f"{STREAM}def main():"),
        ("DataLoader(train, batch_size=8, shuffle=True)", "DataLoader(Stream(train), batch_size=8)")]),
    "Accelerate, persistent workers": Variant("Accelerate", [], [
        ("shuffle=True)", "shuffle=True, num_workers=2, persistent_workers=True)")]),
    "Accelerate, accumulated and clipped": Variant("Accelerate", [], [
        ("Accelerator(", "Accelerator(gradient_accumulation_steps=2, "), (LOOP, ACCUMULATED)]),
    "Accelerate, 1,920 examples": Variant("Accelerate", [], [
        ("import DataLoader, ", "import DataLoader, RandomSampler, "), ("make_data(233), [192, 41]", "make_data(1961), [1920, 41]"),
        ("Accelerator(", "Accelerator(rng_types=[], "),
        ("shuffle=True)", "sampler=RandomSampler(train, generator=torch.Generator().manual_seed(7)))")]),
    "Transformers, own loader and loss": Variant("Transformers", [], [
        ("import Dataset", "import DataLoader, Dataset"), ("def main():", f"{OWN_TRAINER}def main():"),
        ("trainer = Trainer(", "trainer = Own(")]),
    "Lightning, manual optimization": Variant("Lightning", [], [
        (AUTOMATIC, MANUAL),
        ("super().__init__()\n", "super().__init__()\n        self.automatic_optimization = False\n")]),
    "Lightning, accumulated and clipped": Variant("Lightning", [], [
        ("max_epochs=3,", "max_epochs=3, accumulate_grad_batches=2, gradient_clip_val=0.1,")]),
    "Lightning, own sampler": Variant("Lightning", [], [
        ("import torch\n", "import torch\nimport torch.distributed as dist\n"), ("import DataLoader, ", "import DataLoader, Sampler, "),
        ("class Data(", f"{OWN_SAMPLER}class Data("), ("max_epochs=3,", "max_epochs=3, use_distributed_sampler=False,"),
        ("shuffle=True", "sampler=Own(len(self.train))")]),
    "Lightning, stream": Variant("Lightning", [], [
        ("import lightning", "from itertools import islice\n\nimport lightning"),
        ("import torch\n", "import torch\nimport torch.distributed as dist\n"),
        ("import DataLoader, ", "import DataLoader, IterableDataset, "), ("class Data(", STREAM.replace(ALL_OF_IT, PART_OF_IT) + "class Data("),
        ("DataLoader(self.train, batch_size=8, shuffle=True)", "DataLoader(Stream(self.train), batch_size=8)")]),
    "Fabric, accumulated": Variant("Fabric", [], [(FABRIC_STEP, FABRIC_ACCUMULATED)]),
    # wrong
    "Accelerate, data without a seed": Variant("Accelerate", ["different data sets"], [
        ("default_rng(1)", "default_rng()")]),
    "Accelerate, split by rank": Variant("Accelerate", ["different data sets"], [
        ("manual_seed(2)", "manual_seed(accelerator.process_index)")]),
    "Accelerate, loader not prepared": Variant("Accelerate", ["same examples on all ranks"], [
        ("train_loader, val_loader = accelerator.prepare(train_loader, val_loader)", "val_loader = accelerator.prepare(val_loader)")]),
    "Accelerate, own generator per rank": Variant("Accelerate, 1,920 examples", ["repeated examples"], [
        ("manual_seed(7)", "manual_seed(7 + accelerator.process_index)")]),
    "Accelerate, loss times num_processes": Variant("Accelerate", ["loss multiplied by world size"], [
        ("backward(loss)", "backward(loss * accelerator.num_processes)")]),
    "Accelerate, bare network called": Variant("Accelerate", ["DDP bypassed"], [
        ("F.cross_entropy(model(X), y)", "F.cross_entropy(net(X), y)")]),
    "Transformers, loss times world_size": Variant("Transformers, own loader and loss", ["loss multiplied by world size"], [
        ('loss = outputs["loss"]\n', 'loss = outputs["loss"] * self.args.world_size\n')]),
    "Transformers, data without a seed": Variant("Transformers", ["different data sets"], [
        ("default_rng(seed)", "default_rng()")]),
    "Transformers, GPT-2's data without a seed": Variant("Transformers, GPT-2", ["different data sets"], [
        ("default_rng(1)", "default_rng()")]),
    "Transformers, own loader without a sampler": Variant("Transformers, own loader and loss", ["same examples on all ranks"], [
        ("return self.accelerator.prepare(loader)", "return loader")]),
    "Transformers, self.model called": Variant("Transformers, own loader and loss", ["DDP bypassed"], [
        ("outputs = model(", "outputs = self.model(")]),
    "Lightning, no distributed sampler": Variant("Lightning", ["same examples on all ranks"], [
        ("max_epochs=3,", "max_epochs=3, use_distributed_sampler=False,")]),
    "Lightning, own sampler without set_epoch": Variant("Lightning, own sampler", ["same order in every epoch"], [
        ("    def set_epoch(self, epoch):\n        self.epoch = epoch\n\n", "")]),
    "Lightning, stream not cut": Variant("Lightning, stream", ["same examples on all ranks"], [
        (PART_OF_IT, ALL_OF_IT)]),
    "Lightning, split without a seed": Variant("Lightning", ["different data sets"], [
        ("default_rng(2)", "default_rng()")]),
    "Lightning, logged on one rank": Variant("Lightning", ["hangs", "different collectives"], [
        ('        self.log("val_loss", F.cross_entropy(self.net(X), y), sync_dist=True)\n',
         "        loss = F.cross_entropy(self.net(X), y)\n        if self.global_rank == 0:\n"
         '            self.log("val_loss", loss, sync_dist=True)\n')]),
    "Fabric, no_backward_sync around the last pass": Variant("Fabric, accumulated", ["no_sync around the last pass"], [
        ("enabled=i % 2 == 0", "enabled=i % 2 == 1")]),
    "ignite, no set_epoch": Variant("ignite", ["same order in every epoch"], [
        (between(BASES["ignite"], "    @trainer.on", "    trainer.run"), "")]),
    "StatefulDataLoader, no set_epoch": Variant("StatefulDataLoader", ["same order in every epoch"], [
        ("        sampler.set_epoch(epoch)\n", "")]),
    "webdataset, same shards on all ranks": Variant("webdataset", ["same examples on all ranks"], [
        ("nodesplitter=wds.split_by_node", "nodesplitter=None")]),
}


def text_of(name: str) -> str:
    """The text of a script; raises ValueError if a text to replace is not found exactly once."""
    if name in BASES:
        return BASES[name]
    text = text_of(VARIANTS[name].of)
    for old, new in VARIANTS[name].changes:
        if text.count(old) != 1:
            raise ValueError(f"{name}: {old!r} is {text.count(old)} times in {VARIANTS[name].of}, not once")
        text = text.replace(old, new)
    return text


def scripts() -> dict[str, Script]:
    """All scripts by their names: first those that are right, then those that are wrong."""
    expected: dict[str, list[str]] = {name: [] for name in BASES} | {name: variant.expected for name, variant in VARIANTS.items()}
    every = {name: Script(name.partition(",")[0], names, text_of(name)) for name, names in expected.items()}
    return dict(sorted(every.items(), key=lambda item: bool(item[1].expected)))
