"""The rule for names in book/authors.md: what is public is explained and listed, and what is private is left alone."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import nbformat

import d2lpar
from revisions import notebooks

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCRIPTS = {"d2lpar.__main__", "d2lpar._hub", "d2lpar._reaper", "d2lpar.train_ddp"}  # run; readers copy the last one
UNLISTED = SCRIPTS | {"d2lpar._command_line", "d2lpar._rank", "d2lpar.pages.ddp_examples", "d2lpar.pages.to_write"}  # parts; scripts; tables
OF_TORCH = {"forward", "backward"}  # what these do is torch's to say
RULES, ADD = "(book/authors.md, The rules)", "(book/authors.md, Add a function)"


def modules(root: Path) -> dict[str, ast.Module]:
    """The modules of the package, by their names in full."""
    files = {".".join(file.relative_to(root).with_suffix("").parts): file for file in root.glob("d2lpar/**/*.py") if file.parent.name != "stored"}
    return {name.removesuffix(".__init__"): ast.parse(file.read_text("utf8")) for name, file in sorted(files.items())}


def programs(root: Path) -> dict[str, ast.Module]:
    """The modules of the package, the tools and the lab of the book, and the code of the notebooks."""
    found = modules(root) | {file.stem: ast.parse(file.read_text("utf8")) for file in root.glob("book/[lt]*/*.py")}
    for file in notebooks(root / "notebooks"):
        cells = [cell.source for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]
        found[file.name] = ast.parse("\n".join(re.sub(r"^[%!].*", "", source, flags=re.M) for source in cells))
    return found


def listed(root: Path) -> list[str]:
    """The modules on the API pages, in their order; each has a section."""
    book = root / "book"
    linked = re.findall(r"\]\((api/\w+\.md)\)", (book / "api.md").read_text("utf8"))
    assert sorted(linked) == sorted(f"api/{page.name}" for page in book.glob("api/*")), f"Link once, in book/api.md, to each page of book/api/ {ADD}"
    pages = [(book / name).read_text("utf8") for name in linked]
    named = re.findall(r"^## `(\S+)`\n\n```\{eval-rst\}\n\.\. automodule:: (\S+)\n```$", "\n".join(pages), re.M)
    assert [name for name, module in named if not module.endswith(f".{name}")] == [], f"Head each section of book/api/ with its module's name {ADD}"
    return [module for _, module in named]


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


def defined(tree: ast.Module) -> set[str]:
    """The names that a module defines at its top."""
    return {name for node in tree.body for name in [getattr(node, "name", ""), *(
        target.id for target in [*getattr(node, "targets", []), getattr(node, "target", None)] if isinstance(target, ast.Name))] if name}


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
    assert read == [], f"Use a public name, or drop the underscore: each of these is private to the module that defines it {RULES}"


def test_every_public_function_and_class_has_a_docstring(root: Path) -> None:
    bare = []
    for module, tree in modules(root).items():
        if module.endswith("ddp_examples"):
            continue  # scripts, whose names in its tables say what is changed in them
        checks = "check_" if module.startswith("d2lpar.pages.to_write.") else "_"  # whose names say all
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for body in [tree.body, *(node.body for node in classes if not is_private(node.name))]:
            bare += [f"{module}: {node.name}" for node in body if isinstance(node, (*FUNCTIONS, ast.ClassDef))
                     and not node.name.startswith(("_", checks)) and node.name not in OF_TORCH and not ast.get_docstring(node)]
        if not ast.get_docstring(tree):
            bare.append(module)
    assert bare == [], f"Write a docstring for each of these, or begin the name of a helper with an underscore {RULES}"


def test_every_module_stands_on_an_api_page_once(root: Path) -> None:
    packages = {module for module in modules(root) if root.joinpath(*module.split(".")).is_dir()}
    exercises = {module for module in modules(root) if module.startswith(("d2lpar.pages.exercises.", "d2lpar.pages.to_write."))}
    found, wanted = Counter(listed(root)), Counter(set(modules(root)) - packages - exercises - UNLISTED)
    assert {module: f"{found[module]} instead of {wanted[module]}" for module in found | wanted if found[module] != wanted[module]} == {}, (
        f"Give each module one section on a page of book/api/; these have a different number {ADD}")


def test_a_package_only_passes_on_what_its_modules_define(root: Path) -> None:
    for module, tree in modules(root).items():
        if root.joinpath(*module.split(".")).is_dir():
            defined = [node.name for node in tree.body if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
            assert [f"{module}.{name}" for name in defined if not name.startswith("__")] == [], f"Define these in a module, and import them here {RULES}"


def test_imports_go_in_the_order_of_the_api_pages(root: Path) -> None:
    order, trees = listed(root), modules(root)
    places = {module: place for place, module in enumerate(order)}
    early = [f"{module} imports {other}, which comes later" for module in order
             for other, _, _ in imports(trees[module], set(trees)) if other not in UNLISTED
             if places[other] >= places[module]]
    assert early == [], f"Move the function to a later module, or the section of its module further down in book/api/ {RULES}"


def public(root: Path, package: str = "d2lpar") -> dict[str, str]:
    """The names that a package passes on, each with the module from which it comes."""
    tree = modules(root)[package]
    ours = [node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("d2lpar")]
    assert [alias.name for node in ours for alias in node.names if alias.name != alias.asname] == [], f"Write `import NAME as NAME` in the __init__.py of {package} {ADD}"
    return {name: module for module, name, _ in imports(tree, set(modules(root))) if name}


def test_the_top_of_the_package_is_what_the_api_page_and_its_help_say(root: Path) -> None:
    said = re.search(r"^`import d2lpar as dp` provides .*?\n\n(.*?)\n\n", (root / "book" / "api.md").read_text("utf8"), re.M | re.S)
    assert said and dict(re.findall(r"~(d2lpar[.a-z_]*)\.(\w+)`", said[1])) != {}
    assert {name: module for module, name in re.findall(r"~(d2lpar[.a-z_]*)\.(\w+)`", said[1])} == public(root), (
        f"List at the top of book/api.md (left) what d2lpar/__init__.py imports (right) {ADD}")
    helped = re.search(r"the order of the book:(.*?)`help`", ast.get_docstring(modules(root)["d2lpar"]) or "", re.S)
    assert helped
    words = Counter(re.findall(r"\w+", re.sub(r"^\s*[A-Z][A-Za-z, ]+:", "", helped[1], flags=re.M)))
    assert words == Counter([*public(root)]), f"List in the docstring of d2lpar/__init__.py (left), once, each name that this file imports (right) {ADD}"


def test_each_name_has_one_home(root: Path) -> None:
    names = {module: defined(tree) for module, tree in modules(root).items()}
    for package in ("d2lpar", "d2lpar.pages"):
        assert {name: module for name, module in public(root, package).items() if name not in names[module]} == {}, (
            f"In the __init__.py of {package}, import each of these from the module that defines it {RULES}")
    assert set(public(root)) & set(public(root, "d2lpar.pages")) == set(), f"Import these in one of the two __init__.py only {RULES}"
    assert {module for module in public(root, "d2lpar.pages").values() if not module.startswith("d2lpar.pages.")} == set(), (
        f"In d2lpar/pages/__init__.py, import only from modules of d2lpar/pages/ {RULES}")


def test_nothing_in_the_helper_imports_the_diagnosis_the_cluster_or_what_only_pages_need(root: Path) -> None:
    trees, products = modules(root), ("d2lpar.diagnosis", "d2lpar.cluster", "d2lpar.pages")

    def part_of(module: str) -> str:
        """The product that a module belongs to, "" for the helper, and the commands, which may start any."""
        return next((product for product in products if f"{module}.".startswith(f"{product}.")), "")

    reaching = {f"{module} imports {other}" for module, tree in trees.items() for other, _, _ in imports(tree, set(trees))
                if part_of(other) not in ("", part_of(module)) and module not in ("d2lpar", "d2lpar.__main__")
                and part_of(module) != "d2lpar.pages"}
    assert reaching == set(), f"Pass what the function needs as an argument: the helper package stands alone {RULES}"


def test_the_top_of_the_package_imports_what_is_no_helper_on_first_use_and_lists_it(root: Path) -> None:
    later = {name for name, module in public(root).items() if re.match(r"d2lpar\.(diagnosis|cluster)\b", module)}
    assert later == {"Cluster", "ClusterError", "check_feed", "diagnose", "watch"}, f"Remove the new name, which comes from diagnosis/ or the cluster, or add it to the set in this test {ADD}"
    assert later - set(dir(d2lpar)) == set(), f"Add these to _ON_FIRST_USE in d2lpar/__init__.py {ADD}"
    for name in later:
        assert getattr(d2lpar, name).__module__ == public(root)[name]


def test_no_module_has_the_name_of_something_else_that_is_public(root: Path) -> None:
    stems = [module.rpartition(".")[2] for module in modules(root)]
    assert (set(public(root)) | set(public(root, "d2lpar.pages"))) & set(stems) == set(), f"Rename the module, or what has the same name in an __init__.py {RULES}"
    listed_stems = Counter(module.rpartition(".")[2] for module in listed(root))
    assert [stem for stem, count in listed_stems.items() if count > 1] == [], f"Rename one of the modules with this name {RULES}"
