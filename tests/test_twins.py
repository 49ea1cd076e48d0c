"""Chinese pages say what the English ones say, as they are today, in words that are always the same.

The last tests plant each mistake that the first ones look for. The twins are compared, and not run again.
"""

from __future__ import annotations

import copy
import html
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import docutils.nodes
import nbformat
import pytest
import yaml
from playwright.sync_api import Browser

import twins
import twins_ext
import twins_site
from twins import Part

every_page = pytest.mark.parametrize("page", twins.pages())


def test_a_page_that_is_only_taken_apart_and_put_together_has_the_same_bytes(root: Path, notebooks: list[Path]) -> None:
    for path in [*notebooks, *(root / "book").glob("*.md"), root / "README.md"]:
        page = path.relative_to(root).with_suffix("").as_posix()
        assert twins.dump(twins.load(page)) == path.read_text("utf8"), page


GUIDE = 'see "Translate a page, or change one that is translated" in book/authors.md'


@pytest.mark.weekly  # so that no change in English waits for Chinese, but a release does
def test_every_page_that_was_released_is_whole_and_up_to_date(root: Path) -> None:
    released, captions = twins.WORDS["pages"]["released"], {part["caption"] for part in yaml.safe_load((root / "_toc.yml").read_text("utf8"))["parts"] if "caption" in part}
    assert {page: found for page in released if (found := twins.problems(page))} == {}, (
        f"Translate these parts, or `twins.py accept` those that still fit, or take their page off `released`: {GUIDE}")
    assert set(twins.pages()) >= {*released}, f"Take pages that are gone off `released` in zh/terms.toml: {GUIDE}"
    assert len(twins.pages()) == len([*root.glob("zh/*/**/*.md"), *root.glob("README.zh.md")]), f"Delete or rename the translation of a page that is gone: {GUIDE}"
    assert captions <= {*twins.WORDS["captions"]}, f"Translate these captions of _toc.yml in zh/terms.toml: {GUIDE}"
    assert [page for page in released if "<!-- ENGLISH" in twins.target_of(page).read_text("utf8")] == [], f"Run `twins.py accept`: {GUIDE}"


@every_page
def test_what_is_translated_has_the_links_numbers_code_and_terms_of_its_english(page: str) -> None:
    assert [found for found in twins.problems(page) if not found.startswith(("missing:", "stale:", "hint:"))] == []
    text = twins.target_of(page).read_text("utf8")
    assert page != twins.INDEX or "保持英文" in text, "what stays English is said once, here"
    if page == twins.README:  # which is shown as it is
        parts, translation = twins.parts_of(twins.load(page)), twins.read(text)
        assert twins.joined(twins.ENGLISH.sub("", text)) == twins.ENGLISH.sub("", text)
        for key in {*parts} & {*translation} - {*twins.stale(parts, translation)}:
            assert twins.codes(translation[key][1]) == twins.codes(parts[key].text), key


def bare(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without what is translated."""
    made = copy.deepcopy(notebook)
    for key, kind, holder, where in twins.places(made):
        holder[where] = twins.codes(holder[where]) if kind == "" else twins.NUMBER.findall(holder[where]) if kind == "alt" else key
    return made


@pytest.mark.parametrize("page", [page for page in twins.pages() if page.startswith("notebooks/")])
def test_code_outputs_tags_ids_and_numbers_are_those_of_the_english_notebook(page: str) -> None:
    english = twins.load(page)
    chinese = twins.twin(english, twins.translation_of(page))
    assert bare(chinese) == bare(english) and (chinese != english or page not in twins.twins())


@every_page
def test_headings_of_a_page_differ_so_that_each_has_the_anchor_of_its_english(page: str) -> None:
    source = twins.load(page)
    assert len(twins.parts_of(source)) == len([*twins.places(source)])
    assert twice(source, twins.translation_of(page)) == []


def twice(source: nbformat.NotebookNode | list, translation: twins.Translation) -> list[str]:
    """The Chinese headings that are there for several English ones."""
    parts, old = twins.parts_of(source), twins.stale(twins.parts_of(source), translation)
    pairs = {pair for key, (_, text) in translation.items() if text and key in parts and key not in old
             for pair in zip(twins.headings(text), twins.headings(parts[key].text), strict=True)}
    own = [head for text in twins.own_of(translation).values() for head in twins.headings(text)]
    return [heading for heading, count in Counter([*own, *(chinese for chinese, _ in pairs)]).items() if count > 1]


SMALL = nbformat.v4.new_notebook(cells=[
    nbformat.v4.new_markdown_cell("## 2. Cut: `f`\n\nThe **device** has 1,024 numbers, see [there](a.ipynb#b) $x$.\nTwo lines.\n\n- (one)", id="aaaa"),
    nbformat.v4.new_markdown_cell("````{solution} ex-a\n:class: dropdown\n\n```python\nx = 3\n```\n\nText.\n````\n\n```{exercise} B\n:label: ex-b\n\nGo.\n```\n\n## End", id="bbbb")])
GOOD = "## 2. 切分：`f`\n\n这个**设备**有1,024个数，见[那里](a.ipynb#b)$x$。\n两行。\n\n- （一）"
SOLUTION = "````{solution} ex-a\n:class: dropdown\n\n```python\n```\n\n文字。\n````\n\n```{exercise} 乙\n:label: ex-b\n\n去吧。\n去吧。\n```\n\n## 完"
PARTS = twins.parts_of(SMALL)
BOTH = {"aaaa": (PARTS["aaaa"].hash, GOOD), "bbbb": (PARTS["bbbb"].hash, SOLUTION)}


def test_a_good_translation_is_taken_with_the_code_and_without_breaks_inside_a_paragraph() -> None:
    assert twins.missing(PARTS, BOTH) == twins.stale(PARTS, BOTH) == []
    assert twins.faults(PARTS["aaaa"], GOOD) == twins.faults(PARTS["bbbb"], SOLUTION) == []
    first, second = (cell.source for cell in twins.twin(SMALL, BOTH).cells)
    assert first.endswith("$x$。两行。\n\n- （一）")
    assert "```python\nx = 3\n```" in second and ":label: ex-b\n\n去吧。去吧。\n```\n\n## 完" in second
    assert twins.joined("一\n: 二\n  三\n: 四\n\n五\n: 六") == "一\n: 二三\n: 四\n\n五\n: 六", "a list of definitions"
    assert twins.joined("- 一\n  二\n- 三\n\n词\nword\n  义\n  务\n1. 四\\\n   五\n:::{card} 六\n七\n八\n:::") == (
        "- 一二\n- 三\n\n词word\n  义务\n1. 四\\\n   五\n:::{card} 六\n七八\n:::")


def test_a_part_whose_english_changed_is_named_and_shown_in_english_which_says_so() -> None:
    changed = copy.deepcopy(SMALL)
    changed.cells[0].source = changed.cells[0].source.replace("Cut", "Cut it")
    assert twins.stale(twins.parts_of(changed), BOTH) == ["aaaa"]
    first, second = (cell.source for cell in twins.twin(changed, BOTH).cells)
    assert first == changed.cells[0].source + "\n\n（这里的译文还没有跟上，先显示英文。）" and second == twins.twin(SMALL, BOTH).cells[1].source
    assert twins.anchors(changed, BOTH) == {"2. Cut it: f": "2. Cut it: f", "完": "End"}
    del changed.cells[1]
    assert twins.stale(twins.parts_of(changed), BOTH) == ["aaaa", "bbbb"]


@pytest.mark.parametrize("one", [{}, {"bbbb": (PARTS["bbbb"].hash, "")}, {"bbbb": (PARTS["bbbb"].hash, SOLUTION.replace("ex-b", "ex-c"))},
                                 {"bbbb": (PARTS["bbbb"].hash, SOLUTION.replace("```python\n```", ""))}])
def test_a_part_that_is_not_translated_or_on_which_a_build_could_fail_is_shown_in_english_which_says_so(one: twins.Translation) -> None:
    made = twins.twin(SMALL, {"aaaa": BOTH["aaaa"], **one}).cells[1].source
    assert made == SMALL.cells[1].source.replace("## End", "（这里的译文还没有跟上，先显示英文。）\n\n## End")
    assert twins.missing(PARTS, {"aaaa": BOTH["aaaa"], **one}) == ["bbbb"] * (not one or not one["bbbb"][1])


def test_the_note_stands_above_a_heading_with_which_a_cell_ends() -> None:
    note = "（这里的译文还没有跟上，先显示英文。）"
    for text, noted in (("One.\n\n(sec-a)=\n## A", f"One.\n\n{note}\n\n(sec-a)=\n## A"), ("## A", f"## A\n\n{note}"), ("## A\n\n# B.", f"## A\n\n{note}\n\n# B."),
                        ("```python\n# x\n```", f"```python\n# x\n```\n\n{note}")):
        assert twins.filled(Part("", text), "", "") == noted
    plain = Part("", "One.")
    assert twins.filled(plain, plain.hash, "") == f"One.\n\n{note}", "as `twins.py new` stores it"


def test_captions_and_alt_texts_that_changed_are_in_english_on_one_line() -> None:
    assert twins.filled(Part("caption", "New."), Part("caption", "Old.").hash, "旧。") == "New.（这里的译文还没有跟上，先显示英文）"
    assert twins.filled(Part("alt", "New: 3."), Part("alt", "Old: 3.").hash, "旧：{}。") == "New: 3.（这里的译文还没有跟上，先显示英文）"


OWN = "aaaa zh-only only-here"


def test_a_part_without_english_comes_after_its_part_with_its_code_and_an_anchor_of_its_own() -> None:
    with_own = {**BOTH, OWN: ("", "## 只有中文\n\n一。\n二。\n\n```sh\nmake lab\n```\n\n见[那里](b.md)。")}
    assert twins.stale(PARTS, with_own) == [] and twins.faults_of_own(with_own[OWN][1]) == []
    first, second = (cell.source for cell in twins.twin(SMALL, with_own).cells)
    plain, same = (cell.source for cell in twins.twin(SMALL, BOTH).cells)
    assert first == plain + "\n\n## 只有中文\n\n一。二。\n\n```sh\nmake lab\n```\n\n见[那里](b.md)。" and second == same
    assert twins.anchors(SMALL, with_own) == twins.anchors(SMALL, BOTH) | {"只有中文": "zh-only-here"}
    assert twice(SMALL, {**with_own, OWN: ("", "## 完")}) == ["完"]
    assert twins.stale({"bbbb": PARTS["bbbb"]}, {OWN: with_own[OWN]}) == [OWN]


@pytest.mark.parametrize("text, what", [("用偏差。", "偏差"), ("有 1,024个", "space"), ("两行,三行", "half-width"), ("**设备（device）**的", "bold"),
                                        ("一。\n\n## 二", "headings"), ("## 一\n\n## 二", "headings")])
def test_a_mistake_in_a_part_without_english_is_found(text: str, what: str) -> None:
    assert any(what in fault for fault in twins.faults_of_own(text))
    assert twins.faults_of_own("“偏差”这个词，在`a \"b\"`里，**设备**。") == []


def test_the_tools_keep_a_part_without_english_where_it_is(page: Callable[..., str]) -> None:
    name, own = page("One", "Two"), "one zh-only more"
    twins.new(name)
    for key, text in (("one", "# 一"), ("two", "# 二")):
        translate(name, key, text)
    file = twins.target_of(name)
    twins.store(file, file.read_text("utf8").replace("<!-- two", f"<!-- {own} -->\n更多。\n\n<!-- two"))
    for command in (twins.accept, twins.new, lambda name: twins.accept(name, "two")):
        command(name)
        assert [*twins.translation_of(name)] == ["one", own, "two"] and f"<!-- {own} -->\n更多。\n" in file.read_text("utf8")
    assert twins.problems(name) == []
    twins.store(file, file.read_text("utf8").replace("更多。", "更多,多"))
    assert [line.split(":")[0] for line in twins.problems(name)] == [own]


def test_the_english_word_of_the_outputs_follows_where_a_page_first_has_the_chinese_one(page: Callable[..., str]) -> None:
    name = page("One", "Two")
    twins.new(name)
    translate(name, "one", "# 一\n\n一个迭代周期（epoch，轮）。")
    translate(name, "two", "# 二\n\n又一个迭代周期，还有词元。")
    assert twins.problems(name) == ["词元: first as 词元（token）"]


def test_words_of_the_outputs_are_explained_and_are_there(root: Path, notebooks: list[Path]) -> None:
    text = twins.own_of(twins.translation_of(twins.INDEX))["beside-the-chapters zh-only outputs"]
    told = {word for row in re.findall(r"^\| (.*?) \|", text, re.M)[1:] for word in row.split("、")} - {"---"}
    assert {"epoch", "test acc", "shard", "replica", "Not yet:", "Right.", "rank", "loss", "allreduce"} <= told
    shown = "".join(path.read_text("utf8") for path in [*notebooks, *(root / "d2lpar").rglob("*.py")])
    assert [word for word in told if word not in shown] == []


def test_the_functions_of_the_chapters_from_which_the_book_starts_are_explained_in_chinese() -> None:
    text = "".join(text for page in twins.pages() if page.startswith("notebooks/") for _, text in twins.translation_of(page).values())
    for name in ("get_params", "allreduce", "split_batch", "train_batch", "train", "resnet18", "evaluate_accuracy_gpus", "DataParallel"):
        assert re.search(rf"^#+ .*`{name}`", text, re.M) or re.search(rf"\*\*你将实现\*\*：.*`{name}`", text), name


def test_sections_of_one_name_are_parts_of_their_own() -> None:
    parts = twins.parts_of(twins.sections("# A\n\none\n\n# A 2\n\n# A\n\ntwo\n\n# A\n"))
    assert [*parts] == ["a", "a-2", "a-1", "a-3"] and parts["a-1"].text == "# A\n\ntwo"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Write a page of these sections; its translation is `zh/book/page.md`."""
    monkeypatch.setattr(twins, "ROOT", tmp_path)
    monkeypatch.setattr(twins, "HERE", tmp_path / "zh")

    def page(*sections: str) -> str:
        twins.store(tmp_path / "book" / "page.md", "".join(f"# {name}\n\n{name} it.\n\n" for name in sections))
        return "book/page"

    yield page
    twins.pages.cache_clear()
    twins.twins.cache_clear()


def translate(name: str, key: str, text: str) -> None:
    file = twins.target_of(name)
    twins.store(file, re.sub(rf"(<!-- {key} .*\n)", rf"\1{text}\n", file.read_text("utf8")))


def test_accepting_keeps_the_english_of_what_is_not_translated_and_deletes_it_where_it_is(page: Callable[..., str]) -> None:
    name = page("One", "Two", "Three")
    twins.new(name)
    translate(name, "one", "# 一")
    for keys in (["one"], []):
        twins.accept(name, *keys)
        assert re.findall("ENGLISH\n# (.*)", twins.target_of(name).read_text("utf8")) == ["Two", "Three"]
        assert twins.translation_of(name)["one"] == (twins.parts_of(twins.load(name))["one"].hash, "# 一")


def test_a_renamed_section_keeps_its_translation_until_all_of_the_page_is_accepted(page: Callable[..., str]) -> None:
    name = page("One", "Two")
    twins.new(name)
    translate(name, "one", "# 一")
    translate(name, "two", "# 二")
    twins.new(page("First", "Two"))
    twins.accept(name, "two")
    assert [(key, text) for key, (_, text) in twins.translation_of(name).items()] == [("first", ""), ("two", "# 二"), ("one", "# 一")]
    assert [line.split(": ")[:2] for line in twins.problems(name)] == [["missing", "first"], ["stale", "one"]]
    twins.accept(name)
    assert [*twins.translation_of(name)] == ["first", "two"]


def test_a_page_is_in_the_chinese_site_when_it_was_released_even_if_parts_are_missing(page: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = page("One", "Two")
    twins.new(name)
    for released in ([], [name], [name, "book/gone"]):
        monkeypatch.setitem(twins.WORDS, "pages", {"released": released})
        twins.pages.cache_clear()
        twins.twins.cache_clear()
        assert twins.twins() == (twins.INDEX, *released[:1])


def test_a_term_that_is_not_there_is_a_hint_which_fails_nothing(page: Callable[..., str], capsys: pytest.CaptureFixture) -> None:
    part = Part("", "Each layer processes images.")
    assert twins.faults(part, "每一层都处理图像。") == [] and twins.hints(part, "每一层都处理图像。") == ["process: not called 进程"]
    assert twins.hints(PARTS["aaaa"], GOOD) == [] and twins.hints(PARTS["aaaa"], GOOD.replace("设备", "装置")) == ["device: not called 设备"]
    twins.store(twins.ROOT / "book" / "page.md", "# Processes it\n")
    twins.new("book/page")
    assert twins.status("book/page")
    translate("book/page", "processes-it", "# 处理它")
    assert not twins.status("book/page") and "hint: processes-it: process: not called 进程" in capsys.readouterr().out


@pytest.mark.parametrize("old, new, what", [
    ("1,024", "1,042", "numbers"), ("#b", "#c", "links"), ("`f`", "`g`", "code"), ("$x$", "$y$", "formulas"), ("## ", "### ", "headings"),
    ("- （", "（", "items"), ("两行", "(sec-x)=\n两行", "labels"), ("两行", "|两行", "tables"), ("两行", ":::{note}\n:::\n两行", "directives"),
    ("两行", "```python\n```\n两行", "fences"), ("数，", "偏差，", "偏差"), ("，见", ",见", "half-width"),
    ("有1,024", "有 1,024", "space"), ("两行", "\"两行\"", "straight"), ("**设备**", "**设备（device）**", "bold"), ("**设备**", "设备", "bold"),
    ("ex-b", "ex-c", "labels"), ("dropdown", "x", "labels"), ("{solution} ex-a", "{solution} 甲", "directives"), ("python\n", "python\ny = 5\n", "fences"),
])
def test_a_mistake_in_a_translation_is_found(old: str, new: str, what: str) -> None:
    part, text = (PARTS["aaaa"], GOOD) if old in GOOD else (PARTS["bbbb"], SOLUTION)
    assert any(what in fault for fault in twins.faults(part, text.replace(old, new)))


@pytest.mark.parametrize("english, chinese, right", [
    ("11.2 million", "约1120万个", True), ("11.2 million", "约112万个", False), ("3 billion", "30亿", True), ("60,000", "6万", False),
    ("On 22 November 2026", "2026年11月22日", True), ("On 22 November 2026", "2026年十一月22日", True), ("On 22 November 2026", "2026年12月22日", False)])
def test_large_numbers_and_months_may_be_written_as_in_chinese(english: str, chinese: str, right: bool) -> None:
    assert (twins.faults(Part("", english), chinese) == []) == right


@pytest.mark.parametrize("spoil", [
    lambda cells: cells[0].update(source="2"), lambda cells: cells[0].outputs[0].update(text="2"), lambda cells: cells.pop(),
    lambda cells: cells[0].update(id="b"), lambda cells: cells[0].metadata.update(tags=["x"]), lambda cells: cells.reverse(),
    lambda cells: cells[1].update(source=cells[1].source.replace("x = 3", "x = 4"))])
def test_a_notebook_with_other_code_outputs_tags_ids_or_cells_is_found(spoil) -> None:
    code = nbformat.v4.new_code_cell("1", id="a", outputs=[nbformat.v4.new_output("stream", text="1")])
    spoiled = nbformat.v4.new_notebook(cells=[code, copy.deepcopy(SMALL.cells[1])])
    right = copy.deepcopy(spoiled)
    spoil(spoiled.cells)
    assert bare(spoiled) != bare(right)


def test_a_heading_that_is_there_twice_is_found() -> None:
    assert twice(SMALL, BOTH) == []
    assert twice(SMALL, {**BOTH, "bbbb": (PARTS["bbbb"].hash, SOLUTION.replace("## 完", "## 2. 切分：`f`"))}) == ["2. 切分：f"]


def test_numbers_of_an_alt_text_are_those_of_the_run() -> None:
    one, other = Part("alt", "3 rows: 0.62 to 0.69."), Part("alt", "3 rows: 0.60 to 0.70.")
    assert one.hash == other.hash and twins.filled(other, one.hash, "{}行：从{}到{}。") == "3行：从0.60到0.70。"
    assert twins.faults(one, "{}行：从{}。") == ["2 slots for 3 numbers"]


def test_links_to_english_pages_are_marked_by_hand_only_in_the_readme() -> None:
    for page in twins.pages():
        text = twins.ENGLISH.sub("", twins.target_of(page).read_text("utf8"))
        assert (unmarked(text) if page == twins.README else re.findall(f".*{twins.IN_ENGLISH}.*", text)) == [], page


def unmarked(text: str) -> list[str]:
    """The links to pages, all of them in English, after which neither the sentence nor the cell of a table says so."""
    return [found[1] for found in re.finditer(r"(?<=\]\()(?!README)([^):]*\.(?:ipynb|md)(?:#[^)]*)?)\)([^。|\n]*)", text) if "英文）" not in found[2]]


def test_a_link_without_a_mark_is_found() -> None:
    assert unmarked("[一](a.ipynb)、[二](b.md#c)（均为英文）。[三](README.md)[四](x.py) | [五](https://x.org/a.md)") == []
    assert unmarked("[一](a.ipynb)。（英文） | [二](b.md#c) | （英文）") == ["a.ipynb", "b.md#c"]


# The two sites


def test_links_of_an_english_part_lead_to_the_english_site_however_they_are_written() -> None:
    def address(page: str, led: str) -> str | None:
        return None if led == twins.INDEX else f"../../{led}.html"

    text = "[](14_batchnorm.ipynb) [a](../book/index.md) [b](../book/measured.md#c) [d](<../book/measured.md>) [e](../book/measured.md \"f\")"
    assert twins.pointed(text, "notebooks/x", address, "{.n}") == (
        f"[{twins.title_of('notebooks/14_batchnorm')}](../../notebooks/14_batchnorm.html){{.n}} [a](../book/index.md) "
        "[b](../../book/measured.html#c){.n} [d](../../book/measured.html){.n} [e](../../book/measured.html){.n}")
    cards = ":::{grid-item-card} 一\n:link: ../notebooks/01_why_gradients_split\n:link-type: doc\n:::\n:::{grid-item-card} 二\n:link: it_hangs\n:link-type: doc\n:::"
    assert twins.pointed(cards, twins.INDEX, lambda page, led: f"{led}.html", "{.n}") == (
        ":::{grid-item-card} 一\n:link: notebooks/01_why_gradients_split.html\n:link-type: url\n:::\n"
        ":::{grid-item-card} 二（英文）\n:link: book/it_hangs.html\n:link-type: url\n:::")
    links = [({"refid": "../book/setup.md#c"}, "../../book/setup.html#c"), ({"refuri": "../notebooks/a.html#l", "reftitle": "t"}, "../../notebooks/a.html#l"),
             ({"refuri": "../../book/api.html", "reftitle": "t"}, "../../book/api.html"), ({"refuri": "../book/a.html", "reftitle": "t", "internal": True}, "../book/a.html")]
    tree = docutils.nodes.Element("", *(docutils.nodes.reference("", "x", **given) for given, _ in links))
    twins_ext.lead_out(SimpleNamespace(), tree, "notebooks/x")
    assert [(link["refuri"], "refid" in link) for link in tree.children] == [(right, False) for _, right in links]


def test_a_new_caption_of_the_contents_stays_english_until_it_is_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins_site, "ROOT", tmp_path)
    (tmp_path / "_toc.yml").write_text("{root: book/index, parts: [{caption: Appendix, chapters: [{file: a}]}, {caption: New, chapters: [{file: b}]}]}", "utf8")
    assert [part["caption"] for part in twins_site.contents(("a", "b"))["parts"]] == ["附录", "New"]
    assert [part["caption"] for part in twins_site.contents(("a",))["parts"]] == ["附录"]


def faults_of(english: str, chinese: str, address: str, back: str) -> set[str]:
    """What is wrong with a page and its twin, given the addresses under which they know each other."""
    found = set()
    for text, there, language in ((english, address, "zh-CN"), (chinese, back, "en")):
        button = re.search(r'<a class="btn btn-sm btn-language".*?>', text, re.S)
        found |= {"button"} if not button or f'href="{there}"' not in button[0] or "target" in button[0] else set()
        found |= {"hreflang"} if f'<link rel="alternate" hreflang="{language}" href="{there}">' not in text else set()
    ids = [sorted(re.findall(r' id="(?!zh-)([^"]+)"', text)) for text in (english, chinese)]
    years = [re.findall(r"© Copyright (\d+)", text) for text in (english, chinese)]
    words = html.unescape(re.sub(r"<(script|style|pre|code).*?</\1>|<[^>]*>", "", chinese, flags=re.S))
    around = re.sub("<article.*?</article>", "", chinese, flags=re.S)  # which may be English in part
    found |= {f"{word} code" for word in ("Show", "Hide") if f"{word} code" in chinese}
    return found | ({"year"} if years[0] != years[1] else set()) | ({"ids"} if ids[0] != ids[1] else set()) | ({"lang"} if '<html lang="zh-CN"' not in chinese else set()) | (
        {"asterisks"} if "**" in words else set()) | {
        word for word in ("Back to top", "Color mode", "Search") if re.search(f'[">]{word}[<"]', around)}


def test_a_mistake_in_a_pair_of_pages_is_found() -> None:
    link = '<link rel="alternate" hreflang="{0}" href="{1}"><a class="btn btn-sm btn-language" hreflang="{0}" href="{1}">'
    english, chinese = '<html lang="en"><p id="a">© Copyright 2026' + link.format("zh-CN", "zh/a"), '<html lang="zh-CN"><p id="a">© Copyright 2026<b id="zh-b">' + link.format("en", "../a")
    assert faults_of(english, chinese, "zh/a", "../a") == set()
    for old, new, what in [('<a class="btn', '<a target="_blank" class="btn', "button"), ("btn-language", "x", "button"), ("../a", "a", "hreflang"),
                           ('hreflang="en"', 'hreflang="de"', "hreflang"), ('id="a"', 'id="id1"', "ids"), ('"zh-CN"', '"zh"', "lang"),
                           ("2026", "1970", "year"), ("<p", "<span>Show code cell source</span><p", "Show code"), ("<p", "<span>Hide code cell source</span><p", "Hide code"),
                           ("<p", "**预测：**<p", "asterisks"), ("<p", "<a>Back to top</a><p", "Back to top"), ("<p", '<a title="Color mode"><p', "Color mode")]:
        assert what in faults_of(english, chinese.replace(old, new, 1), "zh/a", "../a"), what


@pytest.mark.slow
def test_each_page_and_its_twin_lead_to_each_other_and_other_pages_lead_nowhere(site: Path, pages: list[Path]) -> None:
    for page in twins.twins():
        english, chinese = ((site / folder / f"{page}.html").read_text("utf8") for folder in ("", "zh"))
        up = "../" * page.count("/")
        assert faults_of(english, chinese, f"{up}zh/{page}.html", f"{up}../{page}.html") == set(), page
        if page.startswith("notebooks/"):
            compile((site / "zh" / "_downloads" / f"{Path(page).name}.py").read_text("utf8"), page, "exec")
    alone = [page for page in pages if page.relative_to(site).with_suffix("").as_posix() not in twins.twins()]
    assert alone and not any("btn-language" in page.read_text("utf8") for page in alone)


def test_a_preview_needs_the_english_site(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="make book"):
        twins_site.preview("book/setup", tmp_path)


@pytest.mark.slow
@pytest.mark.weekly  # as it builds the Chinese site once more
def test_a_preview_shows_a_page_that_is_not_translated_yet(root: Path, site: Path, notebooks: list[Path], tmp_path: Path) -> None:
    page = next(page for path in notebooks if (page := path.relative_to(root).with_suffix("").as_posix()) not in twins.twins())
    html = shutil.copytree(site, tmp_path / "html")
    shown = twins_site.preview(page, html)
    assert shown == html / "zh" / f"{page}.html" and twins.WORDS["notes"]["english"] in shown.read_text("utf8")
    assert f'href="../{page}.html"' in (html / "zh" / "book" / "index.html").read_text("utf8"), "other pages lead there"
    assert not (site / "zh" / f"{page}.html").exists()


@pytest.mark.slow
@pytest.mark.weekly  # its words are those of sections that a change in English turns into English ones
def test_the_search_finds_chinese_words_inside_a_text(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    for query, where in (("小批量的梯度", "小批量的梯度"), ("副本", "副本"), ("切分", "split_batch")):
        page.goto(f"{(site / 'zh' / 'search.html').as_uri()}?q={query}")
        assert re.search(rf"[{twins.HAN}]", page.locator("#search-results li mark").first.inner_text())
        found = page.locator("#search-results li").all()[:3]
        assert any(where in one.locator("a").get_attribute("href") + one.inner_text() for one in found), (
            f"First bring the Chinese pages up to date: {GUIDE}")
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("query, page_of, anchor", [
    ("显存不足", "../book/it_hangs.html", "cuda-out-of-memory-on-gpu-0-only"), ("单机多卡", "notebooks/02_data_parallelism_from_scratch.html", ""),
    ("同步BN", "../notebooks/14_batchnorm.html", ""), ("轮数", "book/index.html", "zh-outputs"), ("测试精度", "notebooks/06_resnet18_on_two_devices.html", "evaluation"),
    ("卡死", "../book/it_hangs.html", ""), ("DP和DDP的区别", "notebooks/05_concise_data_parallelism.html", "which-dataparallel"), ("副本", "book/notation.html", "term-replica"),
    ("桶", "book/notation.html", "term-bucket"), ("断点续训", "../notebooks/13_training_that_survives.html", ""), ("镜像", "book/setup.html", "zh-mirrors"),
    ("梯度求和", "notebooks/02_data_parallelism_from_scratch.html", "add-up-allreduce"), ("张量并行", "../notebooks/22_three_ways.html", "tensor")])
def test_the_first_thing_found_in_chinese_answers_the_question_and_says_if_it_is_in_english(browser: Browser, site: Path, query: str, page_of: str, anchor: str) -> None:
    page = browser.new_page()
    page.goto(f"{(site / 'zh' / 'search.html').as_uri()}?q={query}")
    first = page.locator("#search-results li a").first
    address, title = str(first.get_attribute("href")), first.inner_text()
    page.close()
    assert address.startswith(f"{page_of}#{anchor}"), f"Give {query!r} a page or a label in [search] of zh/terms.toml: {GUIDE}"
    assert (twins.IN_ENGLISH in title) == address.startswith("../")


@pytest.mark.slow
def test_every_answer_of_the_search_in_chinese_has_a_way_on_and_every_place_exists(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    for query in ("魑魅", "副本"):
        page.goto(f"{(site / 'zh' / 'search.html').as_uri()}?q={query}")
        ways = [str(link.get_attribute("href")) for link in page.locator("#search-results > p a").all()]
        assert len(ways) == 3 and all((site / "zh" / re.split("[?#]", way)[0]).is_file() for way in ways)
    places = page.evaluate("SEARCH_TEXTS.flatMap(([file, , parts]) => parts.map(([anchor, , text]) => [file, anchor, text]))")
    page.close()
    texts = {file: (site / "zh" / file).read_text("utf8") for file, _, _ in places}
    assert [place for place in places if f'id="{place[1]}"' not in texts[place[0]]] == []
    assert {file.startswith("../") for file, _, text in places if text} == {False}, "of an English page, only titles and keywords"
