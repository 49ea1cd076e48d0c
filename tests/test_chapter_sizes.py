"""What is counted of a chapter is what its reader reads, and the minutes that pages promise are the counted ones."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from chapter_sizes import ChapterSize, count_words, measure, table


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
        assert (one.longest_cell, one.dropdown_words, one.exercises, one.all_cells) == (9, 2, [5], 6)
        assert one.minutes == 7 / 200 + (12 + 9 + 30) / 60
    head, row, together = table([one])
    assert len(head) == len(row) == len(together)


def test_the_minutes_that_readers_are_told_are_those_of_the_formula(root: Path, sizes: dict[str, ChapterSize]) -> None:
    index = (root / "book" / "index.md").read_text("utf8")
    told = {name: int(minutes) for name, minutes in re.findall(r"notebooks/([\w/]+)\.ipynb\) \*(\d+) min\*", index)}
    assert list(told) == [name for name in sizes if not name.startswith("appendix/")]
    for name, minutes in told.items():
        opening = nbformat.read(root / "notebooks" / f"{name}.ipynb", as_version=4).cells[0].source
        assert int(re.search(r"\*\*Time\*\*: about (\d+) minutes", opening)[1]) == minutes, name
    assert {name: sizes[name].minutes for name, minutes in told.items() if abs(minutes - sizes[name].minutes) > 5} == {}
    first_part = sum(sizes[name].minutes for name in told if name < "07")
    assert abs(first_part - 120) < 15, "two hours"
    assert abs(sum(sizes[name].minutes for name in told) - 600) < 45, "ten hours"
    assert abs(sizes["02_data_parallelism_from_scratch"].minutes - 20) < 5, "twenty minutes"
    assert count_words(index.partition("## The chapters")[0]) <= 350, "before the list of chapters"


@pytest.mark.slow
def test_the_authors_page_shows_the_table(site: Path, sizes: dict[str, ChapterSize]) -> None:
    page = (site / "book" / "authors.html").read_text("utf8")
    for name, one in sizes.items():
        assert f"<p>{name}</p>" in page and f"<p>{one.all_words:,}</p>" in page
