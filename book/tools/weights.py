"""What each chapter weighs for its reader, and the code: `python book/tools/weights.py`. Both are to be kept small.

The path is all that stands before "Exercises", folded cells too; in its words nothing of code, of a link's address or
of a dropdown is counted. Minutes: 200 words a minute, 6 s a line of code, 3 s a line of output, 30 s a figure.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import nbformat

from revisions import name_of, notebooks

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {  # at most so many words and cells on the path
    "01_why_gradients_split": (1400, 20),
    "02_data_parallelism_from_scratch": (1600, 36),
    "03_bugs_that_train": (1100, 24),
    "04_parallel_loop": (1200, 22),
    "05_concise_data_parallelism": (1300, 32),
    "06_resnet18_on_two_devices": (1400, 26),
    "07_rings_true_and_false": (2000, 38),
    "08_two_prices": (1500, 28),
    "09_four_thousand_devices": (1400, 24),
    "10_last_minibatch": (2000, 38),
    "11_batch_size": (1900, 36),
    "12_batchnorm": (1500, 32),
    "13_rank_as_a_process": (1100, 24),
    "14_ddp_built": (1600, 40),
    "15_library_ddp": (2000, 42),
    "16_several_machines": (1400, 26),
    "17_is_my_script_right": (1300, 26),
    "18_training_that_survives": (1600, 30),
    "19_where_time_goes": (1400, 26),
    "20_three_ways": (1400, 26),
    "21_sharding": (1600, 30),
}
CODE_LINES, DROPDOWN_WORDS, EXERCISE_WORDS = 25, 300, 120  # of a cell, of a chapter, of an exercise
ROOMS = {  # at most so many lines of Python, blank ones and docstrings too, those of rooms within a room not counted
    "d2lpar": 6300,
    "d2lpar/pages": 4000,
    "d2lpar/pages/exercises": None,
    "book/tools": 2000,
    "tests": 16000,
    "tests/wrong_answers": None,
}
TESTS = 1.6  # lines for each line of what they test

DROPDOWN = re.compile(r"^(:{3,})\{dropdown\}.*?^\1$", re.M | re.S)
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.M | re.S)
CODE = re.compile(r"^```(python|bash|text)?$.*?^```$", re.M | re.S)
EXERCISE = re.compile(r"^```\{exercise\}(.*?)^```$", re.M | re.S)


class Weight(NamedTuple):
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


def weigh(path: Path) -> Weight:
    """What the notebook at `path` weighs."""
    cells = nbformat.read(path, as_version=4).cells
    texts = [cell.source if cell.cell_type == "markdown" else "" for cell in cells]
    end = next((i for i, text in enumerate(texts) if re.search("^## Exercises$", text, re.M)), len(cells))
    on_path = [*texts[:end], *(text.split("## Exercises")[0] for text in texts[end:end + 1])]
    code = [cell for cell in cells[:end] if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    prose = "\n\n".join(on_path)
    return Weight(
        name_of(path, path.parents[path.parent.name == "appendix"]),
        words=count_words(DROPDOWN.sub("", prose)),
        cells=sum(bool(text.strip()) for text in on_path) + len(code),
        code_lines=sum(len(cell.source.splitlines()) for cell in code),
        longest_cell=max((len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code"), default=0),
        output_lines=sum(len(output.get("text", "").splitlines()) for output in outputs),
        figures=sum("image/svg+xml" in output.get("data", {}) for output in outputs),
        dropdown_words=sum(count_words(found[0]) for found in DROPDOWN.finditer(prose)),
        exercises=[count_words(found[1]) for text in texts for found in EXERCISE.finditer(text)],
        all_words=sum(count_words(re.sub(r"^`{3,}(\{.*)?$", "", CODE.sub("", text), flags=re.M)) for text in texts),
        all_cells=len(cells))


def table(weights: list[Weight]) -> list[list[str]]:
    """The rows of the table, the first with the headings and the last with the sums."""
    def of(number: int, limit: int | None) -> str:
        return f"{number:,}" + (f" of {limit:,}" if limit else "")

    rows = [["notebook", "minutes", "words", "cells", "lines of code", "longest cell", "with all: words", "cells"]]
    for one in weights:
        words, cells = LIMITS.get(one.name, (None, None))
        rows.append([one.name, f"{one.minutes:.0f}", of(one.words, words), of(one.cells, cells), str(one.code_lines),
                     str(one.longest_cell), f"{one.all_words:,}", str(one.all_cells)])
    rows.append(["together", f"{sum(one.minutes for one in weights):.0f}", *("" for _ in range(4)),
                 f"{sum(one.all_words for one in weights):,}", str(sum(one.all_cells for one in weights))])
    return rows


def weigh_rooms() -> dict[str, list[int]]:
    """The lines of Python of each file, by room."""
    rooms: dict[str, list[int]] = {room: [] for room in ROOMS}
    for path in sorted(path for top in ("d2lpar", "book/tools", "tests") for path in (ROOT / top).rglob("*.py")):
        room = max((room for room in ROOMS if path.is_relative_to(ROOT / room)), key=len)
        rooms[room].append(len(path.read_text("utf8").splitlines()))
    return rooms


def main() -> None:
    rows = table([weigh(path) for path in notebooks(ROOT / "notebooks")])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for name, *numbers in rows:
        print(name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:])), sep="  ")
    print()
    for room, files in weigh_rooms().items():
        limit = f" of {ROOMS[room]:,}" if ROOMS[room] else ""
        print(f"{room:<{widths[0]}}  {sum(files):,}{limit} lines of Python, {len(files)} files")


if __name__ == "__main__":
    main()
