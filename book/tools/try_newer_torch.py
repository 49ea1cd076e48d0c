"""The package on a newer PyTorch: is every private name still there, and do the tests pass?

`python book/tools/try_newer_torch.py` installs the book into a temporary environment, upgrades PyTorch and torchvision
there to the newest versions, looks for the private names below, and runs the fast tests, and then those of `launch`,
ranks, DDP, sharding and `watch`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from try_install import ROOT, environment

# Names that PyTorch and Python do not promise to keep, and the module of the package that uses each of them.
PRIVATE = {
    "torch.nn.modules.module.Module._buffers": "data_parallel, to build a replica as torch.nn.parallel.replicate does",
    "torch.nn.modules.module.Module._parameters": "data_parallel, for the same",
    "torch.nn.modules.module.Module._modules": "data_parallel, for the same",
    "torch.nn.modules.module.Module._replicate_for_data_parallel": "data_parallel, for the same",
    "torch.nn.modules.module.Module._forward_pre_hooks": "data_parallel: which hooks compute a parameter?",
    "torch.nn.modules.module.Module._compiled_call_impl": "data_parallel, which refuses compiled modules",
    "torch.nn.modules.module.Module._apply": "diagnosis.running: the network in double precision",
    "torch.nn.utils.prune.BasePruningMethod._tensor_name": "data_parallel: which parameter does pruning compute?",
    "torch._C._autograd._get_current_graph_task_keep_graph": "data_parallel: is the graph kept for a second pass?",
    "torch._C._current_graph_task_id": "diagnosis.recording: which backward pass is this?",
    "torch._C._functorch.peek_interpreter_stack": "data_parallel, diagnosis.recording: is this within torch.func.grad?",
    "torch._C._len_torch_dispatch_stack": "data_parallel: is a mode such as FlopCounterMode on?",
    "torch.autograd.Variable._execution_engine": "ddp, for a call at the end of the backward pass",
    "torch.nn.modules.batchnorm._BatchNorm": "batchnorm and diagnosis.watching: every kind of BatchNorm",
    "torch.nn.modules.dropout._DropoutNd": "diagnosis.watching: every kind of dropout",
    "torch.nn.utils.clip_grad._clip_grads_with_norm_": "diagnosis.recording: what did clipping find?",
    "torch.nn.parallel.distributed.DistributedDataParallel._comm_hooks": "diagnosis: is a hook registered?",
    "torch._dynamo.eval_frame.OptimizedModule._orig_mod": "diagnosis.watching and ddp: the module that was compiled",
    "torch.utils.data.dataloader._BaseDataLoaderIter._next_index": "diagnosis.watching: which examples are fetched?",
    "torch.utils.data.dataloader._BaseDataLoaderIter._reset": "diagnosis.watching: when does an epoch begin?",
    "dis._parse_exception_table": "diagnosis.examples: is the end of an epoch expected?",
    "torch.utils.data.dataloader._BaseDataLoaderIter._sampler_iter": "diagnosis.watching, for the same",
    "torch.utils.data.dataloader._BaseDataLoaderIter._dataset_kind": "diagnosis.watching, for the same",
    "torch.utils.data.dataloader._DatasetKind": "diagnosis.watching, for the same",
    "torch.utils._pytree.tree_leaves_with_path": "data_parallel, sharding, checkpoints: nested tuples and dicts",
    "torch.utils._python_dispatch.TorchDispatchMode": "ranks and sharding: every collective, every new tensor",
    "torch.distributed.fsdp.FSDPModule._get_fsdp_state": "diagnosis.watching, which recognises fully_shard",
    "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState._fsdp_param_group": "diagnosis.watching, for the same",
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam.to_unsharded": "diagnosis.parts: whose gradient is it?",
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam.sharded_param": "diagnosis.parts, for the same",
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam.unsharded_param": "diagnosis.parts, for the same",
    "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch": "diagnosis.watching: what do a loader's workers draw?",
    "multiprocessing.process._children": "launch: multiprocessing must not wait for the ranks",
    "multiprocessing.forkserver._forkserver": "launch: a fork server that does not answer is ended",
    "multiprocessing.forkserver.ForkServer._forkserver_pid": "launch, for the same",
    "multiprocessing.forkserver.ForkServer._stop": "launch, for the same",
    "multiprocessing.process.BaseProcess._target": "diagnosis.watching: is this a worker of concurrent.futures?",
    "weakref.finalize._registry": "_rank: a fork need not take apart what its server has loaded",
    "torch._dynamo.utils.dump_compile_times": "_rank, for the same",
    "atexit._run_exitfuncs": "_rank: a fork must end as a Python does",
    "sys._getframe": "diagnosis: the line of the script",
    "os._exit": "train_ddp and diagnosis.watching: end although a group is broken",
}
# What nodes of an autograd graph have saved; diagnosis.loss_weights reads it, and tests/test_watch.py tests that.
SAVED = {"_saved_reduction", "_saved_self", "_saved_self_sym_sizes", "_saved_total_weight"}
TESTS = [f"tests/test_{name}.py" for name in ("launch", "ranks", "ddp", "sharding", "watch")]


def missing() -> list[str]:
    """Those of the private names that this Python's PyTorch does not have."""
    return [name for name in PRIVATE if not is_there(name)]


def is_there(name: str) -> bool:
    """Whether a name in full is that of a module, of what a module or a class holds, or of what objects of it hold."""
    parts = name.split(".")
    here: Any = None
    for i, part in enumerate(parts):
        if hasattr(here, part):
            here = getattr(here, part)
        elif isinstance(here, type):  # objects get it in a method
            return part in inspect.getsource(here)
        else:
            try:
                here = importlib.import_module(".".join(parts[:i + 1]))
            except ImportError:
                return False
    return True


def main(folder: Path) -> None:
    run = environment(folder)
    run("-m", "pip", "install", "-q", "-r", ROOT / "requirements.txt", cwd=ROOT)
    run("-m", "pip", "install", "-q", "--upgrade", "torch", "torchvision")
    versions = {line["name"].lower(): line["version"] for line in json.loads(run("-m", "pip", "list", "--format=json"))}
    print(f"torch {versions['torch']}, torchvision {versions['torchvision']}", flush=True)
    find = "import sys; sys.path.insert(0, sys.argv[1]); import try_newer_torch as t; print(*t.missing())"
    for name in run("-c", find, Path(__file__).parent).split():
        print(f"{name} is gone. It is used in {PRIVATE[name]}", flush=True)
    for tests in ([], ["--nbval", *TESTS]):
        print(re.findall(r".*passed.*", run("-m", "pytest", "-q", *tests, cwd=ROOT))[-1], flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
