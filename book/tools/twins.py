"""Pages in Chinese: the prose is in `zh/`, and code, outputs and numbers are those of the English page.

    python book/tools/twins.py new NAME                   write zh/NAME.md, each part with its English above it
    python book/tools/twins.py status [NAME ...]          what is missing, stale, or different from the English
    python book/tools/twins.py accept NAME [KEY ...]      these parts, or all, fit today's English
    python book/tools/twins.py diff NAME                  what changed in English since a part was translated
    python book/tools/twins.py site [FOLDER]              build the Chinese site into FOLDER/zh (_build/html/zh)

NAME is `02_name`, `index`, `README`, or a path such as `notebooks/appendix/name`.
A translation has a part for each Markdown cell, caption and alt text of a notebook, and for each section of a page.
Above it is `<!-- KEY [caption|alt] HASH -->`: the cell's id, or the section's slug, and what the English was when
somebody last said that the translation fits. In an alt text `{}` stands for each number of the English one, in their
order. A fence of code is left empty (in README.zh.md, which is shown as it is, it has the same lines as in English).
"""

from __future__ import annotations

import copy
import difflib
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from markdown_it import MarkdownIt
from myst_parser.mdit_to_docutils.base import default_slugify
from nbformat import NotebookNode

from revisions import git

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "zh"
README = "README"  # of the repository, which is no page of the site
WORDS = tomllib.loads((HERE / "terms.toml").read_text("utf8"))
Translation = dict[str, tuple[str, str]]  # for each part its hash and its text

MARK = re.compile(r"^<!-- ([\w-]+(?: (?:caption|alt\d?))?) ([0-9a-f]{8}) -->\n", re.M)
ENGLISH = re.compile(r"^<!-- ENGLISH\n.*?^-->\n", re.M | re.S)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CARD = re.compile(r"^:link: (.*)\n:link-type: doc$", re.M)
HAN = r"\u3400-\u9fff"
WIDE = HAN + r"\u3000-\u303f\uff00-\uffef\u201c\u201d\u2018\u2019\u2014\u2026"
STARTS = re.compile(r"\s*(?:$|[-*+] |[>|%]|#+ |:[\w-]+:|\d+\. |\([\w-]+\)=|\$\$)")  # something new
STANDS = re.compile(r"\s*$|[`:]{3,}|#+ |:[\w-]+:|\([\w-]+\)=|\||\$\$|.*\\$")  # alone
INDENT = re.compile(r"(\s*(?:(?:[-*+]|\d+\.) +)?).*")
SAME = {  # what a translation has as its English has it
    "links": r"\]\((?!README)([^)\s]+)\)", "headings": r"^#+(?= )",
    "labels": r"^(?:\([\w-]+\)=|:(?:label|name|link|link-type|class|gutter): .*)$",
    "directives": r"^[`:]{3,}(?:\{(?:solution|figure)\}.*|\{[\w-]+\}| *$)",
    "code": r"(?<!`)`(?:[^`\n<]* <(?=[^`\n]+>`))?([^`\n]+?)>?`(?!`)",
    "formulas": r"\$[^$]+\$", "items": r"^ *(?:-|\d+\.) ", "cells of tables": r"(?<!\\)\|",
}
TYPESET = {
    "a half-width mark beside a Chinese letter": rf"[{HAN}][,;:!?]|[{HAN}]\.(?!\w)|[,;!?](?=[{HAN}])",
    "a space beside a Chinese letter": rf"[{HAN}] +[A-Za-z0-9`$]|[A-Za-z0-9`$] +[{HAN}]",
    "straight quotes": rf"\"[^\"\n]*[{HAN}]",
}


class Part(NamedTuple):
    """What is translated as one."""

    kind: str  # "" for a Markdown cell and a section, "caption", "alt"
    text: str

    @property
    def hash(self) -> str:
        text = NUMBER.sub("#", self.text) if self.kind == "alt" else self.text
        return sha256(text.encode()).hexdigest()[:8]


# the English


def named(name: str) -> str:
    """The page that somebody means: `notebooks/02_name` for `02_name`."""
    found = [page for page in (name, f"notebooks/{name}", f"notebooks/appendix/{name}", f"book/{name}")
             if source_of(page).exists()]
    return found[0] if found else sys.exit(f"there is no page {name!r}")


def source_of(page: str) -> Path:
    return ROOT / (page + (".ipynb" if page.startswith("notebooks/") else ".md"))


def target_of(page: str) -> Path:
    return ROOT / "README.zh.md" if page == README else HERE / f"{page}.md"


def pictures(cell: NotebookNode) -> list[dict]:
    """Where the alt texts of a cell's pictures are."""
    shown = [one for output in cell.get("outputs", []) for one in (output.get("metadata") or {}).values()]
    return [one for one in shown if isinstance(one, dict) and "alt" in one]


def places(source: NotebookNode | list) -> Iterator[tuple[str, str, Any, Any]]:
    """Each part that there is to translate: its key, its kind, and the object and the key where its text is."""
    if isinstance(source, list):
        yield from ((section[0], "", section, 1) for section in source)
        return
    for cell in source.cells:
        if cell.cell_type == "markdown":
            yield cell.id, "", cell, "source"
        if "caption" in cell.metadata.get("mystnb", {}).get("figure", {}):
            yield f"{cell.id} caption", "caption", cell.metadata.mystnb.figure, "caption"
        for i, shown in enumerate(pictures(cell)):
            yield f"{cell.id} alt{i or ''}", "alt", shown, "alt"


def sections(text: str) -> list[list[str]]:
    """The sections of a page, each as its slug, its text and the blank lines after it."""
    found: list[list[str]] = []
    for kind, line in lines_of(text):
        if kind == "text" and line.startswith("#"):
            slug = default_slugify(headings(line)[0])
            found.append([slug + f"-{len(found)}" * any(slug == one[0] for one in found), ""])
            if len(found) > 1 and (label := re.search(r"\n(\([\w-]+\)=\n)$", found[-2][1])):
                found[-2][1], found[-1][1] = found[-2][1][:label.start(1)], label[1]
        found[-1][1] += line + "\n"
    return [[slug, text.rstrip(), text[len(text.rstrip()):]] for slug, text in found]


def load(page: str, text: str | None = None) -> NotebookNode | list:
    text = source_of(page).read_text("utf8") if text is None else text
    return nbformat.reads(text, as_version=4) if page.startswith("notebooks/") else sections(text.removesuffix("\n"))


def dump(source: NotebookNode | list) -> str:
    if isinstance(source, list):
        return "".join(text + gap for _, text, gap in source)
    return nbformat.writes(source) + "\n"


def parts_of(source: NotebookNode | list) -> dict[str, Part]:
    return {key: Part(kind, holder[where]) for key, kind, holder, where in places(source)}


# the translation


def read(text: str) -> Translation:
    _, *pieces = MARK.split(ENGLISH.sub("", text))
    return {key: (known, text.strip()) for key, known, text in zip(*(pieces[i::3] for i in range(3)))}


def translation_of(page: str) -> Translation:
    return read(target_of(page).read_text("utf8")) if target_of(page).exists() else {}


def write(page: str, translation: Translation, english: dict[str, Part]) -> None:
    """Store a translation, with the English above these parts."""
    def shown(key: str) -> str:
        return f"<!-- ENGLISH\n{english[key].text.replace('-->', '-- >')}\n-->\n" if key in english else ""

    target_of(page).parent.mkdir(parents=True, exist_ok=True)
    target_of(page).write_text("\n".join(
        f"<!-- {key} {known} -->\n{shown(key)}{text}\n" for key, (known, text) in translation.items()), "utf8")


def missing(parts: dict[str, Part], translation: Translation) -> list[str]:
    return [key for key in parts if not translation.get(key, ("", ""))[1]]


def stale(parts: dict[str, Part], translation: Translation) -> list[str]:
    """What has changed in English since, and what is translated of parts that are gone."""
    return [key for key, (known, text) in translation.items()
            if text and (key not in parts or parts[key].hash != known)]


@cache
def pages() -> tuple[str, ...]:
    """The pages that have a translation, finished or not, in the order of the files."""
    found = [path.relative_to(HERE).with_suffix("").as_posix() for path in sorted(HERE.glob("*/**/*.md"))]
    return *found, *[README] * target_of("README").exists()


@cache
def twins() -> tuple[str, ...]:
    """The pages that are in the Chinese site: nothing is missing."""
    return tuple(page for page in pages() if page != README and not missing(parts_of(load(page)), translation_of(page)))


def lines_of(text: str) -> list[tuple[str, str]]:
    """The lines of a Markdown text, each "code" in a fence of code, "fence" where a directive is, or "text"."""
    found: list[tuple[str, str]] = []
    fences: list[re.Match] = []
    for line in text.split("\n"):
        mark = re.match(r"(`{3,}|:{3,})(.*)", line)
        in_code = bool(fences) and "{" not in fences[-1][2]
        if mark and fences and not mark[2].strip() and fences[-1][1] == mark[1]:
            fences.pop()
            found.append(("end of code" if in_code else "fence", line))
        elif mark and not in_code:
            fences.append(mark)
            found.append(("fence" if "{" in mark[2] else "code", line))
        else:
            found.append(("code" if in_code else "text", line))
    return found


def codes(text: str) -> list[str]:
    """The fences of code in a text."""
    kept = [line + "\n" + "\0" * (kind == "end of code") for kind, line in lines_of(text) if "code" in kind]
    return "".join(kept).split("\0")[:-1]


def with_codes(text: str, new: list[str] | None = None) -> str:
    """The text with other fences of code, or with none."""
    left, made = list(new or []), []
    for kind, line in lines_of(text):
        if kind == "end of code" and new is not None:
            made.append(left.pop(0).rstrip("\n"))
        elif "code" not in kind:
            made.append(line)
    return "\n".join(made)


def joined(text: str) -> str:
    """Each paragraph in one line where a Chinese letter is on either side: a browser would put a space there."""
    made: list[str] = []
    for kind, line in lines_of(text):
        before = made[-1] if made else ""
        if (kind == "text" and not STARTS.match(line) and not STANDS.match(before)
                and len(INDENT.sub(r"\1", line)) == len(INDENT.sub(r"\1", before))
                and (re.search(rf"[{WIDE}]$", before) or re.match(rf"\s*[{WIDE}]", line))):
            made[-1] = before + line.lstrip()
        else:
            made.append(line)
    return "\n".join(made)


def filled(part: Part, known: str, text: str) -> str:
    """A translation with the code, or the numbers, of its English; one that is stale says so."""
    fits, note = part.hash == known, WORDS["notes"]["stale"]
    if part.kind == "alt":
        numbers = NUMBER.findall(part.text)
        return re.sub(r"\{\}", lambda _: numbers.pop(0), text) if len(numbers) == text.count("{}") else part.text
    made = with_codes(joined(text), codes(part.text)) if len(codes(text)) == len(codes(part.text)) else part.text
    return made if fits else made + (f"（{note}）" if part.kind else f"\n\n:::{{note}}\n{note}。\n:::")


def twin(source: NotebookNode | list, translation: Translation) -> NotebookNode | list:
    """The page with the prose of the translation; what has none stays English."""
    made = copy.deepcopy(source)
    for key, kind, holder, where in list(places(made)):
        if translation.get(key, ("", ""))[1]:
            holder[where] = filled(Part(kind, holder[where]), *translation[key])
    return made


# what is compared


def prose(text: str) -> str:
    """Without code, addresses, labels and formulas."""
    text = re.sub(r"^\([\w-]+\)=$|^:[\w-]+: .*$|^[`:]{3,}\{[\w-]+\}( ex-.*| _static.*)?|`[^`\n]+`|\$[^$]+\$", " ",
                  with_codes(text), flags=re.M)
    return LINK.sub("]", text)


def faults(part: Part, text: str) -> list[str]:
    """What in a translation differs from its English, or is not set as Chinese is."""
    if part.kind == "alt":
        slots, numbers = text.count("{}"), len(NUMBER.findall(part.text))
        return [f"{slots} slots for {numbers} numbers"] if slots != numbers else []

    def compare(what: str, one: Counter, other: Counter) -> list[str]:
        more, less = [*(one - other).elements()], [*(other - one).elements()]
        return [f"{what}: only in English {more}, only here {less}"] * (one != other)

    bare, english, chinese = [with_codes(each) for each in (part.text, text)], prose(part.text), prose(text)
    found = []
    for what, pattern in SAME.items():
        found += compare(what, *(Counter(re.findall(pattern, each, re.M)) for each in bare))
    inside = [[code for code in codes(each) if code.count("\n") > 2] for each in (part.text, text)]
    if len(codes(part.text)) != len(codes(text)) or inside[1] not in ([], inside[0]):
        found.append("fences of code: as many as in English, and empty")
    apart = re.sub(rf"(?<=[{HAN}])(?=\d)", " ", chinese)
    found += compare("numbers", *(Counter(NUMBER.findall(each)) for each in (english, apart)))
    said = re.sub("|".join([r'"[^"]*"', *map(re.escape, WORDS["phrases"]["not_terms"])]), "", english, flags=re.I)
    found += [f"{word}: not called {term}" for word, term in WORDS["terms"].items()
              if re.search(rf"\b{re.escape(word)}(s|es)?\b", said, re.I) and term.lower() not in chinese.lower()]
    found += [f"{word}: {why}" for word, why in WORDS["avoided"].items() if word in chinese]
    body = re.sub(r"^ *\d+\. |^ *- |^#+ (\d+\. )?|^[`:]{3,}.*? |^:[\w-]+:.*$", "", bare[1], flags=re.M)
    found += [f"{why}: {hit[0]!r}" for why, pattern in TYPESET.items()
              if (hit := re.search(f".?.?(?:{pattern}).?.?", body))]
    bold = [MarkdownIt().render(re.sub(r"^[`:]{3,}.*$|`[^`\n]+`", "x", each, flags=re.M)) for each in bare]
    if bold[0].count("<strong>") != bold[1].count("<strong>") or bold[1].count("*") > bold[0].count("*"):
        found.append("bold: more or less of it, or not closed, as CommonMark wants no mark of punctuation between it "
                     f"and a letter: {re.findall('.{0,8}[*]+.{0,8}', bold[1])}")
    return found


def problems(page: str) -> list[str]:
    """What `status` prints of a page: what is missing, what is stale, and the faults of the rest."""
    parts, translation = parts_of(load(page)), translation_of(page)
    old = stale(parts, translation)
    found = [f"missing: {key}: {parts[key].text[:60]!r}" for key in missing(parts, translation)]
    found += [f"stale: {key}: {parts[key].text[:60] if key in parts else 'no such part any more'!r}" for key in old]
    return found + [f"{key}: {fault}" for key, (_, text) in translation.items() if text and key not in old
                    for fault in faults(parts[key], text)]


def headings(source: str) -> list[str]:
    found = re.findall(r"^#+ (.*)$", with_codes(source), re.M)
    return [re.sub(r"[`*]|\]\([^)]*\)|\[", "", text) for text in found]


def anchors(page: str) -> dict[str, str]:
    """For each Chinese heading of a page the English one, whose anchor it keeps."""
    english, chinese = ([head for part in parts_of(each).values() if not part.kind for head in headings(part.text)]
                        for each in (load(page), twin(load(page), translation_of(page))))
    return dict(zip(chinese, english, strict=True))


def pointed(text: str, page: str, elsewhere: Callable[[str, str], str], note: str = "") -> str:
    """The text with links to what is not translated going `elsewhere`: for a page and its suffix, an address."""
    def turned(found: re.Match) -> str:
        card = found.re is CARD
        target, _, anchor = found[1].partition("#")
        if re.match(r"[a-z]+:", target) or not (card or target.endswith((".ipynb", ".md"))):
            return found[0]
        path = os.path.normpath(Path(page).parent / target)
        there, suffix = (path, source_of(path).suffix) if card else os.path.splitext(path)
        if there in twins():
            return found[0]
        address = elsewhere(there, suffix)
        return f":link: {address}\n:link-type: url" if card else f"]({address}{'#' * bool(anchor)}{anchor}){note}"

    return CARD.sub(turned, LINK.sub(turned, text))


def write_sources(folder: Path, elsewhere: Callable[[str, str], str] | None = None) -> None:
    """The pages of the Chinese site as notebooks and Markdown; a file that is as it was is left alone."""
    for page in twins():
        made = twin(load(page), translation_of(page))
        for _, kind, holder, where in places(made):
            if elsewhere and not kind:
                holder[where] = pointed(holder[where], page, elsewhere)
        store(folder / f"{page}{source_of(page).suffix}", dump(made))


def store(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf8") != text:
        path.write_text(text, "utf8")


# the commands


def new(name: str) -> None:
    page = named(name)
    parts, translation = parts_of(load(page)), translation_of(page)
    old = {key: parts[key] for key in parts if key in [*missing(parts, translation), *stale(parts, translation)]}
    done = {key: one for key, one in translation.items() if one[1]}
    write(page, {key: done.get(key, (part.hash, "")) for key, part in parts.items()}, old)


def accept(name: str, *keys: str) -> None:
    page = named(name)
    parts, translation = parts_of(load(page)), translation_of(page)
    write(page, {key: (parts[key].hash if not keys or key in keys else known, text)
                 for key, (known, text) in translation.items() if key in parts}, {})


def diff(name: str) -> None:
    page = named(name)
    parts, translation, file = parts_of(load(page)), translation_of(page), source_of(page)
    wanted = {key: translation[key][0] for key in stale(parts, translation)}
    for revision in (git(file.parent, "log", "--format=%H", "--", file.name) or "").split() if wanted else ():
        then = parts_of(load(page, git(file.parent, "show", f"{revision}:./{file.name}")))
        for key in [key for key, known in wanted.items() if key in then and then[key].hash == known]:
            now = parts[key].text if key in parts else ""
            print(*difflib.unified_diff(then[key].text.split("\n"), now.split("\n"), key, lineterm=""), sep="\n")
            del wanted[key]


def status(*names: str) -> bool:
    found = {page: problems(page) for page in (map(named, names) if names else pages())}
    for page, lines in found.items():
        print(f"{page}: {len(parts_of(load(page)))} parts, {len(lines)} to look at", *lines, sep="\n  ")
    return any(found.values())


def main(command: str = "status", *rest: str) -> int:
    return int(bool({"new": new, "accept": accept, "diff": diff, "status": status}[command](*rest)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
