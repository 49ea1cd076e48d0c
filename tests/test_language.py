"""No phrase that is always a mistake is in the book: habits of translated English for which no good use was found.

Four kinds of text are read: the prose of pages and Markdown cells, docstrings, messages (all other strings of four
words or more, except in tests), and the words of figures. Code, link targets and quotations are left out.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from chapter_sizes import CODE
from revisions import tracked

# what finds the phrase in a paragraph, where "…" stands for code, formulas, values and quotations; what to write
# instead; and a sentence that has it
PATTERNS = [
    (r"\bWhoever\b|(?<![,:] )\bwhoever\b",
     "Make the act the subject: A single comparison finds it.", "Whoever compares the replicas once has found it."),
    (r"\b(?:in|by) another (?:order|way|manner)\b",
     "in a different order; differently", "Three devices add in another order, and round."),
    (r"\b[Aa]nother(?: \w+){1,2} than\b",
     "a different network from the one that a single device trains", "Together they train another network than a single device does."),
    (r"\b(?:round\w*|cuts?|cutting|train(?:s|ed)?|count(?:s|ed)?|comput(?:e|es|ed)|a little) otherwise\b",
     "rounded differently", "On three ranks the sums are rounded otherwise, by a bit."),
    (r"\b[Ff]rom (?:…|\d+|some)(?: \w+){0,4} on(?=[.,;:?)]|$)|\bfrom which(?: \w+)? on\b",
     "at least 8 examples per rank; the smallest size for which", "It pays from 34 images per GPU on, in such a cluster."),
    (r"\bas many times (?:too|as)\b[^.]*\bas there\b|\bas many times too\b",
     "too small by a factor of k", "Each is as many times too small as there are ranks."),
    (r"(?:, also|\bAlso) (?:where|if|when|of|on|by|without|empty)\b",
     "even if; including; too", "All gradients are equal, also where the shards are unequal."),
    (r"\b[Ii]n (?:(?:the (?:mean|median|average)|small)(?=[.,;:?)]|$)|the (?:mean|median) of (?:a|the|all)\b)",
     "on average; at the median; at small scale", "The last step takes 12 points in the mean, and once 60."),
    (r"(?<![Ww]e )(?<!I )\bshall\b",
     "must; is to; will", "What another rank shall know must be sent to it."),
    (r"\blong since\b|\bdear(?:er|est)\b",
     "long ago; more expensive", "The first run has had such buckets long since."),
    (r"\b(?:lie|lies|lay) (?:on (?:the |a |its )?(?:first |same )?(?:(?:devices?|GPUs?|CPU|ranks?)\b|…)|under\b)",
     "is on the device; overlaps with the backward pass", "On a GPU the tensor lies on the device already."),
    (r"(?<![Tt]here )\b(?:is|are) no (?:error|list|rank|round|number|finite|new|function|identity|tensor|string|file|folder|script|git|trainings?)\b(?! (?:of|any))",
     "is not a list", "The shard is empty, and still it is no error."),
    (r"(?:^|(?<=[.;:] ))That of\b",
     "Repeat the noun: The ring's formula", "That of the ring is wrong by several times."),
    (r"\b(?:for|to|of|by|from|with) who (?:\w+s|has|is)\b(?![^.]*\?)",
     "readers who; a rank that", "There is a text for who sees neither picture."),
    (r"(?:^|(?<=[.!?:;] ))To \w+(?: \w+){0,4} (?:is|takes|costs|would|means)\b",
     "Using it takes one line.", "To use it takes one line of code."),
    (r"(?:^|(?<=[.!?:;] ))(?:(?:Documented|Right|Left out|Meant|Tried|Compared|Enough) (?:is|are|was|were)\b|(?:Around|Behind|Before|Under|Over|Between) (?:\w+ ){1,3}(?:stand|stands|lie|lies)\b)",
     "Subject first: The documented order is", "Documented is the other order of the two."),
    (r"\bYou need:? [^.;]*?,? and (?:that|how|what)\b",
     "You need ranks, and you should know that", "You need ranks, and that DDP averages gradients."),
    (r"\b[Tt]rainings\b",
     "runs, training runs", "Two of the published trainings began with other weights."),
    (r"\d %|(?<![\w.…])\.\d+\b(?!\.)",
     "42%, 0.82", "In the end it was right for 42 % of the images."),
]

IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)|^:alt: (.*)$", re.M)
LEFT_OUT = re.compile(r"`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$|<[^>\n]+>|[\"“][^\"”\n]{40,}[\"”]", re.S)
MARKS = re.compile(r"^(?:```.*|:{3,}.*|\([\w-]+\)=|:[\w-]+: .*|>.*|\s*\|[-| :]+\|)$", re.M)
BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*:#|]|\d+\.) ?)|(?<=\s)\|(?=\s)")  # between paragraphs, items, cells


def plain(text: str) -> Iterator[str]:
    """Each paragraph, item, cell of a table and image's words on one line."""
    for found in IMAGE.finditer(text):
        yield from plain(found[1] or found[2] or "")
    text = LEFT_OUT.sub("…", MARKS.sub("", CODE.sub("", IMAGE.sub("", text))))
    for part in BREAK.split(re.sub(r"\]\([^)]*\)", "]", text)):
        yield " ".join(re.sub(r"^\s*(?:#+|[-*:|]|\d+\.) |[*_\[\]]", "", part).split())


def of_python(source: str, messages: bool = True) -> Iterator[str]:
    seen = set()  # the docstrings, and the parts of f-strings
    for node in ast.walk(ast.parse(re.sub(r"^[%!].*", "", source, flags=re.M))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (words := ast.get_docstring(node)):
            seen.update(ast.walk(node.body[0]))
            yield from plain(words)
        elif messages and node not in seen and isinstance(node, (ast.JoinedStr, ast.Constant)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            seen.update(parts)
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
            if len(re.findall(r"(?<!\S)[a-zA-Z]{2,}", words)) > 3:
                yield from plain(words)


def texts(name: str, source: str) -> Iterator[str]:
    """All text of a page, a notebook, a module or an interactive figure."""
    if name.endswith(".md"):
        yield from plain(source)
    elif name.endswith(".py"):
        yield from of_python(source, messages=not name.startswith("tests/"))
    elif name.endswith(".json"):
        yield from re.findall(r'"(?:description|title)": "([^"]+)"', source)
    else:
        for cell in nbformat.reads(source, as_version=4).cells:
            yield from plain(cell.source) if cell.cell_type == "markdown" else of_python(cell.source)
            yield from plain(cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", ""))


def hits(name: str, source: str) -> list[str]:
    return [f"{words[max(hit.start() - 100, 0):hit.start()]}>>{hit[0]}<<{words[hit.end():][:100]} (write: {write})"
            for words in texts(name, source) for find, write, _ in PATTERNS for hit in re.finditer(find, words)]


def test_no_phrase_that_is_always_a_mistake_is_in_the_book(root: Path) -> None:
    files = [path for path in tracked(root) if path.name.endswith((".md", ".ipynb", ".py", ".vl.json"))
             and not {"diagnose", "watch", "ring.py"} & set(path.relative_to(root).parts)]  # scripts as other people write them
    named = {file.relative_to(root).as_posix(): file.read_text("utf8") for file in files}
    assert {name: found for name, source in named.items() if (found := hits(name, source))} == {}, (
        "Write what follows `write:` instead of what is between >> and << (book/authors.md, The rules)")


def notebook(kind: str, source: str, caption: str = "") -> str:
    cell = {"cell_type": kind, "id": "a", "source": source, "metadata": {"mystnb": {"figure": {"caption": caption}}}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [
        cell | ({"outputs": [], "execution_count": None} if kind == "code" else {})]})


@pytest.mark.parametrize("planted", [sentence for *_, sentence in PATTERNS])
def test_a_planted_sentence_is_found_once_in_every_kind_of_text(planted: str) -> None:
    broken = planted.replace(" ", "\n    ", 1)  # over two lines
    for name, source in [
            ("a.md", f"# Title\n\nWell.\n- {planted}\n\nMore."),
            ("b.ipynb", notebook("markdown", f"```{{exercise}} A\n```\n\n{planted}\n\n```python\nx\n```")),
            ("c.py", f'def f():\n    """{broken}"""\n'),
            ("d.ipynb", notebook("code", f'%time\nclass A:\n    """First.\n\n    {planted}\n    """')),
            ("e.py", f'raise ValueError(f"{{x}} is not right. {planted[:20]}" "{planted[20:]}")'),
            ("f.ipynb", notebook("code", "x", caption=planted)),
            ("g.md", f"```{{figure}} a.svg\n:alt: {planted}\n```"),
            ("h.md", f"![{planted}](a.svg)"),
            ("i.vl.json", json.dumps({"description": planted}))]:
        assert len(hits(name, source)) == 1, f"Change the pattern or its sentence: in every kind of text, such as {name}, it must be found once (book/authors.md, The rules)"


def test_code_quotations_addresses_comments_and_strings_of_tests_are_left_out() -> None:
    for source in ("`is no list`", "```python\nx = 'Whoever'\n```", "It is [here](Whoever.md).", "It is $.5$ and `42 %`.", "> Whoever reads this.",
                   'They write: "In the end, Whoever was ready first waited for all the others."', "Version 1.2.3, at 0.82 and 42%."):
        assert hits("a.md", source) == []
    assert hits("a.py", "# Whoever\nWhoever = 'Whoever'\n") == hits("tests/a.py", "x = 'Whoever reads this string'\n") == []
