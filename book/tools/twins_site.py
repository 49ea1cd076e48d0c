"""Build the Chinese site into the folder `zh` of the English one: `python book/tools/twins_site.py [FOLDER]`.

`make book` does so, too, with each English site. Its sources, made by `twins.py`, are in `_build/zh`.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from sphinx.errors import ExtensionError

from search_ext import FOUND
from twins import IN_ENGLISH, ROOT, WORDS, store, twins, write_sources


def config(html: Path, shown: tuple[str, ...]) -> dict:
    """_config.yml of the Chinese site, which is in the folder `zh` of the English one at `html`."""
    made = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))
    sphinx = made["sphinx"]
    for name in ("html_static_path", "templates_path"):
        sphinx["config"][name] = [str(ROOT / path) for path in sphinx["config"][name]]
    sphinx["local_extensions"] = dict.fromkeys(sphinx["local_extensions"], str(ROOT / "book" / "tools"))
    sphinx["extra_extensions"].append("sphinx.ext.intersphinx")  # finds the API and the glossary in the English site
    sphinx["config"] |= WORDS["sphinx"] | {"intersphinx_mapping": {"english": ["..", str(html / "objects.inv")]}}
    sphinx["config"]["html_theme_options"] |= WORDS["theme"]
    sphinx["config"]["html_context"]["twins"] = list(shown)
    return made | WORDS["book"]


def contents(shown: tuple[str, ...]) -> dict:
    """_toc.yml of the Chinese site: what is there."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    for part in toc["parts"]:
        if "caption" in part:  # a project has none
            part["caption"] = WORDS["captions"].get(part["caption"], part["caption"])
        part["chapters"] = [chapter for chapter in part["chapters"] if chapter["file"] in shown]
    return toc | {"parts": [part for part in toc["parts"] if part["chapters"]]}


def build(html: Path | str = ROOT / "_build" / "html", *unfinished: str) -> None:
    """Build the Chinese site into the folder `zh` of the English one, with which it shares the files in `_static`."""
    html, shown = Path(html).resolve(), (*twins(), *unfinished)
    source = html.parent / ("preview" if unfinished else "zh")
    write_sources(source, shown)
    shutil.copytree(ROOT / "book" / "_static", source / "book" / "_static", dirs_exist_ok=True)
    for name, made in (("_config.yml", config(html, shown)), ("_toc.yml", contents(shown))):
        store(source / name, yaml.safe_dump(made, allow_unicode=True, sort_keys=False))
    clean = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}  # set for the figures
    done = subprocess.run([Path(sys.executable).with_name("jupyter-book"), "build", source, "-W", "-n", "--keep-going",
                           "-q"], capture_output=True, text=True, env=clean)
    if done.returncode:
        raise ExtensionError(f"the Chinese site: {done.stderr}")
    shutil.rmtree(html / "zh", ignore_errors=True)
    shutil.copytree(source / "_build" / "html", html / "zh")
    add_english(html, shown)
    share(html, html / "zh")


def preview(page: str, html: Path = ROOT / "_build" / "html") -> Path:
    """Build the site with a page that may be unfinished; where the page is. The next `make book` takes it out."""
    if not (html / "objects.inv").exists():
        sys.exit("The Chinese site is built into the English one, which is not there yet. First run: make book")
    build(html, *({page} - {*twins()}))
    return html / "zh" / f"{page}.html"


def add_english(html: Path, shown: tuple[str, ...]) -> None:
    """Let the search in Chinese find pages that are only in English, by their titles and keywords."""
    files = [html / folder / "_static" / "search_texts.js" for folder in ("", "zh")]
    english, chinese = (json.loads(file.read_text("utf8").removeprefix(FOUND[0]).removesuffix(FOUND[1]))
                        for file in files)
    for address, title, parts in english:
        if address.removesuffix(".html") not in shown:
            names = [[anchor, title + IN_ENGLISH, "", keywords] for anchor, title, _, keywords in parts]
            chinese.append([f"../{address}", title + IN_ENGLISH, names])
    files[1].write_text(json.dumps(chinese, ensure_ascii=False, separators=(",", ":")).join(FOUND), "utf8")


def share(first: Path, second: Path) -> None:
    """Delete from the second site what `_static` of the first, one folder up, has too, and let its pages load that."""
    files = [path.relative_to(second).as_posix() for path in (second / "_static").rglob("*") if path.is_file()]
    same = {file for file in files if (first / file).exists() and filecmp.cmp(first / file, second / file, False)}
    for file in same:
        (second / file).unlink()
    for page in second.rglob("*.html"):
        page.write_text(re.sub(r'(?<=")(?:\.\./)*(_static/[^"?]+)', lambda found: "../" * (found[1] in same) + found[0],
                               page.read_text("utf8")), "utf8")


if __name__ == "__main__":
    build(*sys.argv[1:])
