"""The list of private names in book/tools/try_newer_torch.py: all of them are there today, and no other is used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from try_newer_torch import PRIVATE, SAVED, is_there, missing


def test_every_private_name_on_the_list_is_there_today() -> None:
    assert missing() == [], "Find what replaces these, and change the package and PRIVATE in book/tools/try_newer_torch.py (book/authors.md, Upgrade PyTorch)"


@pytest.mark.parametrize("name", ["torch._C._no_such_name", "torch.nn.modules.module.Module._no_such_name", "torch._no_such_module.x",
                                  "torch.utils.data.dataloader.DataLoader._no_such_name"])
def test_a_name_that_has_gone_is_noticed(name: str) -> None:
    assert not is_there(name)


def test_the_package_uses_no_other_private_name_of_pytorch_or_of_python(root: Path) -> None:
    files = [file for file in (root / "d2lpar").rglob("*.py") if file.parent.name not in ("stored", "exercises", "to_write")]
    trees = {file.relative_to(root): ast.parse(file.read_text("utf8")) for file in files}
    nodes = [(file, node) for file, tree in trees.items() for node in ast.walk(tree)]
    own = {node.name for _, node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for _, node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {"_replace", "_asdict", *(file.stem for file in trees)}  # named tuples promise the first two
    listed = {part for name in PRIVATE for part in name.split(".") if part.startswith("_")} | SAVED
    used = [(str(file), node.attr) for file, node in nodes if isinstance(node, ast.Attribute) and not node.attr.endswith("__")]
    used += [(str(file), alias.name) for file, node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    used += [(str(file), part) for file, node in nodes if isinstance(node, ast.ImportFrom) and node.module for part in node.module.split(".")]
    used += [(str(file), node.args[1].value) for file, node in nodes if isinstance(node, ast.Call) and len(node.args) > 1
             and ast.unparse(node.func) in ("getattr", "hasattr") and isinstance(node.args[1], ast.Constant)]
    found = {(file, name) for file, name in used if name.startswith("_") and not name.startswith("__") and name not in own | listed}
    assert found == set(), "Use a public name, or add these to PRIVATE in book/tools/try_newer_torch.py (book/authors.md, Upgrade PyTorch)"
    assert {"_execution_engine", "_tensor_name", "_functorch", "_pytree"} <= {name for _, name in used}
