"""How long each chapter is for its reader, and how large the code is: `python book/tools/chapter_sizes.py`.

With a revision, as in `chapter_sizes.py main`, it also prints what has changed since then. No test limits these sizes.

The path is everything before "Exercises". Its words leave out code, the addresses of links and dropdowns; its lines of
code leave out folded cells, which a reader may skip.
Minutes: 200 words a minute, 6 s a line of code, 3 s a line of output, 30 s a figure.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import nbformat

from building_edition import reading_edition
from revisions import export, name_of, notebooks

ROOT = Path(__file__).resolve().parents[2]
# the files (without .py) and folders of each part; a file belongs to the part with the most specific entry
PARTS = {
    "the helper package": ["d2lpar"],
    "the launcher of ranks": ["d2lpar/launch", "d2lpar/_rank", "d2lpar/_reaper"],
    "the script to copy": ["d2lpar/train_ddp"],
    "the cluster": ["d2lpar/cluster", "d2lpar/_hub"],
    "watch and diagnose": ["d2lpar/diagnosis", "d2lpar/__main__", "d2lpar/_command_line"],
    "what only pages need": ["d2lpar/pages"],
    "checks of what readers write": [f"d2lpar/pages/{name}" for name in (
        "exercises", "to_write", "building", "differences", "elsewhere", "on_ranks")],
    "the projects": ["book/projects"],
    "long runs and measurements": ["book/lab"],
    "tools for authors": ["book/tools"],
    "the tests": ["tests"],
    "scripts with known verdicts": ["d2lpar/pages/stored", "tests/diagnose", "tests/watch"],
    "wrong answers and wrong versions": ["tests/wrong_answers", "tests/wrong_versions"],
}

DROPDOWN = re.compile(r"^(:{3,})\{dropdown\}.*?^\1$", re.M | re.S)
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.M | re.S)
CODE = re.compile(r"^```([a-z]+|\{code-block\}.*?)$.*?^```$", re.M | re.S)
EXERCISE = re.compile(r"^```\{exercise\}(.*?)^```$", re.M | re.S)


class ChapterSize(NamedTuple):
    """The sizes of one notebook."""

    name: str
    words: int  # on the path, as all that follow but for the longest cell, the exercises and the last two
    cells: int
    code_lines: int
    first_cell: int  # lines of code, as the next
    longest_cell: int
    output_lines: int
    figures: int
    dropdown_words: int
    exercises: list[int]  # words of each
    all_words: int  # with dropdowns, exercises and solutions
    all_cells: int

    @property
    def minutes(self) -> float:
        """What it takes to read the path."""
        return self.words / 200 + (6 * self.code_lines + 3 * self.output_lines + 30 * self.figures) / 60


def count_words(text: str) -> int:
    """Words of a Markdown text, without code in fences, without labels and addresses of links."""
    text = re.sub(r"^\([\w-]+\)=$|^:label: .*$", "", FENCE.sub("", text), flags=re.M)
    return len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)", "]", text)))


def measure(path: Path) -> ChapterSize:
    """The sizes of the notebook at `path`."""
    cells = reading_edition(nbformat.read(path, as_version=4)).cells
    texts = [cell.source if cell.cell_type == "markdown" else "" for cell in cells]
    end = next((i for i, text in enumerate(texts) if re.search("^## Exercises$", text, re.M)), len(cells))
    on_path = [*texts[:end], *(text.split("## Exercises")[0] for text in texts[end:end + 1])]
    code = [cell for cell in cells[:end] if cell.cell_type == "code"]
    shown = [cell for cell in code if "hide-input" not in cell.metadata.get("tags", [])]
    outputs = [output for cell in code for output in cell.outputs]
    prose = "\n\n".join(on_path)
    return ChapterSize(
        name_of(path, path.parents[path.parent.name == "appendix"]),
        words=count_words(DROPDOWN.sub("", prose)),
        cells=sum(bool(text.strip()) for text in on_path) + len(code),
        code_lines=sum(len(cell.source.splitlines()) for cell in shown),
        first_cell=len(code[0].source.splitlines()) if code else 0,
        longest_cell=max((len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code"), default=0),
        output_lines=sum(len(output.get("text", "").splitlines()) for output in outputs),
        figures=sum("image/svg+xml" in output.get("data", {}) for output in outputs),
        dropdown_words=sum(count_words(found[0]) for found in DROPDOWN.finditer(prose)),
        exercises=[count_words(found[1]) for text in texts for found in EXERCISE.finditer(text)],
        all_words=sum(count_words(re.sub(r"^`{3,}(\{.*)?$", "", CODE.sub("", text), flags=re.M)) for text in texts),
        all_cells=len(cells))


def table(sizes: list[ChapterSize]) -> list[list[str]]:
    """The rows of the table, the first with the headings and the last with the sums."""
    rows = [["notebook", "minutes", "words", "cells", "lines of code", "first cell", "longest cell", "words per line",
             "words in dropdowns", "with everything: words", "cells"]]
    for one in sizes:
        rows.append([one.name, f"{one.minutes:.0f}", f"{one.words:,}", str(one.cells), str(one.code_lines),
                     str(one.first_cell), str(one.longest_cell), f"{one.words / max(one.code_lines, 1):.1f}",
                     str(one.dropdown_words), f"{one.all_words:,}", str(one.all_cells)])
    rows.append(["together", f"{sum(one.minutes for one in sizes):.0f}", *("" for _ in range(7)),
                 f"{sum(one.all_words for one in sizes):,}", str(sum(one.all_cells for one in sizes))])
    return rows


def lines_of_code(root: Path) -> dict[str, int]:
    """The lines of Python of each part in a copy of the book; blank lines and docstrings count."""
    homes = {root / place: part for part, places in PARTS.items() for place in places}
    lines = dict.fromkeys(PARTS, 0)
    for file in (file for top in ("d2lpar", "book", "tests") for file in (root / top).rglob("*.py")):
        home = next(place for place in (file.with_suffix(""), *file.parents) if place in homes)
        lines[homes[home]] += len(file.read_text("utf8").splitlines())
    return lines


def changes(before: Path, now: Path = ROOT) -> list[str]:
    """What differs in size between two copies of the book, a line for each chapter and each part."""
    old, new = ({one.name: one for one in map(measure, notebooks(root / "notebooks"))} for root in (before, now))
    found = []
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            found.append(f"{name}: {'new' if name in new else 'gone'}")
        elif old[name] != new[name]:
            found.append(f"{name}: {old[name].minutes:.0f} -> {new[name].minutes:.0f} minutes, "
                         f"{old[name].all_words:,} -> {new[name].all_words:,} words with everything")
    were, are = lines_of_code(before), lines_of_code(now)
    return found + [f"{part}: {were[part]:,} -> {are[part]:,} lines ({are[part] - were[part]:+,})"
                    for part in PARTS if were[part] != are[part]]


def main() -> None:
    rows = table([measure(path) for path in notebooks(ROOT / "notebooks")])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for name, *numbers in rows:
        print(name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:])), sep="  ")
    print("\nlines of Python")
    for part, lines in lines_of_code(ROOT).items():
        print(f"{part:<{widths[0]}}  {lines:7,}")
    for revision in sys.argv[1:2]:
        with tempfile.TemporaryDirectory() as folder:
            export(ROOT, revision, Path(folder))
            print(f"\nchanged since {revision}", *changes(Path(folder)) or ["nothing"], sep="\n")


if __name__ == "__main__":
    main()
