"""`make check`: run the notebooks and the tests that a change can affect, and say what is left out.

The change is whatever differs between the files here and the commit where this branch left `main`, or a revision that
is named: `make check REV=main~3`. A notebook runs if its code cells, their outputs or their tags have changed. A
notebook or a test file also runs if a file that it depends on has changed, directly or through other files. A file
depends on another one if it imports it, uses a name from it, or mentions its file name in a string. Tests that read the
whole book always run. Tests of the built site run after every change that is visible there, and tests in a browser if
more than prose has changed. If a file of any other kind has changed, such as the requirements or the data, everything
runs.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from revisions import git, notebooks, tracked

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = "tests/conftest.py"
PACKAGES = {"d2lpar": "d2lpar/__init__.py", "d2lpar.pages": "d2lpar/pages/__init__.py"}  # they only pass names on
TOPS = {"dp": "d2lpar", "d2lpar": "d2lpar", "book": "d2lpar.pages"}
IN_BROWSER = "tests/test_browser.py", "tests/test_lab.py"
BY_FOLDER = {"tests/diagnose/": "tests/test_diagnosis.py", "tests/watch/": "tests/test_watch.py",
             "tests/wrong_answers/": "tests/test_notebooks.py", "tests/wrong_versions/": "tests/test_building.py"}

CODE = re.compile(r"conftest\.py|(d2lpar|d2lpar/diagnosis|d2lpar/pages|d2lpar/pages/(exercises|to_write)|book/tools"
                  r"|book/lab|tests|tests/helpers)/[^/]+\.py")
TEST = re.compile(r"tests/test_\w+\.py")
SITE = re.compile(r"(book|zh)/(?!tools/|lab/).*|README.*\.md|_config\.yml|_toc\.yml|notebooks/.*\.ipynb")
ABOUT = re.compile(r"\.(github|ci|binder|devcontainer)/.*|\.git\w+|\.pre-commit-config\.yaml|Makefile"
                   r"|[A-Z]+(\.md|\.cff)?|tests/mutations\.toml")
READS_ALL = re.compile(r"\b(notebooks|chapters): |\b(tracked|tracked_notebooks|notebooks)\(|\bmodules\(root"
                       r"|\broot\b.{0,20}\.r?glob\(")
READS_SITE = re.compile(r"\b(site|pages|chinese_pages): ")


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
        self.notebooks = [name for path in notebooks(root / "notebooks")
                          if (name := path.relative_to(root).as_posix()) in self.files]
        self.code = {name for name in self.files if CODE.fullmatch(name)}
        self.tests = sorted(name for name in self.code if TEST.fullmatch(name))
        self.modules = {module_of(name): name for name in self.code}
        # file names, except those that do not say which file is meant, and that of the guide, to which failures point
        self.by_name: dict[str, set[str]] = {}
        for name in self.files:
            for word in {Path(name).name, Path(name).stem if name in self.notebooks else Path(name).name}:
                if word not in ("__init__.py", "__main__.py", "conftest.py", "authors.md"):
                    self.by_name.setdefault(word, set()).add(name)
        self.homes = {package: passed_on((root / file).read_text("utf8"))[0] for package, file in PACKAGES.items()}

    def parse(self, name: str) -> ast.Module:
        """The program in a file; of a notebook its code cells, with IPython's commands as strings."""
        text = (self.root / name).read_text("utf8")
        if name.endswith(".ipynb"):
            cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
            text = "\n".join("".join(cell["source"]) for cell in cells)
            text = re.sub(r"^([ \t]*)([%!].*)", r"\1_ = r'''\2'''", text, flags=re.M)
        return ast.parse(text)

    def uses(self, name: str) -> set[str]:
        """The files that a file of code names."""
        tree = self.parse(name)
        if name == FIXTURES:  # its functions belong to the tests that ask for them
            tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)]
        elif name in self.tests:
            asked = {argument.arg for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
                     for argument in node.args.args}
            tree.body += [node for node in self.parse(FIXTURES).body if getattr(node, "name", "") in asked]
        words = strings_of(tree)
        found = {self.modules[module] for full in names_in(tree, words) for module in self.home(full)}
        told = {file for word in re.findall(r"[\w.-]*\w", words) for file in self.by_name.get(word, ())}
        found |= told if name.startswith("tests/") else told & {*self.code, *self.notebooks}
        if name in self.notebooks:
            exercises = (f"d2lpar.pages.exercises.{label.replace('-', '_')}"
                         for label in re.findall(r"\bex-[\w-]+", words))
            found |= {self.modules[module] for module in exercises if module in self.modules}
        if not name.startswith(("d2lpar/", "book/lab/")) and re.search(r"-m\W+d2lpar\b", words):
            found.add("d2lpar/__main__.py")
        return found - {name}

    def home(self, full: str) -> list[str]:
        """The module that a full name is, or is in; none for a package, and for what is not the book's."""
        package, _, last = full.rpartition(".")
        if full in self.modules:
            return [full] * (full not in PACKAGES)
        if package in PACKAGES:
            return [home for home in [self.homes[package].get(last, "")] if home in self.modules]
        return self.home(package) if package else []

    def using(self, names: set[str]) -> set[str]:
        """The files of code that use one of these full names."""
        trees = {name: self.parse(name) for name in (self.code | {*self.notebooks}) - {*PACKAGES.values()}}
        return {name for name, tree in trees.items() if names & names_in(tree, strings_of(tree))}

    def users(self) -> dict[str, set[str]]:
        """For each file the files of code that name it."""
        found: dict[str, set[str]] = {}
        for name in (self.code | set(self.notebooks)) - set(PACKAGES.values()):
            for used in self.uses(name):
                found.setdefault(used, set()).add(name)
        return found

    def depend_on(self, changed: set[str]) -> dict[str, str]:
        """The files of code that depend on changed ones, each with one of these."""
        users = self.users()
        reached: dict[str, str] = {}
        for start in sorted(changed):
            todo = [start]
            while todo:
                for user in users.get(todo.pop(), set()) - set(reached) - changed:
                    reached[user] = start
                    todo.append(user)
        return reached


def passed_on(text: str) -> tuple[dict[str, str], str]:
    """The names that a package passes on, each with its module, and the rest of its program, without docstring."""
    tree = ast.parse(text)
    lines = [node for node in ast.walk(tree)
             if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("d2lpar.")]
    names = {alias.name: node.module or "" for node in lines for alias in node.names}
    rest = [node for node in tree.body if node not in lines
            and not isinstance(getattr(node, "value", None), ast.Constant)]
    return names, "\n".join(map(ast.unparse, rest))


def module_of(name: str) -> str:
    """How a file of code is imported."""
    parts = Path(name).with_suffix("").parts
    skipped = {"book": 2, "tests": 1}.get(parts[0], 0)  # these folders are on pytest's path
    return ".".join(parts[skipped:]).removesuffix(".__init__")


def strings_of(tree: ast.AST) -> str:
    """The strings of a program, without its docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return "\n".join(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)
                     and isinstance(node.value, str) and id(node) not in docstrings)


def names_in(tree: ast.AST, strings: str) -> set[str]:
    """The full names that a program imports, takes from the packages or has in its strings."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in TOPS:
            found.add(f"{TOPS[node.value.id]}.{node.attr}")
    found |= {f"{TOPS[top]}.{name}" for top, name in re.findall(r"\b(dp|book)\.(\w+)", strings)}
    return found | set(re.findall(r"\bd2lpar(?:\.\w+)+", strings))


def code_of(text: str) -> list:
    """What nbval runs and compares of a notebook."""
    return [(cell["source"], cell.get("outputs"), cell["metadata"].get("tags")) for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"]


def base(root: Path, revision: str) -> tuple[str, str]:
    """The commit to compare with, and words that say which it is."""
    if revision:
        return revision, revision
    head = (git(root, "rev-parse", "HEAD") or "").strip()
    for main in ("origin/main", "main"):
        commit = (git(root, "merge-base", "HEAD", main) or "").strip()
        if commit and (main != "main" or commit != head):
            return commit, f"{commit[:7]}, where this branch left {main}"
    return "HEAD", "the last commit"


def changed_files(root: Path, revision: str) -> set[str] | None:
    """The files that differ from a revision, of those that git tracks now or did then; None if git cannot tell."""
    differ = git(root, "diff", "--name-only", "-z", "--no-renames", revision, "--")
    return None if differ is None else {name for name in differ.split("\0") if name}


def choose(root: Path, revision: str, changed: set[str]) -> Chosen:
    """What has to run after these files have changed since a revision."""
    book = Book(root)
    known = book.code | {name for name in changed if SITE.fullmatch(name) or ABOUT.fullmatch(name)
                         or TEST.fullmatch(name) or name.startswith((*BY_FOLDER,))}
    names = set()  # that a package passes on now but did not before, or the other way round
    for name in sorted(changed):
        if package := next((package for package, file in PACKAGES.items() if file == name), ""):
            texts = git(root, "show", f"{revision}:{name}") or "", (root / name).read_text("utf8")
            before, now = map(passed_on, texts)
            names |= {f"{package}.{one}" for one, _ in before[0].items() ^ now[0].items()}
            if before[1] != now[1]:
                return Chosen({}, {}, name)
        elif name not in known:
            return Chosen({}, {}, name)
    run = {name: "code, outputs or tags have changed" for name in book.notebooks if name in changed and (
        (before := git(root, "show", f"{revision}:{name}")) is None
        or code_of(before) != code_of((root / name).read_text("utf8")))}
    prose = {name for name in changed if name.endswith(".md") or (name.endswith(".ipynb") and name not in run)}
    new = book.using(names) if names else set()
    reached = book.depend_on(changed & book.files | new)
    reached |= dict.fromkeys(new - changed, ", ".join(sorted(names)))
    for name in ("conftest.py", FIXTURES):
        if name in changed or name in reached:
            return Chosen({}, {}, reached.get(name, name))
    shown = any(SITE.fullmatch(name) or name.startswith("d2lpar/") for name in changed)
    more_than_prose = any(SITE.fullmatch(name) or name.startswith("d2lpar/pages/") for name in changed - prose)
    tests = {}
    for name in book.tests:
        text = (root / name).read_text("utf8")
        folder = next((folder for folder, test in BY_FOLDER.items()
                       if test == name and any(one.startswith(folder) for one in changed)), "")
        if name in changed or name in reached or folder:
            tests[name] = name if name in changed else reached.get(name, folder)
        elif name in IN_BROWSER:
            tests |= {name: "tests in a browser"} if more_than_prose else {}
        elif shown and READS_SITE.search(text):
            tests[name] = "tests of the built site"
        elif changed and READS_ALL.search(text):
            tests[name] = "tests that read the whole book"
    return Chosen(run | {name: reached[name] for name in book.notebooks if name in reached}, tests, "")


def main() -> None:
    revision, words = base(ROOT, "".join(sys.argv[1:]))
    changed = changed_files(ROOT, revision)
    if changed is None:
        sys.exit(f"git cannot compare these files with {revision}. Run make test, or name a revision: REV=HEAD")
    print(f"compared with {words}: {len(changed)} file{'s' * (len(changed) != 1)} changed")
    if new := (git(ROOT, "ls-files", "--others", "--exclude-standard") or "").split("\n")[:-1]:
        print(f"ignored, because git does not track these files yet (run git add on them): {' '.join(new)}")
    if not changed:
        print("nothing has been checked")
        sys.exit(0)
    chosen, book = choose(ROOT, revision, changed), Book(ROOT)
    if chosen.everything:
        print(f"everything runs, as in make test: any file may depend on {chosen.everything}")
    else:
        kinds = ("notebooks", chosen.notebooks, book.notebooks), ("test files", chosen.tests, book.tests)
        for kind, run, every in kinds:
            left = [Path(name).stem for name in every if name not in run]
            print(f"\n{kind}: {len(run)} of {len(every)} run")
            for reason in sorted({*run.values()}):
                print(f"  {reason}: {' '.join(Path(name).stem for name in run if run[name] == reason)}")
            print(f"  left out: {' '.join(left) or 'none'}")
    sys.stdout.flush()
    processes = str(min((os.cpu_count() or 1) + 1, 4))
    names = [*chosen.notebooks, *chosen.tests]
    command = [sys.executable, "-m", "pytest", "--nbval", "-m", "not weekly", "-n", processes, *names]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
