"""Who may use the book, who checks it, and what its owner switches on: the files that say so agree."""

from __future__ import annotations

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
LICENCES = "Change the licence, its holder or the title in all files that name it (book/authors.md, Publish the book)"
PYTHONS = "Change the versions of Python in all files that name them (book/authors.md, Where things are)"
WORKFLOWS = "(book/authors.md, The tools)"


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


def test_the_licence_says_what_it_applies_to(root: Path) -> None:
    opening, mit, images, creative_commons, *_ = re.split(r"^={71}$", read(root, "LICENSE"), flags=re.M)
    assert "Code: the MIT License" in opening and "Text and figures: the Creative Commons" in opening and DEED in opening
    assert "Permission is hereby granted, free of charge" in mit and "shall be included in all" in mit
    assert "WITHOUT WARRANTY OF ANY KIND" in mit
    assert "Copyright (c) 2017 Zalando SE" in images and images.endswith(mit[mit.index("Permission is"):])
    assert creative_commons.strip() == "Attribution-ShareAlike 4.0 International"


def test_the_citation_names_this_book_its_licences_and_who_holds_the_copyright_and_invents_nothing(root: Path) -> None:
    config, citation = yaml.safe_load(read(root, "_config.yml")), yaml.safe_load(read(root, "CITATION.cff"))
    project = tomllib.loads(read(root, "pyproject.toml"))["project"]
    assert (project["license"], project["license-files"]) == ("MIT", ["LICENSE"]), LICENCES  # the package is code
    assert citation["license"] == ["MIT", "CC-BY-SA-4.0"], LICENCES
    assert f'"{DEED}">CC BY-SA 4.0<' in config["html"]["extra_footer"], LICENCES
    assert f"Copyright (c) {config['copyright']} {config['author']}\n" in read(root, "LICENSE"), LICENCES
    assert [author["name"] for author in citation["authors"]] == [config["author"]], LICENCES
    assert citation["title"] == config["title"], LICENCES
    assert citation["version"] == project["version"], "Give CITATION.cff (left) and pyproject.toml (right) the same version (book/authors.md, Release)"
    assert {"doi", "identifiers", "url", "date-released"} & set(citation) == set(), "Take these out of CITATION.cff: the book has none (book/authors.md, Release)"
    assert citation.get("repository-code", config["repository"]["url"]) == config["repository"]["url"], (
        "Give CITATION.cff (left) the address in _config.yml (right) (book/authors.md, Publish the book)")


# the workflows


def test_linux_runs_the_two_commands_of_the_readme_on_every_python_that_the_book_allows(root: Path) -> None:
    job = workflows(root)["tests"]["jobs"]["linux"]
    assert [command for command in commands(job) if command.startswith("make ")] == readme_commands(root), (
        f"Run in tests.yml (left) the commands with which README.md begins (right) {WORKFLOWS}")
    assert len(readme_commands(root)) == 2
    pythons = job["strategy"]["matrix"]["python"]
    assert tomllib.loads(read(root, "pyproject.toml"))["project"]["requires-python"] == ">=3.11,<3.15", PYTHONS
    assert pythons == ["3.11", "3.12", "3.13", "3.14"], PYTHONS
    lent = [*re.findall(r"^FROM python:(\d[.\d]*)", read(root, ".devcontainer/Dockerfile")),
            *re.findall(r"python=(\d[.\d]*)", read(root, ".binder/environment.yml"))]
    assert len(lent) == 2 and set(lent) - set(pythons) == set(), PYTHONS


def test_a_quick_job_comes_before_the_long_ones(root: Path) -> None:
    jobs = workflows(root)["tests"]["jobs"]
    assert [(name, job.get("needs")) for name, job in jobs.items()] == [("quick", None), ("linux", "quick"), ("elsewhere", "quick")], (
        f"Put `quick` first in tests.yml, make every other job need it, and name a new job in this test {WORKFLOWS}")
    assert commands(jobs["quick"])[-3:] == ["ruff check", "pyrefly check", "pytest"], f"End the job `quick` with these commands {WORKFLOWS}"
    assert [command for command in commands(workflows(root)["weekly"]["jobs"]["slow"]) if "make" in command] == [
        "make book", "make slow", "make gate"], f"Let weekly.yml run these commands {WORKFLOWS}"
    tried = workflows(root)["weekly"]["jobs"]["try"]["strategy"]["matrix"]["script"]
    assert sorted(tried) == sorted(file.stem for file in (root / "book" / "tools").glob("try_*.py")), (
        f"Name each try_*.py of book/tools/ in weekly.yml, under `script` {WORKFLOWS}")


def test_the_weekly_run_unpins_the_packages_but_not_those_that_are_held_back_for_a_reason(root: Path) -> None:
    tests = workflows(root)["tests"]
    newest = [line for name in ("requirements.txt", "pyproject.toml") for line in subprocess.run(
        ["perl", "-pe", tests["env"]["UNPIN"], root / name], capture_output=True, text=True, check=True).stdout.splitlines()]
    assert {"torch", "torchvision", "matplotlib", '    "pytest",'} <= set(newest)
    pinned = {found[1] for line in newest if (found := re.match(r' *"?([\w-]+)==', line))}
    assert pinned == {"d2l", "jupyter-book", "sphinx-book-theme", "pydata-sphinx-theme", "sphinx-exercise",
                      "sphinx-mathjax-offline", "jupyterlab", "jupyterlab-myst"}, (
        "Make UNPIN in tests.yml unpin the package, or name it in this test, with the reason where it is pinned (book/authors.md, Where things are)")
    tomllib.loads("\n".join(newest[newest.index("[build-system]"):]))
    assert "schedule" in tests[True]  # YAML reads `on` as a truth value
    for job in tests["jobs"].values():
        unpinned = [i for i, step in enumerate(job["steps"]) if "UNPIN" in step.get("run", "")]
        installed = [i for i, step in enumerate(job["steps"]) if re.search("make book|install.py", step.get("run", ""))]
        assert [job["steps"][i]["if"] for i in unpinned] == ["github.event_name == 'schedule'"] and unpinned < installed, (
            f"Give each job of tests.yml the step that unpins, before it installs {WORKFLOWS}")


def test_no_workflow_may_do_more_than_it_needs_or_run_for_hours(root: Path) -> None:
    assert set(workflows(root)) == {"tests", "publish", "weekly"}, f"Add the job to one of these workflows, or name the new one in this test {WORKFLOWS}"
    for name, workflow in workflows(root).items():
        assert workflow.get("permissions") in ({}, {"contents": "read"}), f"Let {name}.yml read only: `permissions` {WORKFLOWS}"
        assert workflow.get("concurrency", {}).get("group"), f"Give {name}.yml a `concurrency` with a `group` {WORKFLOWS}"
        for title, job in workflow["jobs"].items():
            where = f"in the job `{title}` of {name}.yml {WORKFLOWS}"
            minutes = job.get("timeout-minutes", 360)  # which GitHub gives a job that says nothing
            assert minutes <= 90, f"Set `timeout-minutes` to at most 90 {where}"
            scripts = job.get("strategy", {}).get("matrix", {}).get("script", [])
            assert [script for script in scripts if not (root / f"book/tools/{script}.py").exists()] == [], f"Name scripts that are in book/tools/ {where}"
            assert name == "publish" or "permissions" not in job, f"Take out `permissions` {where}"
            used = [step["uses"] for step in job["steps"] if "uses" in step]
            assert [action for action in used if not re.fullmatch(r"actions/[\w-]+@(v\d+|[0-9a-f]{40})", action)] == [], (
                f"Use an action of GitHub's own, with its version or commit, as in actions/checkout@v7, {where}")
            for step in job["steps"]:
                assert "checkout" not in step.get("uses", "") or step.get("with", {}).get("persist-credentials") is False, (
                    f"Give actions/checkout the line `persist-credentials: false` {where}")


def test_the_site_is_published_only_after_the_owner_has_switched_it_on(root: Path) -> None:
    jobs = workflows(root)["publish"]["jobs"]
    assert jobs["build"]["if"] == "vars.PUBLISH_SITE == 'true'"
    assert jobs["deploy"]["needs"] == "build" and "if" not in jobs["deploy"]
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert "`PUBLISH_SITE` to `true`" in read(root, "book/authors.md"), "Say in the guide how the site is switched on (book/authors.md, Publish the book)"


# the buttons that need the repository's address


def test_the_address_alone_turns_on_every_button_that_can_work(root: Path) -> None:
    without = theme_options(filled_in(root, ""))
    assert not any(without.get(button) for button in REPOSITORY_BUTTONS) and without["launch_buttons"] == {}
    elsewhere = theme_options(filled_in(root, "https://gitlab.com/example-owner/example-book"))["launch_buttons"]
    assert elsewhere["binderhub_url"] and not elsewhere["colab_url"], "Colab cannot read it"
    options = theme_options(filled_in(root))
    assert all(options[button] is True for button in REPOSITORY_BUTTONS)
    assert options["launch_buttons"]["binderhub_url"] and options["launch_buttons"]["colab_url"]


@pytest.mark.parametrize("url", ["example-owner/example-book", "https://github.com/example-owner", f"{ADDRESS}.git",
                                 "https://github.com/<owner>/<name>", f"{ADDRESS}/", "git@github.com:owner/name"])
def test_an_address_that_would_make_broken_links_stops_the_build(url: str, root: Path) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(url)}.*not like https://github.com/OWNER/NAME"):
        theme_options(filled_in(root, url))
    config = filled_in(root)
    config["repository"]["branch"] = ""
    with pytest.raises(ConfigError, match="repository.branch is empty"):
        theme_options(config)


@pytest.mark.parametrize("button", REPOSITORY_BUTTONS)
def test_a_button_without_an_address_stops_the_build(button: str, root: Path) -> None:
    options = yaml_to_sphinx(filled_in(root, ""))[0]["html_theme_options"] | {button: True}
    with pytest.raises(ConfigError, match=f"{button}, but its repository.url is empty"):
        follow_repository(None, SimpleNamespace(html_theme_options=options))


@pytest.mark.slow
def test_with_an_address_the_buttons_lead_to_the_page_and_to_the_notebook(root: Path, tmp_path: Path) -> None:
    for folder in ("book/tools", "book/lab", "book/_static", "book/_templates", "zh"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "notebooks", "book"))
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
