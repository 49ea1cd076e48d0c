"""Who may use the book, who checks it, and what its owner switches on: the files that say so agree."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from jupyter_book.config import yaml_to_sphinx
from sphinx.errors import ConfigError

from book_ext import REPOSITORY_BUTTONS, follow_repository

DEED = "https://creativecommons.org/licenses/by-sa/4.0/"
ADDRESS = "https://github.com/example-owner/example-book"


def read(root: Path, name: str) -> str:
    return (root / name).read_text("utf8")


def workflows(root: Path) -> dict[str, dict]:
    return {file.stem: yaml.safe_load(file.read_text("utf8")) for file in (root / ".github" / "workflows").glob("*.yml")}


def commands(job: dict) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def readme_commands(root: Path) -> list[str]:
    """The two commands that the README opens with."""
    block = re.search(r"^```bash\n(.*?)^```", read(root, "README.md"), re.M | re.S)[1]
    return [line.split("#")[0].strip() for line in block.splitlines()]


def filled_in(root: Path, url: str = ADDRESS) -> dict:
    config = yaml.safe_load(read(root, "_config.yml"))
    config["repository"]["url"] = url
    return config


def theme_options(config: dict) -> dict:
    """What the theme gets to see."""
    options = yaml_to_sphinx(config)[0]["html_theme_options"]
    follow_repository(None, SimpleNamespace(html_theme_options=options))
    return options


# the licences


def test_the_licence_says_what_it_applies_to_and_is_there_in_full(root: Path) -> None:
    opening, mit, *creative_commons = re.split(r"^={71}$", read(root, "LICENSE"), flags=re.M)
    assert "Code: the MIT License" in opening and "Text and figures: the Creative Commons" in opening and DEED in opening
    assert "Permission is hereby granted, free of charge" in mit and "shall be included in all" in mit
    assert "WITHOUT WARRANTY OF ANY KIND" in mit
    assert creative_commons[0].strip() == "Attribution-ShareAlike 4.0 International"
    legal_code = "".join(creative_commons)
    assert re.findall(r"^Section (\d) -- ", legal_code, re.M) == list("12345678")


CLAUSES = {  # word for word: the two licences are easily exchanged
    "README.md": "The code is under the MIT licence, the text and the figures are under CC BY-SA 4.0.\n",
    "CONTRIBUTING.md": "the MIT licence for code and CC BY-SA 4.0 for text and figures (",
    "book/authors.md": "MIT for the code and CC BY-SA 4.0 for text and figures, as in",
}


@pytest.mark.parametrize("place", ["README.md", "CONTRIBUTING.md", "CITATION.cff", "_config.yml", "pyproject.toml",
                                   "book/authors.md"])
def test_every_place_that_names_the_licences_names_the_same(place: str, root: Path) -> None:
    text = read(root, place)
    if place == "pyproject.toml":  # the package is code
        project = tomllib.loads(text)["project"]
        assert project["license"] == "MIT" and project["license-files"] == ["LICENSE"]
    elif place == "CITATION.cff":
        assert yaml.safe_load(text)["license"] == ["MIT", "CC-BY-SA-4.0"]
    elif place == "_config.yml":
        footer = yaml.safe_load(text)["html"]["extra_footer"]
        assert "Code: MIT" in footer and "Text and figures:" in footer and f'"{DEED}">CC BY-SA 4.0<' in footer
    else:
        assert CLAUSES[place] in text and "LICENSE" in text


def test_one_name_holds_the_copyright(root: Path) -> None:
    config, citation = yaml.safe_load(read(root, "_config.yml")), yaml.safe_load(read(root, "CITATION.cff"))
    holders = set(re.findall(r"^Copyright \(c\) (.*)$", read(root, "LICENSE"), re.M))
    assert holders == {f"{config['copyright']} {config['author']}"}
    assert [author["name"] for author in citation["authors"]] == [config["author"]]


@pytest.mark.slow
def test_every_page_ends_with_the_licences(pages: list[Path]) -> None:
    for page in pages:
        footer = page.read_text("utf8").rpartition('<div class="extra_footer">')[2]
        assert "Code: MIT" in footer and DEED in footer, page.name


def test_the_citation_names_this_book_and_invents_nothing(root: Path) -> None:
    config, citation = yaml.safe_load(read(root, "_config.yml")), yaml.safe_load(read(root, "CITATION.cff"))
    assert citation["title"] == config["title"]
    assert citation["version"] == tomllib.loads(read(root, "pyproject.toml"))["project"]["version"]
    assert not {"doi", "identifiers", "url", "date-released"} & set(citation)
    assert citation.get("repository-code", config["repository"]["url"]) == config["repository"]["url"]


# the workflows


def test_linux_runs_the_two_commands_of_the_readme_on_every_python_that_the_book_allows(root: Path) -> None:
    job = workflows(root)["tests"]["jobs"]["linux"]
    assert [command for command in commands(job) if command.startswith("make ")] == readme_commands(root)
    assert len(readme_commands(root)) == 2
    pythons = job["strategy"]["matrix"]["python"]
    assert f"Python {pythons[0]} to {pythons[-1]}" in read(root, "README.md")
    assert tomllib.loads(read(root, "pyproject.toml"))["project"]["requires-python"] == ">=3.11,<3.15"
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]


def test_macos_and_windows_run_the_fast_tests(root: Path) -> None:
    job = workflows(root)["tests"]["jobs"]["elsewhere"]
    assert {row["os"] for row in job["strategy"]["matrix"]["include"]} == {"macos-latest", "windows-latest"}
    assert "python -m pip install -r requirements.txt" in commands(job)
    assert commands(job)[-1].split()[0] == "pytest" and "nbval" not in commands(job)[-1]


def test_the_weekly_run_unpins_the_packages_but_not_those_that_are_held_back_for_a_reason(root: Path) -> None:
    tests = workflows(root)["tests"]
    newest = [line for name in ("requirements.txt", "pyproject.toml") for line in subprocess.run(
        ["perl", "-pe", tests["env"]["UNPIN"], root / name], capture_output=True, text=True, check=True).stdout.splitlines()]
    assert {"torch", "torchvision", "matplotlib", '    "pytest",'} <= set(newest)
    pinned = {found[1] for line in newest if (found := re.match(r' *"?([\w-]+)==', line))}
    assert pinned == {"d2l", "jupyter-book", "sphinx-book-theme", "pydata-sphinx-theme", "sphinx-exercise",
                      "sphinx-mathjax-offline", "jupyterlab", "jupyterlab-myst"}
    tomllib.loads("\n".join(newest[newest.index("[build-system]"):]))
    assert "schedule" in tests[True]  # YAML reads `on` as a truth value
    for job in tests["jobs"].values():
        unpinned = [i for i, step in enumerate(job["steps"]) if "UNPIN" in step.get("run", "")]
        installed = [i for i, step in enumerate(job["steps"]) if re.search("make book|pip install", step.get("run", ""))]
        assert [job["steps"][i]["if"] for i in unpinned] == ["github.event_name == 'schedule'"] and unpinned < installed


def test_the_other_weekly_run_only_calls_scripts_that_are_there(root: Path) -> None:
    job = workflows(root)["weekly"]["jobs"]["try"]
    assert commands(job) == ["python book/tools/${{ matrix.script }}.py"]
    assert [name for name in job["strategy"]["matrix"]["script"] if not (root / f"book/tools/{name}.py").exists()] == []


def test_no_workflow_may_do_more_than_it_needs_or_run_for_hours(root: Path) -> None:
    assert set(workflows(root)) == {"tests", "publish", "weekly"}
    for name, workflow in workflows(root).items():
        assert workflow["permissions"] in ({}, {"contents": "read"})
        assert workflow["concurrency"]["group"]
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"] <= 90
            assert name == "publish" or "permissions" not in job
            for step in job["steps"]:
                assert re.fullmatch(r"actions/[\w-]+@(v\d+|[0-9a-f]{40})", step.get("uses", "actions/none@v1"))
                assert "checkout" not in step.get("uses", "") or step["with"]["persist-credentials"] is False


def test_the_site_is_published_only_after_the_owner_has_switched_it_on(root: Path) -> None:
    jobs = workflows(root)["publish"]["jobs"]
    assert jobs["build"]["if"] == "vars.PUBLISH_SITE == 'true'"
    assert jobs["deploy"]["needs"] == "build" and "if" not in jobs["deploy"]
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert commands(jobs["build"]) == readme_commands(root)[:1]
    assert "`PUBLISH_SITE` to `true`" in read(root, "book/authors.md")


# the machines that others lend


def test_the_dev_container_builds_the_book_and_has_what_it_needs(root: Path) -> None:
    container = json.loads(read(root, ".devcontainer/devcontainer.json"))
    image = read(root, f".devcontainer/{container['build']['dockerfile']}")
    assert container["postCreateCommand"] == readme_commands(root)[0] == "make book TORCH=cpu"
    assert container["forwardPorts"] == [8888]  # JupyterLab's
    assert re.search(r"^FROM python:3\.1[1234]$", image, re.M)
    assert re.search(r"apt-get install .*\bchromium\b", image)
    assert f"USER {container['remoteUser']}" in image.splitlines()  # not root: JupyterLab would not start


def test_binder_installs_the_requirements_on_a_python_that_the_book_allows(root: Path) -> None:
    environment = yaml.safe_load(read(root, ".binder/environment.yml"))["dependencies"]
    assert [line for line in environment if re.fullmatch(r"python=3\.1[1234]", line)] and "uv" in environment
    assert "uv pip install" in read(root, ".binder/postBuild") and "-r requirements.txt" in read(root, ".binder/postBuild")


# the buttons that need the repository's address


def test_without_an_address_there_are_no_buttons(root: Path) -> None:
    options = theme_options(filled_in(root, ""))
    assert not any(options.get(button) for button in REPOSITORY_BUTTONS)
    assert options["launch_buttons"] == {}


def test_the_address_alone_turns_on_every_button(root: Path) -> None:
    options = theme_options(filled_in(root))
    assert all(options[button] is True for button in REPOSITORY_BUTTONS)
    assert options["launch_buttons"]["binderhub_url"] and options["launch_buttons"]["colab_url"]


def test_colab_is_left_out_where_it_cannot_read_the_repository(root: Path) -> None:
    launch = theme_options(filled_in(root, "https://gitlab.com/example-owner/example-book"))["launch_buttons"]
    assert launch["binderhub_url"] and not launch["colab_url"]


@pytest.mark.parametrize("url", ["example-owner/example-book", "https://github.com/example-owner", f"{ADDRESS}.git",
                                 "https://github.com/<owner>/<name>", f"{ADDRESS}/", "git@github.com:owner/name"])
def test_an_address_that_would_make_broken_links_stops_the_build(url: str, root: Path) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(url)}.*not like https://github.com/OWNER/NAME"):
        theme_options(filled_in(root, url))


def test_an_address_without_a_branch_stops_the_build(root: Path) -> None:
    config = filled_in(root)
    config["repository"]["branch"] = ""
    with pytest.raises(ConfigError, match="repository.branch is empty"):
        theme_options(config)


@pytest.mark.parametrize("button", REPOSITORY_BUTTONS)
def test_a_button_without_an_address_stops_the_build(button: str, root: Path) -> None:
    config = filled_in(root, "")
    config["html"][button] = True
    with pytest.raises(ValueError, match="you must specify the repository URL"):  # jupyter-book's own words
        theme_options(config)
    options = yaml_to_sphinx(filled_in(root, ""))[0]["html_theme_options"] | {button: True}
    with pytest.raises(ConfigError, match=f"{button}, but its repository.url is empty"):
        follow_repository(None, SimpleNamespace(html_theme_options=options))


@pytest.mark.slow
def test_with_an_address_the_buttons_lead_to_the_page_and_to_the_notebook(root: Path, tmp_path: Path) -> None:
    for folder in ("book/tools", "book/_static"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    config = filled_in(root)
    config["launch_buttons"]["jupyterhub_url"] = "https://hub.example.org"
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config), "utf8")
    (tmp_path / "_toc.yml").write_text("{format: jb-book, root: book/index, chapters: [{file: notebooks/01_a}]}", "utf8")
    (tmp_path / "book" / "index.md").write_text("# A page\n", "utf8")
    (tmp_path / "notebooks").mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A chapter")],
                                        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    nbformat.write(notebook, tmp_path / "notebooks" / "01_a.ipynb")
    build = subprocess.run([Path(sys.executable).with_name("jupyter-book"), "build", tmp_path, "-W", "-n", "-q"],
                           capture_output=True, text=True)
    assert build.returncode == 0, build.stderr + build.stdout

    page, chapter = ((tmp_path / "_build" / "html" / name).read_text("utf8").replace("&amp;", "&")
                     for name in ("book/index.html", "notebooks/01_a.html"))
    book = "example-owner/example-book"
    for text, file in ((page, "book/index.md"), (chapter, "notebooks/01_a.ipynb")):
        assert f'href="{ADDRESS}"' in text
        assert f'href="{ADDRESS}/edit/main/{file}"' in text
        assert f'href="{ADDRESS}/issues/new?' in text
    for link in (f"https://mybinder.org/v2/gh/{book}/main?urlpath=lab/tree/notebooks/01_a.ipynb",
                 f"https://colab.research.google.com/github/{book}/blob/main/notebooks/01_a.ipynb",
                 "https://hub.example.org/hub/user-redirect/git-pull?"
                 "repo=https%3A//github.com/example-owner/example-book"
                 "&urlpath=lab/tree/example-book/notebooks/01_a.ipynb&branch=main"):
        assert f'href="{link}"' in chapter and link not in page
    assert f'%pip install "d2lpar[pages] @ git+{ADDRESS}"' in chapter.replace("&quot;", '"')
