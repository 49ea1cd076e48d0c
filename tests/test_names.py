"""The rule for names in book/authors.md: what is public is explained and listed, and what is private is left alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat

import d2lpar

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCRIPTS = {"d2lpar.__main__", "d2lpar.processes.keeper", "d2lpar.processes.rank"}  # run, never imported
UNLISTED = SCRIPTS | {"d2lpar.compat", "d2lpar.processes.children"}  # the parts of launch, and what mends another package
OF_TORCH = {"forward", "backward"}  # what these do is torch's to say


def modules(root: Path) -> dict[str, ast.Module]:
    """The modules of the package, by their names in full."""
    files = {".".join(file.relative_to(root).with_suffix("").parts): file for file in root.glob("d2lpar/**/*.py")}
    return {name.removesuffix(".__init__"): ast.parse(file.read_text("utf8")) for name, file in sorted(files.items())}


def programs(root: Path) -> dict[str, ast.Module]:
    """The modules of the package, the tools of the book, and the code of the notebooks."""
    found = modules(root) | {file.stem: ast.parse(file.read_text("utf8")) for file in root.glob("book/tools/*.py")}
    for file in sorted(root.glob("notebooks/*.ipynb")):
        cells = [cell.source for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]
        found[file.name] = ast.parse("\n".join(re.sub(r"^[%!].*", "", source, flags=re.M) for source in cells))
    return found


def listed(root: Path) -> list[str]:
    """The modules on the API page, each with a few words on what it is for, in the order of the page."""
    lines = re.findall(r"^- \[`(\S+)`\]\(api/(\S+)\.md\): .+\.$", (root / "book" / "api.md").read_text("utf8"), re.M)
    assert [name for name, page in lines if name != page] == []
    return [f"d2lpar.{name}" for name, _ in lines]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> set[str]:
    """What a program defines for itself: functions, classes, variables, and attributes of its objects."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if is_private(name)}


def imports(tree: ast.AST, ours: set[str]) -> Iterator[tuple[str, str, str]]:
    """For each import of one of our modules, or from it: the module, the name imported from it or "", and the name here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ours:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                known = (module, "") if module in ours else (node.module, alias.name)
                yield *known, alias.asname or alias.name
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "", alias.asname or alias.name) for alias in node.names if alias.name in ours)


def test_nobody_reads_a_private_name_of_another_module(root: Path) -> None:
    every = programs(root)
    own = {name: private_names(tree) for name, tree in every.items()}
    read = []
    for here, tree in every.items():
        imported = list(imports(tree, set(every)))
        read += [f"{here}: {name} of {module}" for module, name, _ in imported if is_private(name)]
        theirs = set().union(*(names for name, names in own.items() if name != here)) - own[here]
        bound = {name for _, _, name in imported}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and (
                    node.attr in theirs or ast.unparse(node.value) in bound):
                read.append(f"{here}: {ast.unparse(node)}")
    assert read == []


def test_every_public_function_and_class_has_a_docstring(root: Path) -> None:
    bare = []
    for module, tree in modules(root).items():
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for body in [tree.body, *(node.body for node in classes if not is_private(node.name))]:
            bare += [f"{module}: {node.name}" for node in body if isinstance(node, (*FUNCTIONS, ast.ClassDef))
                     and not node.name.startswith("_") and node.name not in OF_TORCH and not ast.get_docstring(node)]
        if not ast.get_docstring(tree):
            bare.append(module)
    assert bare == []


def test_every_module_stands_on_the_api_page_once(root: Path) -> None:
    packages = {module for module in modules(root) if root.joinpath(*module.split(".")).is_dir()}
    assert sorted(listed(root)) == sorted(set(modules(root)) - packages - UNLISTED)


def test_every_module_on_the_api_page_has_a_page_of_its_own(root: Path) -> None:
    there = {page.stem: page.read_text("utf8") for page in (root / "book" / "api").iterdir()}
    names = [module.removeprefix("d2lpar.") for module in listed(root)]
    assert there == {name: f"# `{name}`\n\n```{{eval-rst}}\n.. automodule:: d2lpar.{name}\n```\n" for name in names}


def test_a_package_only_passes_on_what_its_modules_define(root: Path) -> None:
    for module, tree in modules(root).items():
        if root.joinpath(*module.split(".")).is_dir():
            defined = [node.name for node in tree.body if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
            assert [name for name in defined if not name.startswith("__")] == [], module


def test_imports_go_in_the_order_of_the_api_page(root: Path) -> None:
    order, trees = listed(root), modules(root)
    places = {module: place for place, module in enumerate(order)} | {"d2lpar.processes": order.index("d2lpar.processes.launch")}
    early = [f"{module} imports {other}, which comes later" for module in order
             for other, _, _ in imports(trees[module], set(trees)) if other not in UNLISTED
             if places[other] >= places[module]]
    assert early == []


def test_the_top_of_the_package_is_what_the_api_page_says_and_what_editors_see(root: Path) -> None:
    assert sorted(dir(d2lpar)) == sorted(d2lpar.__all__)
    said = re.search(r"^What most pages need.*?\n(.*)\n", (root / "book" / "api.md").read_text("utf8"), re.M)
    assert said and sorted(re.findall(r"\.(\w+)`", said[1])) == sorted(d2lpar.__all__)
    [for_editors] = [node for node in modules(root)["d2lpar"].body
                     if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    homes = {name: f"d2lpar.{home}" for name, home in d2lpar._HOMES.items()}
    assert {name: module for module, name, _ in imports(for_editors, set(modules(root)))} == homes
