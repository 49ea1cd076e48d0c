"""Pages in Chinese: the prose is in `zh/`, and code, outputs and numbers are those of the English page.

    python book/tools/twins.py new NAME                   write zh/NAME.md, each part with its English above it
    python book/tools/twins.py status [NAME ...]          what is missing, stale, or different from the English
    python book/tools/twins.py accept NAME [KEY ...]      say that these parts, or all, fit today's English
    python book/tools/twins.py preview NAME               build the Chinese site with this page in it, finished or not

NAME is `02_name`, `index`, `README`, or a path such as `notebooks/appendix/name`.
A translation has a part for each Markdown cell, caption and alt text of a notebook, and for each section of a page.
Above it is `<!-- KEY [caption|alt] HASH -->`: the cell's id, or the section's slug, and what the English was when
somebody last said that the translation fits. The site shows a part in English, with a note, if it has no translation
or has changed since. In an alt text `{}` stands for each number of the English one, in their order. A fence of code is
left empty (in README.zh.md, which is shown as it is, it has the same lines as in English).
A part below `<!-- KEY zh-only NAME -->` has no English: it comes after the part KEY, its code is in it, and its
heading, if it has one, gets the anchor `zh-NAME`. It is checked for typography and words only.
"""

from __future__ import annotations

import copy
import os
import re
import sys
import tomllib
from calendar import month_name
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from docutils.nodes import make_id
from markdown_it import MarkdownIt
from myst_parser.mdit_to_docutils.base import default_slugify
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "zh"
INDEX, README = "book/index", "README"  # the first page of the site, and of the repository
WORDS = tomllib.loads((HERE / "terms.toml").read_text("utf8"))
Translation = dict[str, tuple[str, str]]  # for each part its hash and its text

MARK = re.compile(r"^<!-- ([\w-]+ zh-only [\w-]+(?= -->)|[\w-]+(?: (?:caption|alt\d?))?(?= [0-9a-f]{8} -->))"
                  r"(?: ([0-9a-f]{8}))? -->\n", re.M)
IN_ENGLISH = "（英文）"
OWN = " zh-only "  # in the key of a part without English, between the key that it follows and its name
FENCE = re.compile(r"(^ *`{3,}(?:[a-z]+|\{code-block\}.*)\n)((?:.*\n)*?)(^ *`{3,}$)", re.M)  # of code
HEADING = re.compile(r"^(?:\([\w-]+\)=\n)?#+ (.*)$", re.M)
ENDS = re.compile(r"(?:\n+(?:\([\w-]+\)=|#+ .*))*\Z")  # the headings with which a cell may end
ENGLISH = re.compile(r"^<!-- ENGLISH\n.*?^-->\n", re.M | re.S)
NUMBER = re.compile(r"(?<![A-Za-z_\d.,])\d+(?:[.,]\d+)*")
LINK = re.compile(r"\]\(<?([^)\s<>]+)>?(?: +\"[^\"\n]*\")?\)")
CARD = re.compile(r"^(?P<card>[`:]{3,}\{grid-item-card\}.*)\n:link: (?P<led>.*)\n:link-type: doc$", re.M)
MONTH = r"(?<!\d)(1[0-2]|[1-9])月"
LARGE = {"million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}
HAN = r"\u3400-\u9fff"
WIDE = HAN + r"\u3000-\u303f\uff00-\uffef\u201c\u201d\u2018\u2019\u2014\u2026"
STARTS = re.compile(r"\s*(?:$|[`:]{3,}|[-*+:] |[>|%]|#+ |:[\w-]+:|\d+\. |\([\w-]+\)=|\$\$)")  # something new
STANDS = re.compile(r"\s*$|[`:]{3,}|#+ |:[\w-]+:|\([\w-]+\)=|\||\$\$|.*\\$")  # alone
INDENT = re.compile(r"(\s*(?:(?:[-*+:]|\d+\.) +)?).*")
SAME = {  # what a translation has as its English has it
    "links": r"\]\((?!README)([^)\s]+)\)", "headings": r"^#+(?= )",
    "labels": r"^(?:\([\w-]+\)=|:(?:label|name|link|link-type|class|gutter): .*)$",
    "directives": r"^[`:]{3,}(?:\{(?:solution|figure)\}.*|\{[\w-]+\}| *$)",
    "code": r"(?<!`)`(?:[^`\n<]* <(?=[^`\n]+>`))?([^`\n]+?)>?`(?!`)",
    "formulas": r"\$\$[^$]+\$\$|\$[^$]+\$", "items": r"^ *(?:-|\d+\.) ", "cells of tables": r"(?<!\\)\|",
}
FRAME = ("links", "labels", "headings", "directives")
TYPESET = {
    "a half-width mark next to a Chinese character": rf"[{HAN}][,;:!?]|[{HAN}]\.(?!\w)|[,;!?](?=[{HAN}])",
    "a space next to a Chinese character": rf"[{HAN}] +[A-Za-z0-9`$]|[A-Za-z0-9`$] +[{HAN}]",
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
    starts = [each.start() for each in re.finditer(rf"{FENCE.pattern}|{HEADING.pattern}", text, re.M) if not each[1]]
    for start, end in zip(starts, [*starts[1:], len(text)]):
        body = text[start:end].rstrip()
        slug, taken = default_slugify(headings(body)[0]), [key for key, *_ in found]
        key = next(key for key in (slug, *(f"{slug}-{i}" for i in range(1, len(starts)))) if key not in taken)
        found.append([key, body, text[start + len(body):end]])
    return found


def load(page: str) -> NotebookNode | list:
    text = source_of(page).read_text("utf8")
    return nbformat.reads(text, as_version=4) if page.startswith("notebooks/") else sections(text)


def dump(source: NotebookNode | list) -> str:
    if isinstance(source, list):
        return "".join(text + gap for _, text, gap in source)
    return nbformat.writes(source) + "\n"


def parts_of(source: NotebookNode | list) -> dict[str, Part]:
    return {key: Part(kind, holder[where]) for key, kind, holder, where in places(source)}


def read(text: str) -> Translation:
    _, *pieces = MARK.split(ENGLISH.sub("", text))
    return {key: (known or "", text.strip()) for key, known, text in zip(*(pieces[i::3] for i in range(3)))}


def own_of(translation: Translation) -> dict[str, str]:
    """The parts that have no English."""
    return {key: text for key, (_, text) in translation.items() if OWN in key}


def translation_of(page: str) -> Translation:
    return read(target_of(page).read_text("utf8")) if target_of(page).exists() else {}


def write(page: str, translation: Translation) -> None:
    """Store a translation, with the English above each part that is missing or stale."""
    parts = parts_of(load(page))
    old = [*missing(parts, translation), *stale(parts, translation)]

    def shown(key: str) -> str:
        return f"<!-- ENGLISH\n{parts[key].text.replace('-->', '-- >')}\n-->\n" if key in parts and key in old else ""

    store(target_of(page), "\n".join(
        f"<!-- {f'{key} {known}'.rstrip()} -->\n{shown(key)}{text}\n" for key, (known, text) in translation.items()))


def missing(parts: dict[str, Part], translation: Translation) -> list[str]:
    return [key for key in parts if not translation.get(key, ("", ""))[1]]


def stale(parts: dict[str, Part], translation: Translation) -> list[str]:
    """What has changed in English since, and what is translated of parts that are gone, or comes after one of these."""
    return [key for key, (known, text) in translation.items() if text and (
        key.split(OWN)[0] not in parts if OWN in key else key not in parts or parts[key].hash != known)]


@cache
def pages() -> tuple[str, ...]:
    """The pages that have a translation, finished or not, in the order of the files."""
    found = [path.relative_to(HERE).with_suffix("").as_posix() for path in sorted(HERE.glob("*/**/*.md"))]
    return tuple(page for page in [*found, README] if source_of(page).exists() and target_of(page).exists())


@cache
def twins() -> tuple[str, ...]:
    """The pages that are in the Chinese site: its first, and those that were released, however behind they are."""
    return tuple(page for page in dict.fromkeys([INDEX, *WORDS["pages"]["released"]]) if page == INDEX or (
        page != README and page in pages()))


def codes(text: str) -> list[str]:
    return [fence[2] for fence in FENCE.finditer(text)]


def joined(text: str) -> str:
    """Each paragraph without its line breaks next to Chinese characters, which a browser would show as spaces."""
    made: list[str] = []
    for line in text.split("\n"):
        before = made[-1] if made else ""
        if (not STARTS.match(line) and not STANDS.match(before)
                and len(INDENT.sub(r"\1", line)) == len(INDENT.sub(r"\1", before))
                and (re.search(rf"[{WIDE}]$", before) or re.match(rf"\s*[{WIDE}]", line))):
            made[-1] = before + line.lstrip()
        else:
            made.append(line)
    return "\n".join(made)


def frame(text: str) -> list:
    """What a build may fail on, if it is not as in English."""
    found = [sorted(re.findall(SAME[what], FENCE.sub("", text), re.M)) for what in FRAME]
    return [*found, len(codes(text))]


def filled(part: Part, known: str, text: str) -> str:
    """A translation with the code, or the numbers, of its English. If there is none of today's, the English says so."""
    left = NUMBER.findall(part.text) if part.kind == "alt" else codes(part.text)
    fits = len(left) == text.count("{}") if part.kind == "alt" else frame(text) == frame(part.text)
    if not text or part.hash != known or not fits:
        note = WORDS["notes"]["english"]
        return f"{part.text}（{note}）" if part.kind else ENDS.sub(rf"\n\n（{note}。）\g<0>", part.text, count=1)
    if part.kind == "alt":
        return re.sub(r"\{\}", lambda _: left.pop(0), text)
    return FENCE.sub(lambda fence: fence[1] + left.pop(0) + fence[3], joined(FENCE.sub(r"\1\3", text)))


def twin(source: NotebookNode | list, translation: Translation) -> NotebookNode | list:
    """The page with the prose of the translation, and in English what has none of today's."""
    made = copy.deepcopy(source)
    for key, kind, holder, where in list(places(made)):
        own = [joined(text) for one, text in own_of(translation).items() if one.split(OWN)[0] == key]
        holder[where] = "\n\n".join([filled(Part(kind, holder[where]), *translation.get(key, ("", ""))), *own])
    return made


def prose(text: str) -> str:
    """Without code, addresses, labels and formulas."""
    text = re.sub(r"^\([\w-]+\)=$|^:[\w-]+: .*$|^[`:]{3,}\{[\w-]+\}( ex-.*| _static.*)?|`[^`\n]+`|\$[^$]+\$", " ",
                  FENCE.sub("", text), flags=re.M)
    return LINK.sub("]", text)


def counted(text: str) -> Counter:
    """Its numbers, where 11.2 million is as much as 1120万."""
    return Counter(NUMBER.findall(re.sub(rf"(\d+(?:\.\d+)?) ?({'|'.join(LARGE)})", lambda found: (
        f"{float(found[1]) * LARGE[found[2]]:.0f}"), text)))


def faults(part: Part, text: str) -> list[str]:
    """What in a translation differs from its English, or is not set as Chinese is."""
    if part.kind == "alt":
        slots, numbers = text.count("{}"), len(NUMBER.findall(part.text))
        return [f"{slots} slots for {numbers} numbers"] if slots != numbers else []

    def compare(what: str, one: Counter, other: Counter) -> list[str]:
        more, less = [*(one - other).elements()], [*(other - one).elements()]
        return [f"{what}: only in English {more}, only here {less}"] * (one != other)

    bare, english, chinese = [FENCE.sub("", each) for each in (part.text, text)], prose(part.text), prose(text)
    found = []
    for what, pattern in SAME.items():
        found += compare(what, *(Counter(re.findall(pattern, each, re.M)) for each in bare))
    if len(codes(part.text)) != len(codes(text)) or (any(codes(text)) and codes(text) != codes(part.text)):
        found.append("fences of code: as many as in English, and empty")
    dated = re.sub(MONTH, lambda found: "" if month_name[int(found[1])] in english else found[0], chinese)
    found += compare("numbers", counted(english), counted(dated))
    return found + faults_of_style(text, bare[0])


def faults_of_style(text: str, english: str | None = None) -> list[str]:
    """Faults of Chinese typesetting, and words to avoid, whether or not there is an English text to compare with."""
    bare = FENCE.sub("", text)
    found = [f"{word}: {why}" for word, why in WORDS["avoided"].items() if word in re.sub("“[^”]*”", "", prose(text))]
    body = re.sub(r"^ *\d+\. |^ *- |^#+ (\d+\. )?|^[`:]{3,}.*? |^:[\w-]+:.*$", "", bare, flags=re.M)
    body = re.sub(r"(?<!`)`[^`\n]+`", "`x`", body)
    found += [f"{why}: {hit[0]!r}" for why, pattern in TYPESET.items()
              if (hit := re.search(f".?.?(?:{pattern}).?.?", body))]
    bold = [MarkdownIt().render(re.sub(r"^[`:]{3,}.*$|`[^`\n]+`", "x", each, flags=re.M))
            for each in (english or "", bare)]
    if (english is not None and bold[0].count("<strong>") != bold[1].count("<strong>")) or (
            bold[1].count("*") > bold[0].count("*")):
        found.append("bold: not as often as in English, or not closed, as punctuation just inside the stars prevents: "
                     f"{re.findall('.{0,8}[*]+.{0,8}', bold[1])}")
    return found


def faults_of_own(text: str) -> list[str]:
    """The faults of a part without English."""
    wrong = len(headings(text)) > bool(re.match("#+ ", text))
    return ["headings: at most one, at its beginning"] * wrong + faults_of_style(text)


def not_explained(translation: Translation) -> list[str]:
    """The words of the outputs that a page uses in Chinese without the English word where it does so first."""
    text = "\n".join(prose(text) for key, (_, text) in translation.items() if OWN not in key and " alt" not in key)
    return [f"{word}: first as {word}（{english}）" for word, english in WORDS["first"].items()
            if word in text and not text.split(word, 1)[1].startswith(f"（{english}")]


def hints(part: Part, text: str) -> list[str]:
    """The terms that a translation may lack: only "may", as a verb, such as "processes", can look like one."""
    english, chinese = prose(part.text), prose(text)
    said = re.sub("|".join([r'"[^"]*"', *map(re.escape, WORDS["phrases"]["not_terms"])]), "", english, flags=re.I)
    return [f"{word}: not called {term}" for word, term in WORDS["terms"].items() if part.kind != "alt"
            and re.search(rf"\b{re.escape(word)}(s|es)?\b", said, re.I) and term.lower() not in chinese.lower()]


def problems(page: str) -> list[str]:
    """What `status` prints of a page: what is missing, what is stale, and the faults of the rest, with hints."""
    parts, translation = parts_of(load(page)), translation_of(page)
    old = stale(parts, translation)
    found = [f"missing: {key}: {parts[key].text[:60]!r}" for key in missing(parts, translation)]
    found += [f"stale: {key}: {parts[key].text[:60] if key in parts else 'no such part any more'!r}" for key in old]
    if page == README and [key for key in translation if key in parts] != [key for key in parts if key in translation]:
        found.append(f"stale: the order of the sections: twins.py new {README}")
    found += not_explained(translation)
    found += [f"{key}: {fault}" for key, text in own_of(translation).items() for fault in faults_of_own(text)]
    current = [key for key, (_, text) in translation.items() if text and key in parts and key not in old]
    return found + [line for key in current for text in translation[key][1:] for line in (
        *(f"{key}: {fault}" for fault in faults(parts[key], text)),
        *(f"hint: {key}: {hint}" for hint in hints(parts[key], text)))]


def headings(text: str) -> list[str]:
    found = re.findall(HEADING, FENCE.sub("", text))
    return [re.sub(r"[`*]|\]\([^)]*\)|\[", "", text) for text in found]


def title_of(page: str) -> str:
    return headings(next(iter(parts_of(load(page)).values())).text)[0]


def anchors(source: NotebookNode | list, translation: Translation) -> dict[str, str]:
    """For each Chinese heading of a page the English one, whose anchor it keeps."""
    shared = {key: one for key, one in translation.items() if OWN not in key}
    english, chinese = ([head for part in parts_of(each).values() if not part.kind for head in headings(part.text)]
                        for each in (source, twin(source, shared)))
    own = {head: f"zh-{key.split(OWN)[1]}" for key, text in own_of(translation).items() for head in headings(text)}
    return dict(zip(chinese, english, strict=True)) | own


def pointed(text: str, page: str, address: Callable[[str, str], str | None], note: str = "") -> str:
    """The text of a page with other links: for a page and the one to which it leads, an address, or none to keep it.

    The note follows a link to an English page. A card that leads there says so in its title.
    """
    def turned(found: re.Match) -> str:
        target, _, anchor = found["led" if found.re is CARD else 1].partition("#")
        if re.match(r"[a-z]+:", target) or not (found.re is CARD or target.endswith((".ipynb", ".md"))):
            return found[0]
        path = os.path.normpath(Path(page).parent / target)
        there = path if found.re is CARD else os.path.splitext(path)[0]
        if (led := address(page, there)) is None:
            return found[0]
        if led.endswith(".html") and "." not in anchor:
            anchor = make_id(anchor)  # Sphinx does so where it follows the link itself
        foreign = there not in twins()
        if found.re is CARD:
            return f"{found['card']}{IN_ENGLISH * foreign}\n:link: {led}\n:link-type: url"
        title = title_of(there) if found.string[:found.start()].endswith("[") else ""  # as Sphinx would write
        return f"{title}]({led}{'#' * bool(anchor)}{anchor}){note * foreign}"

    return CARD.sub(turned, LINK.sub(turned, text))


def in_lab(page: str, led: str) -> str:
    """The address in JupyterLab, where the chapters are in `lab` and `lab/zh`, and the other pages in `book`."""
    def place(page: str) -> str:
        where = ("lab/zh/" if page in twins() else "lab/" if page.startswith("notebooks/") else "") + page
        return where.replace("notebooks/", "") + source_of(page).suffix

    return os.path.relpath(place(led), "lab/zh" if page == INDEX else os.path.dirname(place(page)))


def write_sources(folder: Path, shown: tuple[str, ...], address: Callable[[str, str], str] | None = None) -> None:
    """These pages in Chinese, as notebooks and Markdown."""
    for page in shown:
        made = twin(load(page), translation_of(page))
        for _, kind, holder, where in places(made):
            if address and not kind:
                holder[where] = pointed(holder[where], page, address, IN_ENGLISH)
        store(folder / f"{page}{source_of(page).suffix}", dump(made))


def store(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf8") != text:  # a newer file would be built again
        path.write_text(text, "utf8")


def new(name: str) -> None:
    page = named(name)
    done, parts = {key: one for key, one in translation_of(page).items() if one[1]}, parts_of(load(page))
    own = {key: [one for one in done if one.split(OWN)[0] == key != one] for key in parts}
    ordered = {one: ("", "") if one in own[key] else (parts[key].hash, "") for key in parts for one in (key, *own[key])}
    write(page, ordered | done)  # what is gone comes last


def accept(name: str, *keys: str) -> None:
    page = named(name)
    parts, translation = parts_of(load(page)), translation_of(page)
    others = {*translation} - {*keys} if keys else set()
    write(page, {key: (parts[key].hash if key in parts and key not in others else known, text)
                 for key, (known, text) in translation.items() if key in parts or key in others or OWN in key})


def status(*names: str) -> bool:
    found = {page: problems(page) for page in (map(named, names) if names else pages())}
    for page, lines in found.items():
        print(f"{page}: {len(parts_of(load(page)))} parts, {len(lines)} to look at", *lines, sep="\n  ")
    return any(not line.startswith("hint:") for lines in found.values() for line in lines)


def preview(name: str) -> None:
    import twins_site

    page = named(name)
    print(f"Building the site with {page} ...")
    print(twins_site.preview(page))


def main(command: str = "status", *rest: str) -> int:
    return int(bool({"new": new, "accept": accept, "status": status, "preview": preview}[command](*rest)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
