"""What is counted of a chapter is what its reader reads, and the minutes that pages promise are the counted ones."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from chapter_sizes import PARTS, ChapterSize, changes, lines_of_code, measure, table


@pytest.fixture(scope="module")
def sizes(notebooks: list[Path]) -> dict[str, ChapterSize]:
    return {one.name: one for one in map(measure, notebooks)}


def test_what_is_counted_is_what_stands_before_the_exercises(tmp_path: Path) -> None:
    text = "(sec-a)=\n## One two\n\n[three](four.md) `five`, 6 = *seven*\n\n:::{dropdown} Eight\n:::\n\n```bash\nten\n```"
    more = "last\n\n## Exercises\n\n```{exercise} A\n:label: ex-a\n\none two three four\n```"
    solution = "````{solution} ex-a\n\n```python\nx = 3\n```\n\nlong\n````"
    figure = new_output("display_data", {"image/svg+xml": "<svg/>"})
    cells = [new_markdown_cell(text), new_code_cell("a\nb", outputs=[new_output("stream", text="1\n2\n3\n"), figure]),
             new_code_cell("folded\n" * 9, metadata={"tags": ["hide-input"]}),
             new_markdown_cell(more), new_code_cell("c\nd\ne"), new_markdown_cell(solution)]
    (tmp_path / "appendix").mkdir()
    for name in ("09_a", "appendix/b"):
        nbformat.write(new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
        one = measure(tmp_path / f"{name}.ipynb")
        assert (one.name, one.words, one.cells, one.code_lines, one.output_lines, one.figures) == (name, 7, 4, 2, 3, 1)
        assert (one.first_cell, one.longest_cell, one.dropdown_words, one.exercises, one.all_cells) == (2, 9, 2, [5], 6)
        assert one.minutes == 7 / 200 + (12 + 9 + 30) / 60
    head, row, together = table([one])
    assert len(head) == len(row) == len(together)


def test_the_minutes_that_readers_are_told_are_those_of_the_formula(root: Path, sizes: dict[str, ChapterSize]) -> None:
    index = (root / "book" / "index.md").read_text("utf8")
    told = {name: int(minutes) for name, minutes in re.findall(r"notebooks/([\w/]+)\.ipynb\) \*(\d+) min\*", index)}
    assert list(told) == [name for name in sizes if not name.startswith("appendix/")], (
        "List every chapter in book/index.md (left), in order and with its minutes (book/authors.md, Add a chapter)")
    for name, minutes in told.items():
        opening = nbformat.read(root / "notebooks" / f"{name}.ipynb", as_version=4).cells[0].source
        assert re.findall(r"\*\*Time\*\*: about (\d+) minutes", opening)[:1] == [str(minutes)], (
            f"Write **Time**: about {minutes} minutes, as in book/index.md, into the first cell of {name} (book/authors.md, The parts of a chapter)")
    wrong = {name: f"{sizes[name].minutes:.0f}" for name, minutes in told.items() if abs(minutes - sizes[name].minutes) > 5}
    assert wrong == {}, "Write these minutes into the chapter's first cell and into book/index.md (book/authors.md, How long a chapter is)"


def test_lines_are_counted_by_part_and_what_changed_is_listed(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for root, lines in ((old, 2), (new, 5)):
        for file in ("d2lpar/cost.py", "d2lpar/launch.py", "d2lpar/diagnosis/rules.py", "d2lpar/pages/exercises/ex_a.py", "tests/test_a.py"):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text("x\n" * lines)
        (root / "d2lpar" / "data.py").write_text("x\n")
        (root / "notebooks").mkdir()
        nbformat.write(new_notebook(cells=[new_markdown_cell("word " * 200 * lines)]), root / "notebooks" / "01_a.ipynb")
    nbformat.write(new_notebook(), new / "notebooks" / "02_b.ipynb")
    counted = lines_of_code(new)
    assert {part: lines for part, lines in counted.items() if lines} == {
        "the helper package": 6, "the launcher of ranks": 5, "watch and diagnose": 5, "checks of what readers write": 5, "the tests": 5}
    assert changes(old, new)[:3] == ["01_a: 2 -> 5 minutes, 400 -> 1,000 words with everything", "02_b: new",
                                     "the helper package: 3 -> 6 lines (+3)"]
    assert len(changes(old, new)) == 7 and changes(new, new) == []


def test_every_file_of_the_package_is_counted_once(root: Path) -> None:
    files = [file for top in ("d2lpar", "book", "tests") for file in (root / top).rglob("*.py")]
    named = [place for places in PARTS.values() for place in places]
    homes = {root / place for place in named}
    assert [file.relative_to(root) for file in files if not homes & {file.with_suffix(""), *file.parents}] == [], (
        "Move these files, or give them a place in PARTS in book/tools/chapter_sizes.py (book/authors.md, The tools)")
    assert sum(lines_of_code(root).values()) == sum(len(file.read_text("utf8").splitlines()) for file in files)
    assert [place for place in named if not (root / place).is_dir() and not (root / f"{place}.py").exists()] == [], (
        "Change or delete these names in PARTS in book/tools/chapter_sizes.py (book/authors.md, The tools)")


@pytest.mark.weekly
def test_the_sizes_that_the_readme_names_are_nearly_those_that_are_counted(root: Path) -> None:
    readme = (root / "README.md").read_text("utf8")
    told = re.search(r"^The helper package that .*$", readme, re.M)
    assert told, "README.md, last section"
    counted = lines_of_code(root)
    parts = ["the helper package", "the launcher of ranks", "the script to copy", "the cluster", "watch and diagnose", "what only pages need"]
    counted["what only pages need"] += counted["checks of what readers write"]
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d+(?:,\d+)*", told[0])]
    assert len(numbers) == len(parts)
    wrong = {part: counted[part] for part, number in zip(parts, numbers) if abs(number - counted[part]) > 0.1 * counted[part]}
    assert wrong == {}, "Write these numbers of lines, to within 10%, into the last section of README.md (book/authors.md, How large the code is)"


@pytest.mark.slow
def test_the_authors_page_shows_the_tables(root: Path, site: Path, sizes: dict[str, ChapterSize]) -> None:
    page = (site / "book" / "authors.html").read_text("utf8")
    for name, one in sizes.items():
        assert f"<p>{name}</p>" in page and f"<p>{one.all_words:,}</p>" in page
    for part, lines in lines_of_code(root).items():
        assert (f"<p>{part}</p>" in page, f"<p>{lines:,}</p>" in page) == (True, True), (
            f"Make `code-sizes` in book_ext.py show this part with its {lines:,} lines: {part} (book/authors.md, How large the code is)")
