"""Where the book may read translated: `python book/tools/language.py [FILES]` counts, `--show PATTERN` prints the hits.

It is a lamp, not a target. A pattern in `language.toml` says where an editor should look, not what to change: most hits
of most patterns are good English, and a sentence that is turned round to dodge a pattern is worse than the pattern.
Only a pattern that had no good use among the hits that were read may fail a test.

Four kinds of text are read: the prose of pages and Markdown cells, docstrings, messages (all other strings of four
words or more, except in tests), and the words of figures. Code, link targets and quotations are left out.
"""

from __future__ import annotations

import argparse
import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import nbformat

from chapter_sizes import CODE, ROOT
from revisions import tracked

IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)|^:alt: (.*)$", re.M)
LEFT_OUT = re.compile(r"`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$|<[^>\n]+>|[\"“][^\"”\n]{40,}[\"”]", re.S)
MARKS = re.compile(r"^(?:```.*|:{3,}.*|\([\w-]+\)=|:[\w-]+: .*|>.*|\s*\|[-| :]+\|)$", re.M)
BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*:#|]|\d+\.) ?)|(?<=\s)\|(?=\s)")  # between paragraphs, items, cells


@cache
def patterns() -> dict[str, dict]:
    """The table of `language.toml`, with `find` compiled."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf8"))
    return {name: row | {"find": re.compile(row["find"])} for name, row in rows.items()}


def plain(kind: str, text: str) -> Iterator[tuple[str, str]]:
    """Each paragraph, item and cell of a table on one line, after its kind; an image's words are a figure's."""
    for found in IMAGE.finditer(text):
        yield from plain("figure", found[1] or found[2] or "")
    text = LEFT_OUT.sub("…", MARKS.sub("", CODE.sub("", IMAGE.sub("", text))))
    for part in BREAK.split(re.sub(r"\]\([^)]*\)", "]", text)):
        if words := " ".join(re.sub(r"^\s*(?:#+|[-*:|]|\d+\.) |[*_\[\]]", "", part).split()):
            yield kind, words


def of_python(source: str, messages: bool = True) -> Iterator[tuple[str, str]]:
    seen = set()  # the docstrings, and the parts of f-strings
    for node in ast.walk(ast.parse(re.sub(r"^[%!].*", "", source, flags=re.M))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (words := ast.get_docstring(node)):
            seen.update(ast.walk(node.body[0]))
            yield from plain("docstring", words)
        elif messages and node not in seen and isinstance(node, (ast.JoinedStr, ast.Constant)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            seen.update(parts)
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
            if len(re.findall(r"(?<!\S)[a-zA-Z]{2,}", words)) > 3:
                yield from plain("message", words)


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """All text of a page, a notebook, a module or an interactive figure."""
    source = path.read_text("utf8")
    if path.suffix == ".md":
        yield from plain("prose", source)
    elif path.suffix == ".py":
        yield from of_python(source, messages="tests" not in path.parts)
    elif path.suffix == ".json":
        yield from (("figure", words) for words in re.findall(r'"(?:description|title)": "([^"]+)"', source))
    else:
        for cell in nbformat.reads(source, as_version=4).cells:
            yield from plain("prose", cell.source) if cell.cell_type == "markdown" else of_python(cell.source)
            yield from plain("figure", cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", ""))


def files() -> list[Path]:
    """Every file of the book that has such text, without scripts as other people write them."""
    return [path for path in tracked(ROOT) if path.name.endswith((".md", ".ipynb", ".py", ".vl.json"))
            and not {"diagnose", "watch", "ring.py"} & set(path.relative_to(ROOT).parts)]


def hits(paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Of each hit the file, the pattern, and the words around it."""
    for path in paths:
        for kind, words in texts(path):
            for name, pattern in patterns().items():
                for hit in pattern["find"].finditer(words):
                    around = f"{words[max(hit.start() - 100, 0):hit.start()]}>>{hit[0]}<<{words[hit.end():][:100]}"
                    yield path.relative_to(ROOT).as_posix(), name, f"({kind}) {around}"


def count(pairs: Iterable[tuple[str, str]]) -> None:
    """Print how often each first of a pair occurs, and with which seconds most often."""
    counts: dict[str, Counter[str]] = {}
    for first, second in pairs:
        counts.setdefault(first, Counter())[second] += 1
    for first, found in counts.items():
        print(f"{first:52}{found.total():5}  " + ", ".join(f"{name} {n}" for name, n in found.most_common(4)))


def main() -> None:
    parser = argparse.ArgumentParser(description="count habits of translated English")
    parser.add_argument("files", nargs="*", type=Path, help="instead of the whole book")
    parser.add_argument("--show", metavar="PATTERN", choices=patterns(), help="print the hits of one pattern")
    args = parser.parse_args()
    found = list(hits([path.resolve() for path in args.files] or files()))
    if args.show:
        print(f"Write: {patterns()[args.show]['write']}")
        print(*(f"{file} {words}" for file, name, words in found if name == args.show), sep="\n")
    else:
        count((file, name) for file, name, _ in found)
        count((name + " (fails)" * ("fails" in patterns()[name]), file) for file, name, _ in found)


if __name__ == "__main__":
    main()
