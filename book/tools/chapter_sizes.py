"""How long each chapter is for its reader, and how large the code is: `python book/tools/chapter_sizes.py`.

The path is everything before "Exercises". Its words leave out code, the addresses of links and dropdowns; its lines of
code leave out folded cells, which a reader may skip.
Minutes: 200 words a minute, 6 s a line of code, 3 s a line of output, 30 s a figure.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import nbformat

from revisions import name_of, notebooks

ROOT = Path(__file__).resolve().parents[2]
# the folders whose lines of Python are counted, each without the folders below it
FOLDERS = ("d2lpar", "d2lpar/diagnosis", "d2lpar/pages", "d2lpar/pages/exercises", "d2lpar/pages/stored", "book/lab",
           "book/tools", "tests", "tests/diagnose", "tests/watch", "tests/wrong_answers")

DROPDOWN = re.compile(r"^(:{3,})\{dropdown\}.*?^\1$", re.M | re.S)
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.M | re.S)
CODE = re.compile(r"^```([a-z]+|\{code-block\}.*?)$.*?^```$", re.M | re.S)
EXERCISE = re.compile(r"^```\{exercise\}(.*?)^```$", re.M | re.S)


class ChapterSize(NamedTuple):
    """One notebook's."""

    name: str
    words: int  # on the path, as all that follow but the last two
    cells: int
    code_lines: int
    longest_cell: int  # lines of code
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
    cells = nbformat.read(path, as_version=4).cells
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
        longest_cell=max((len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code"), default=0),
        output_lines=sum(len(output.get("text", "").splitlines()) for output in outputs),
        figures=sum("image/svg+xml" in output.get("data", {}) for output in outputs),
        dropdown_words=sum(count_words(found[0]) for found in DROPDOWN.finditer(prose)),
        exercises=[count_words(found[1]) for text in texts for found in EXERCISE.finditer(text)],
        all_words=sum(count_words(re.sub(r"^`{3,}(\{.*)?$", "", CODE.sub("", text), flags=re.M)) for text in texts),
        all_cells=len(cells))


def table(sizes: list[ChapterSize]) -> list[list[str]]:
    """The rows of the table, the first with the headings and the last with the sums."""
    rows = [["notebook", "minutes", "words", "cells", "lines of code", "longest cell", "words per line",
             "words in dropdowns", "with everything: words", "cells"]]
    for one in sizes:
        rows.append([one.name, f"{one.minutes:.0f}", f"{one.words:,}", str(one.cells), str(one.code_lines),
                     str(one.longest_cell), f"{one.words / max(one.code_lines, 1):.1f}",
                     str(one.dropdown_words), f"{one.all_words:,}", str(one.all_cells)])
    rows.append(["together", f"{sum(one.minutes for one in sizes):.0f}", *("" for _ in range(6)),
                 f"{sum(one.all_words for one in sizes):,}", str(sum(one.all_cells for one in sizes))])
    return rows


def lines_of_code() -> dict[str, list[int]]:
    """The lines of Python of each file, by folder; blank lines and docstrings count, folders inside it do not."""
    folders: dict[str, list[int]] = {folder: [] for folder in FOLDERS}
    for path in sorted(path for top in ("d2lpar", "book", "tests") for path in (ROOT / top).rglob("*.py")):
        folder = max((folder for folder in FOLDERS if path.is_relative_to(ROOT / folder)), key=len)
        folders[folder].append(len(path.read_text("utf8").splitlines()))
    return folders


def main() -> None:
    rows = table([measure(path) for path in notebooks(ROOT / "notebooks")])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for name, *numbers in rows:
        print(name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:])), sep="  ")
    print()
    lines = lines_of_code()
    for folder, files in lines.items():
        print(f"{folder:<{widths[0]}}  {sum(files):,} lines of Python, {len(files)} files")
    code = sum(sum(lines[folder]) for folder in ("d2lpar", "d2lpar/diagnosis", "d2lpar/pages"))
    print(f"tests: {sum(lines['tests']) / code:.2f} lines for each line of the package")


if __name__ == "__main__":
    main()
