"""`make check`: run the notebooks and the tests that a change can affect, and say what is left out.

The change is whatever differs between the files here and the commit where this branch left `main`, or a revision that
is named: `make check REV=main~3`. A notebook runs if its code cells, their outputs or their tags differ, or if one of
the files does on which its code depends: the modules whose names it uses, the modules that these use, and so on. A test
file runs if it, or a file on which it depends, differs. A file depends on another one if it imports it, uses a name
from it, or mentions its file name. Tests that read the whole book run after every change, and the tests that look at
the built site after every change that it may show. After any other change, of the requirements or the data for example,
everything runs.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from revisions import git, notebooks, tracked

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"conftest\.py|(d2lpar|book/tools|book/lab|tests|tests/helpers)/[^/]+\.py|d2lpar/(diagnosis|pages)/(exercises/)?[^/]+\.py")
SHOWN = re.compile(r"(book|zh)/(?!tools/|lab/).*|README.*\.md|_config\.yml|_toc\.yml|notebooks/.*\.ipynb")  # on the site
ABOUT = re.compile(r"\.(github|ci|binder|devcontainer)/.*|\.git\w+|\.pre-commit-config\.yaml|Makefile|[A-Z]+(\.md|\.cff)?|"
                   r"tests/(wrong_answers|diagnose|watch)/.*|tests/mutations\.toml")
READS_ALL = re.compile(r"\b(notebooks|chapters): |\b(tracked|tracked_notebooks|notebooks)\(|\bmodules\(root|\broot\b.{0,20}\.r?glob\(")
READS_SITE = re.compile(r"\b(site|pages|chinese_pages): ")
BROWSER = re.compile(r"\bplaywright\b")
EVERYWHERE = {"d2lpar": "d2lpar/__init__.py", "d2lpar.pages": "d2lpar/pages/__init__.py"}  # these only pass names on
FIXTURES = "tests/conftest.py"
NOT_TOLD = {"__init__.py", "__main__.py", "conftest.py"}  # names that do not say which file is meant
BY_FOLDER = {"tests/diagnose/": "tests/test_diagnosis.py", "tests/watch/": "tests/test_watch.py",
             "tests/wrong_answers/": "tests/test_notebooks.py"}


class Chosen(NamedTuple):
    """What runs, each with the reason; `everything` is the file after whose change everything runs, or ""."""

    notebooks: dict[str, str]
    tests: dict[str, str]
    everything: str


class Book:
    """The files of the book, by their paths below the top folder, and what each of them depends on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {path.relative_to(root).as_posix() for path in tracked(root)}
        self.code = {name for name in self.files if CODE.fullmatch(name)}
        self.notebooks = [path.relative_to(root).as_posix() for path in notebooks(root / "notebooks") if path in tracked(root)]
        self.tests = sorted(name for name in self.code if re.fullmatch(r"tests/test_\w+\.py", name))
        self.modules = {module: name for name in self.code for module in modules_of(name)}
        self.by_name: dict[str, set[str]] = {}
        for name in self.files:
            for word in {Path(name).name, *[Path(name).stem] * name.endswith(".ipynb")} - NOT_TOLD:
                self.by_name.setdefault(word, set()).add(name)
        self.homes = {package: self._homes(package) for package in EVERYWHERE}

    def _homes(self, package: str) -> dict[str, str]:
        """For each name that a package passes on, the module that it comes from."""
        tree = ast.parse((self.root / EVERYWHERE[package]).read_text("utf8"))
        return {alias.asname or alias.name: node.module or "" for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) for alias in node.names}

    def source(self, name: str) -> str:
        text = (self.root / name).read_text("utf8")
        if not name.endswith(".ipynb"):
            return text
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return re.sub(r"^([ \t]*)([%!].*)", r"\1_ = r'''\2'''", "\n".join(cells), flags=re.M)  # still mentions what it runs

    @cache
    def uses(self, name: str) -> set[str]:
        """The files that a file of code names."""
        tree = ast.parse(self.source(name))
        if name == FIXTURES:  # its functions belong to the tests that ask for them
            tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)]
        elif name in self.tests:
            asked = {arg.arg for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for arg in node.args.args}
            tree.body += [node for node in ast.parse(self.source(FIXTURES)).body if getattr(node, "name", "") in asked]
        words = words_in(tree)
        found = {self.modules[module] for full in names_in(tree, words) for module in self._home(full)}
        found |= {file for word in re.findall(r"[\w.-]*\w", words) for file in self.by_name.get(word, ())}
        if name in self.notebooks:  # the modules of its exercises
            found |= {self.modules[module] for label in re.findall(r"\bex-[\w-]+", words)
                      if (module := f"d2lpar.pages.exercises.{label.replace('-', '_')}") in self.modules}
        if not name.startswith(("d2lpar/", "book/lab/")) and re.search(r"-m\W+d2lpar\b", words):
            found.add("d2lpar/__main__.py")
        return found - {name}

    def _home(self, full: str) -> list[str]:
        """The module that a full name is, or is in; none for a package, and for what is not the book's."""
        package, _, last = full.rpartition(".")
        if full in self.modules:
            return [full] * (full not in EVERYWHERE)
        if package in EVERYWHERE:
            return [home for home in [self.homes[package].get(last, "")] if home in self.modules]
        return self._home(package) if package else []

    def depend_on(self, changed: set[str]) -> dict[str, str]:
        """The files of code that depend on changed ones, each with one of these."""
        users: dict[str, set[str]] = {}
        for name in (self.code | set(self.notebooks)) - set(EVERYWHERE.values()):
            for used in self.uses(name):
                users.setdefault(used, set()).add(name)
        reached: dict[str, str] = {}
        for start in sorted(changed):
            todo = [start]
            while todo:
                for user in users.get(todo.pop(), set()) - set(reached) - changed:
                    reached[user] = start
                    todo.append(user)
        return reached


def modules_of(name: str) -> list[str]:
    """How a file of code is imported."""
    parts = Path(name).with_suffix("").parts
    if parts[0] == "d2lpar":
        return [".".join(parts).removesuffix(".__init__")]
    return [".".join(parts[2:] if parts[0] == "book" else parts[1:])]


def words_in(tree: ast.AST) -> str:
    """The strings of a program, without its docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return "\n".join(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)
                     and isinstance(node.value, str) and id(node) not in docstrings)


def names_in(tree: ast.AST, words: str) -> set[str]:
    """The full names that a program imports, takes from the packages or has in its strings."""
    found, tops = set(), {"dp": "d2lpar", "d2lpar": "d2lpar", "book": "d2lpar.pages"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in tops:
            found.add(f"{tops[node.value.id]}.{node.attr}")
    found |= {f"{tops[top]}.{name}" for top, name in re.findall(r"\b(dp|book)\.(\w+)", words)}
    return found | set(re.findall(r"\bd2lpar(?:\.\w+)+", words))


def code_of(text: str) -> list:
    """What nbval runs and compares of a notebook."""
    return [(cell["source"], cell.get("outputs"), cell["metadata"].get("tags")) for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"]


def base(root: Path, revision: str) -> tuple[str, str]:
    """The commit to compare with, and words that say which it is."""
    if revision:
        return revision, revision
    for main in ("origin/main", "main"):
        commit = (git(root, "merge-base", "HEAD", main) or "").strip()
        if commit and (main == "origin/main" or commit != (git(root, "rev-parse", "HEAD") or "").strip()):
            return commit, f"{commit[:7]}, where this branch left {main}"
    return "HEAD", "the last commit"


def changed_files(root: Path, revision: str) -> set[str] | None:
    """The files that differ from a revision, and new ones; None if git cannot tell."""
    differ = git(root, "diff", "--name-only", "-z", "--no-renames", revision, "--")
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return None if differ is None or new is None else {name for name in (differ + new).split("\0") if name}


def choose(root: Path, revision: str, changed: set[str]) -> Chosen:
    """What has to run after these files have changed since a revision."""
    book = Book(root)
    chosen, tests = {}, {}
    code = set()
    for name in sorted(changed):
        if name in book.notebooks:
            before = git(root, "show", f"{revision}:{name}")
            if before is None or code_of(before) != code_of((root / name).read_text("utf8")):
                chosen[name] = "its code or outputs"
        elif name in book.code:
            code.add(name)
        elif not (SHOWN.fullmatch(name) or ABOUT.fullmatch(name) or re.fullmatch(r"tests/test_\w+\.py", name)):
            return Chosen({}, {}, name)
    reached = book.depend_on(changed & book.files)
    for name in ("conftest.py", FIXTURES, *EVERYWHERE.values()):
        if name in code or name in reached:
            return Chosen({}, {}, reached.get(name, name))
    for name in book.tests:
        text = book.source(name)
        folders = [folder for folder, test in BY_FOLDER.items() if test == name and any(each.startswith(folder) for each in changed)]
        if name in code or name in reached or folders:
            tests[name] = name if name in code else reached.get(name) or folders[0]
        elif READS_SITE.search(text) and any(SHOWN.fullmatch(each) or each.startswith("d2lpar/") for each in changed) and (
                not BROWSER.search(text) or any(SHOWN.fullmatch(each) or each.startswith("d2lpar/pages/") for each in changed)):
            tests[name] = "reads the site"
        elif changed and READS_ALL.search(text):
            tests[name] = "reads the whole book"
    return Chosen(chosen | {name: reached[name] for name in book.notebooks if name in reached and name not in chosen}, tests, "")


def main() -> None:
    revision, words = base(ROOT, "".join(sys.argv[1:]))
    changed = changed_files(ROOT, revision)
    if changed is None:
        sys.exit(f"git cannot compare these files with {revision or 'anything'}: run make test, or name a revision: make check REV=main")
    print(f"compared with {words}: {len(changed)} file{'s' * (len(changed) != 1)} changed")
    if not changed:
        sys.exit(0)
    chosen = choose(ROOT, revision, changed)
    book = Book(ROOT)
    if chosen.everything:
        print(f"Everything can depend on {chosen.everything}, so everything runs, as in make test.")
        names = []
    else:
        for kind, run, every in (("notebooks", chosen.notebooks, book.notebooks), ("test files", chosen.tests, book.tests)):
            print(f"runs {len(run)} of {len(every)} {kind}, and leaves out {len(every) - len(run)}")
            for reason in sorted({*run.values()}):
                print(f"  {reason}: {' '.join(Path(name).stem for name in run if run[name] == reason)}")
        names = [*chosen.notebooks, *chosen.tests]
    sys.stdout.flush()
    processes = str(min((os.cpu_count() or 1) + 1, 4))
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", "--nbval", "-m", "not weekly", "-n", processes, *names], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
