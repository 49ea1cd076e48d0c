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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat

from chapter_sizes import CODE, ROOT
from revisions import tracked

OF_OTHERS = ("tests/diagnose/", "tests/watch/", "d2lpar/pages/stored/ring.py")  # scripts as other people write them
IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)|^:alt: (.*)$", re.M)
LEFT_OUT = re.compile(r"`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$|<[^>\n]+>|[\"“][^\"”\n]{40,}[\"”]", re.S)
MARKS = re.compile(r"^(?:```.*|:{3,}.*|\([\w-]+\)=|:[\w-]+: .*|>.*|\s*\|[-| :]+\|)$", re.M)
BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*:#|]|\d+\.) ?)|(?<=\s)\|(?=\s)")  # between paragraphs, items, cells


class Pattern(NamedTuple):
    """A habit: the regular expression that finds it, what to write instead, and whether a hit fails a test."""

    find: re.Pattern[str]
    write: str
    fails: bool


class Text(NamedTuple):
    """A paragraph, an item or a cell of a table on one line, of one kind: prose, docstring, message or figure."""

    kind: str
    words: str


def patterns() -> dict[str, Pattern]:
    """The patterns of `language.toml`, by name."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf8"))
    return {name: Pattern(re.compile(row["find"]), row["write"], row.get("fails", False)) for name, row in rows.items()}


def plain(kind: str, text: str) -> Iterator[Text]:
    text = LEFT_OUT.sub("…", MARKS.sub("", CODE.sub("", text)))
    for part in BREAK.split(re.sub(r"\]\([^)]*\)", "]", text)):
        if words := " ".join(re.sub(r"^\s*(?:#+|[-*:|]|\d+\.) |[*_\[\]]", "", part).split()):
            yield Text(kind, words)


def of_markdown(text: str) -> Iterator[Text]:
    for found in IMAGE.finditer(text):
        yield from plain("figure", found[1] or found[2] or "")
    yield from plain("prose", IMAGE.sub("", text))


def of_python(source: str, messages: bool = True) -> Iterator[Text]:
    seen = set()  # the docstrings, and the parts of f-strings
    for node in ast.walk(ast.parse(re.sub(r"^[%!].*", "", source, flags=re.M))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (words := ast.get_docstring(node)):
            seen.update(ast.walk(node.body[0]))
            yield from plain("docstring", words)
        elif messages and node not in seen and isinstance(node, (ast.JoinedStr, ast.Constant)):
            seen.update(ast.walk(node))
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
            if len(re.findall(r"(?<!\S)[a-zA-Z]{2,}", words)) > 3:
                yield from plain("message", words)


def texts(path: Path) -> list[Text]:
    """All text of a page, a notebook, a module or an interactive figure."""
    source = path.read_text("utf8")
    if path.suffix == ".md":
        return list(of_markdown(source))
    if path.suffix == ".py":
        return list(of_python(source, messages="tests" not in path.parts))
    if path.suffix == ".json":
        return [Text("figure", words) for words in re.findall(r'"(?:description|title)": "([^"]+)"', source)]
    found = []
    for cell in nbformat.reads(source, as_version=4).cells:
        found += of_markdown(cell.source) if cell.cell_type == "markdown" else of_python(cell.source)
        found += plain("figure", cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", ""))
    return found


def files() -> list[Path]:
    """Every file of the book that has such text."""
    return [path for path in tracked(ROOT) if path.name.endswith((".md", ".ipynb", ".py", ".vl.json"))
            and not path.relative_to(ROOT).as_posix().startswith(OF_OTHERS)]


def main() -> None:
    parser = argparse.ArgumentParser(description="count habits of translated English")
    parser.add_argument("files", nargs="*", type=Path, help="instead of the whole book")
    parser.add_argument("--show", metavar="PATTERN", choices=patterns(), help="print the hits of one pattern")
    args = parser.parse_args()
    read = {path: texts(path) for path in [path.resolve() for path in args.files] or files()}
    for name, pattern in patterns().items():
        hits = [(path, text, found) for path in read for text in read[path] for found in pattern.find.finditer(text.words)]
        if args.show == name:
            for path, (kind, words), found in hits:
                around = f"{words[max(found.start() - 100, 0):found.start()]}>>{found[0]}<<{words[found.end():][:100]}"
                print(f"{path.relative_to(ROOT)} ({kind}): {around}")
        elif args.show is None:
            most = ", ".join(f"{name} {n}" for name, n in Counter(path.name for path, *_ in hits).most_common(3))
            print(f"{name:24}{'fails' * pattern.fails:7}{len(hits):5}  {most}")


if __name__ == "__main__":
    main()
