"""The README shows what the book has found, and not what it once was: its picture, its code and its minutes."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

import draw_finding
from chapter_sizes import measure
from d2lpar._command_line import _parser
from d2lpar.pages.results import judged_rows, stored_results
from sync_cells import package_text

INDEX = "(book/authors.md, Add a chapter)"
TOOLS = "(book/authors.md, The tools)"


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text("utf8")


def test_the_picture_shows_the_numbers_of_its_chapter_and_the_words_beside_it_say_them(readme: str) -> None:
    found = draw_finding.factors()
    assert found == {k: 2.0 ** (k - 1) for k in (1, 2, 3, 4, 5)}, f"Change the picture and the words in README.md with the chapter {TOOLS}"
    picture = draw_finding.PICTURE.read_text("utf8")
    shown = re.findall(r"<text [^>]*>([^<]*)</text>", picture)
    [axes] = draw_finding.draw(found).axes
    drawn = [text.get_text() for text in (*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts, axes.xaxis.label)]
    assert sorted(shown) == sorted(drawn), f"Run: python book/tools/draw_finding.py {TOOLS}"
    alt, file = re.search(r"!\[(.*?)\]\((.*?)\)", readme).groups()
    assert file == "book/_static/finding.svg"
    assert re.findall(r"\d+", alt) == [*map(str, found), *(f"{factor:g}" for factor in found.values())], (
        f"Say these numbers in the alt text of the picture in README.md {TOOLS}")


def test_what_the_readme_says_of_a_script_is_what_its_page_shows(root: Path, readme: str) -> None:
    cells = nbformat.read(root / "notebooks" / "12_is_my_script_right.ipynb", as_version=4).cells
    watched = next(cell for cell in cells if cell.cell_type == "code" and "dp.watch" in cell.source)
    assert re.search(r"^```text\n(.*?)```", readme, re.M | re.S)[1] == watched.outputs[0].text, (
        "Show in README.md (left) what 12_is_my_script_right prints (right) (book/authors.md, The rules)")
    lines = (root / "d2lpar" / "pages" / "stored" / "ring.py").read_text("utf8").splitlines()
    assert "script of thirty lines" in readme and len(lines) in range(28, 33), (
        "Say in README.md how many lines d2lpar/pages/stored/ring.py has, and change this test (book/authors.md, The rules)")


def test_the_readmes_and_help_say_of_each_way_of_training_what_watch_judges(root: Path, readme: str, capsys: pytest.CaptureFixture) -> None:
    head, *rows = judged_rows(stored_results("trainers")["trainers"])
    table = "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
    for text in (readme, (root / "README.zh.md").read_text("utf8")):
        assert table in text, f"Show this table in README.md and README.zh.md (book/authors.md, The tools):\n{table}"
    trainers = {name for name, one in stored_results("trainers")["trainers"].items() if "right" in one}
    said = {"Transformers": "transformers.Trainer"}
    with pytest.raises(SystemExit):
        _parser().parse_args(["watch", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    loaders = {"StatefulDataLoader", "webdataset"}
    assert all(said.get(name, name) in words for name in trainers - loaders), words
    assert "scripts with fully_shard" in words and stored_results("trainers")["trainers"]["fully_shard"]["coverage"]["exchange"] == "judged"


def test_the_manual_has_every_option_of_both_commands_and_every_exit_code(root: Path, capsys: pytest.CaptureFixture) -> None:
    cells = nbformat.read(root / "notebooks" / "appendix" / "watch_and_diagnose.ipynb", as_version=4).cells
    manual = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for command in ("watch", "diagnose"):
        with pytest.raises(SystemExit):
            _parser().parse_args([command, "--help"])
        words = capsys.readouterr().out
        options, codes = {*re.findall(r"--[a-z-]+", words)} - {"--help"}, re.findall(r"\b(\d) (?:no|a|it)\b", words.partition("xit codes:")[2].replace("\n", " "))
        assert options >= {"--ranks", "--allow", "--json"} and codes[:3] == ["0", "1", "2"], words
        assert [option for option in sorted(options) if f"`{option}" not in manual] == [], f"Describe these options of {command} in the manual {TOOLS}"
        assert [code for code in codes if f"\n| {code} | " not in manual] == [], f"Describe these exit codes of {command} in the manual {TOOLS}"


def test_the_step_that_the_readme_shows_is_the_packages(readme: str) -> None:
    shown = re.search(r"^```python\n(.*?)\n```", readme, re.M | re.S)[1]
    head, docstring, *body = package_text("scratch", "train_batch").splitlines()
    assert docstring.strip().startswith('"""')
    assert shown.splitlines() == [head, *body], "Show in README.md (left) the function of the package (right) (book/authors.md, Change a function)"


def test_the_ways_through_the_book_take_about_as_long_as_they_say(root: Path, readme: str, chapters: list[Path]) -> None:
    minutes = {path.stem: measure(path).minutes for path in chapters}
    spent = [spent for name, spent in sorted(minutes.items())]
    told = {"twenty minutes": spent[1], "one hour": spent[1] + spent[4] + spent[5], "two hours": sum(spent[:6]),
            "three hours": sum(spent[number - 1] for number in (1, 7, 8, 9, 10, 13))}
    index = (root / "book" / "index.md").read_text("utf8")
    for words, longest in {"twenty minutes": 25, "one hour": 75, "two hours": 135, "three hours": 205}.items():
        assert f"| **{words}**" in readme and f"card}} {words.capitalize()}" in index, f"Name the way of {words} in README.md and in book/index.md {INDEX}"
        assert 0.8 * longest <= told[words] <= longest, (
            f"Change README.md and book/index.md: the way of {words} takes {told[words]:.0f} minutes {INDEX}")
    in_index = [int(number) for number in re.findall(r"\*(\d+) min\*", index)]
    assert sum(in_index[:8]) <= 180, "PyTorch's DDP begins within three hours: shorten or move one of the first eight chapters"
    number = re.search(r"book of (\d+) Jupyter notebooks", readme)[1]
    assert int(number) == len(minutes), f"Write {len(minutes)} notebooks instead of {number} in the first lines of README.md {INDEX}"
