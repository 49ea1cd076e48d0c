"""The texts that the search page looks through: each section, API entry and explained word, with its address.

They are written as a script, not as data to fetch: a browser forbids a site opened from the disk to fetch anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx_exercise.nodes import solution_node

from book_ext import numbered_title
from twins import HERE, WORDS

LEFT_OUT = (nodes.raw, nodes.math_block, nodes.comment, nodes.image, nodes.system_message, nodes.title,
            nodes.term, addnodes.index, addnodes.desc_signature, solution_node)

# What readers call what a page, or a section with this label, is about, in words that its title lacks.
KEYWORDS = {
    "notebooks/05_concise_data_parallelism": ["DataParallel"],
    "notebooks/14_batchnorm": ["SyncBatchNorm", "sync batch norm"],
    "notebooks/18_cluster_in_a_laptop": ["simulate a network", "network emulation", "Mininet"],
    "notebooks/19_other_peoples_clusters": ["scaling efficiency", "weak scaling", "published benchmarks"],
    "notebooks/12_is_my_script_right": ["my DDP is wrong"],
    "notebooks/appendix/watch_and_diagnose": ["check my script in CI", "false positives"],
    "notebooks/13_training_that_survives": ["resume", "checkpoint", "preemption"],
    "notebooks/appendix/last_minibatch_in_five_minutes": ["lower accuracy on two GPUs", "accuracy drops"],
    "notebooks/20_sharding": ["FSDP", "ZeRO"],
    "notebooks/21_fully_shard": ["fully_shard", "FSDP2", "device mesh"],
    "notebooks/22_three_ways": ["model parallelism", "tensor parallelism", "pipeline parallelism", "Megatron", "GPipe"],
    "notebooks/23_small_gpt": ["transformer", "LLM", "language model", "MFU", "sequence packing", "mixed precision DDP",
                               "torch.compile DDP"],
    "cuda-out-of-memory-on-gpu-0-only": ["out of memory"],
    "sec-accumulation": ["gradient accumulation", "effective batch size"],
    "sec-allreduce": ["all reduce"],
    "sec-ddp-batchnorm": ["convert_sync_batchnorm"],
    "sec-fsdp-lora": ["LoRA", "adapters", "PEFT"],
    "sec-hangs": ["my training hangs"],
    "sec-hsdp": ["HSDP", "hybrid sharding"],
    "sec-machines": ["elastic", "torchelastic", "multi-node", "slurm"],
    "sec-pays": ["how many GPUs", "scaling"],
    "sec-rules": ["learning rate multiple GPUs", "linear scaling rule"],
    "sec-other-samplers": ["WeightedRandomSampler", "IterableDataset", "streaming", "class imbalance"],
    "sec-set-epoch": ["sampler", "set_epoch"],
    "sec-worker": ["gloo vs nccl", "backend"],
    "term-speed-up": ["speedup"],
}


KEYWORDS = {name: [*KEYWORDS.get(name, []), *WORDS["search"].get(name, [])] for name in KEYWORDS | WORDS["search"]}
FOUND = "const SEARCH_TEXTS = ", ";\n"  # around the texts, in a script


def found_at(node: nodes.Node) -> tuple[str, str] | None:
    """The anchor and the title under which a search shows what is in this node; None if it is a part of another's."""
    first = node[0] if isinstance(node, (nodes.section, addnodes.desc, nodes.definition_list_item)) else None
    if isinstance(node, nodes.section):
        return (node["ids"][0], first.astext()) if isinstance(first, nodes.title) else None  # none in an exercise
    if isinstance(first, nodes.Element) and (anchors := first["ids"]):
        return anchors[0], anchors[0].removeprefix("d2lpar.") if isinstance(node, addnodes.desc) else first.astext()
    return None


def text_of(node: nodes.Node, env: BuildEnvironment) -> str:
    """The words of a node, without those that are found elsewhere, and without pictures and outputs of many formats."""
    if isinstance(node, nodes.Text):
        return str(node)
    if not isinstance(node, nodes.Element) or isinstance(node, LEFT_OUT) or node.get("nb_element") == "mime_bundle":
        return ""
    if "cell_input" in node.get("classes", ()) and "tag_hide-input" in node.parent["classes"]:
        return ""  # code that is folded, such as a check of the prose
    if isinstance(node, addnodes.pending_xref) and node["reftype"] == "ref" and not node["refexplicit"]:
        return env.domains["std"].labels.get(node["reftarget"], ("", "", node.astext()))[2]
    glue = "" if isinstance(node, nodes.TextElement) else " "
    return glue.join(text_of(child, env) for child in node.children if found_at(child) is None)


def parts_of(page: str, env: BuildEnvironment) -> Iterator[tuple[str, str, str, list[str]]]:
    """Anchor, title, text and keywords of all that a search can find on a page, in its order."""
    keys = [page]  # of the first part
    for node in env.get_doctree(page).findall(nodes.Element):
        if found := found_at(node):
            text = re.sub(r"\s+", " ", text_of(node, env)).strip()
            names = dict.fromkeys([*keys, *node["ids"], found[0]])
            words = [word for name in names for word in KEYWORDS.get(name, ())]
            if env.config.language == "zh_CN" and found[0].startswith("term-"):  # under its English word
                words.append(WORDS["terms"].get(found[1], ""))
            yield *found, text, [word for word in words if word]
            keys = []


def write_texts(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    target = Path(app.outdir, "_static", "search_texts.js")
    trees = [Path(app.doctreedir, f"{page}.doctree") for page in app.env.found_docs]
    sources = [Path(__file__), HERE / "terms.toml", *trees]
    read = max(source.stat().st_mtime for source in sources)
    if target.exists() and target.stat().st_mtime > read:
        return  # nothing is new, and to load every page again takes longer than all the rest
    pages = []
    for page in sorted(app.env.found_docs, key=lambda page: (not page.startswith("notebooks/"), page)):
        title = ("API: " if page.startswith("book/api/") else "") + numbered_title(app, page)
        pages.append([app.builder.get_target_uri(page), title, [*parts_of(page, app.env)]])
    target.write_text(json.dumps(pages, ensure_ascii=False, separators=(",", ":")).join(FOUND), "utf8")


def setup(app: Sphinx) -> dict:
    app.connect("build-finished", write_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
