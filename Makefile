# The commands of the book; `make` alone lists them. Needs GNU make 3.81 or newer, as on macOS.

PYTHON ?= python3
PIP_EXTRA ?=
TORCH ?= $(shell cat .venv/torch 2>/dev/null)
REV = HEAD

VERSION_TEST = import sys; v = sys.version_info[:2]; \
  (3, 11) <= v <= (3, 14) or sys.exit("The book needs Python 3.11 to 3.14, but $(PYTHON) is %d.%d. Choose a different one: make book PYTHON=python3.12" % v)

VENV_TEST = import sys, pip; v = sys.version_info[:2]; \
  (3, 11) <= v <= (3, 14) or sys.exit(".venv contains Python %d.%d, but the book needs 3.11 to 3.14. Delete .venv, then run the same command again." % v); \
  int(pip.__version__.split(".")[0]) >= 22 or sys.exit(".venv contains pip " + pip.__version__ + ", which is too old. Run: .venv/bin/python -m pip install --upgrade pip")

# The user's settings for matplotlib, IPython, Python and pip are ignored, as in conftest.py.
export MPLCONFIGDIR := $(CURDIR)/.venv/settings/matplotlib
export IPYTHONDIR := $(CURDIR)/.venv/settings/ipython
unexport MATPLOTLIBRC MPLBACKEND PYTHONSTARTUP PYTHONPATH PYTEST_PLUGINS
unexport PIP_USER PIP_TARGET PIP_PREFIX

# JupyterLab starts as root, the user in many containers, only if told to; it accepts connections from this machine only, with a token.
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: help book test check slow gate lab edit run diff bench gpu-report clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo 'Options, rarely needed: PYTHON=python3.12, TORCH=cpu, TORCH=cuda or TORCH=ADDRESS, and PIP_EXTRA="options for pip" (see book/setup.md).'

book: .venv/installed ## install what is missing into .venv, build the site, and say which file to open
	@echo "Building the site ..."
	@.venv/bin/jupyter-book build . -W -n --keep-going -q >/dev/null
	@echo "Open the book in a browser: $(CURDIR)/_build/html/index.html"
	@echo "To run the commands on the pages, activate the environment first: source .venv/bin/activate"

test: .venv/installed ## run every notebook again, compare the outputs with the stored ones, and run the tests
	@.venv/bin/pytest --nbval

check: .venv/installed ## run only the notebooks and tests that your change can affect, and list what is left out (two to four minutes for most changes)
	@.venv/bin/python book/tools/check.py $(if $(filter-out file,$(origin REV)),"$(REV)")

slow: .venv/installed ## run the long tests that make test leaves out: kill tests, and tests of the authors' tools
	@.venv/bin/pytest --nbval -m weekly

gate: .venv/installed ## run diagnose and watch on every script of their test sets, and print how often they are right
	@.venv/bin/python book/tools/gate.py
	@.venv/bin/python book/tools/gate_watch.py tuned

# FILLED=1 opens the chapters with all functions and outputs.
# Where the language of the system is Chinese, JupyterLab opens the Chinese start page.
LAB = $(if $(FILLED),lab/filled,lab)
LANGUAGE_HERE = $(firstword $(LC_ALL) $(LC_MESSAGES) $(LANG))
START = $(LAB)/$(if $(filter zh%,$(LANGUAGE_HERE)),zh/)00_start_here.ipynb
lab: .venv/installed ## open JupyterLab on your own copy of the chapters, in lab/: you write the functions (FILLED=1: they are written, in lab/filled/)
	@.venv/bin/python book/tools/working_copy.py $(if $(FILLED),--filled)
	@.venv/bin/jupyter lab $(AS_ROOT) --FileContentsManager.preferred_dir=$(LAB) --LabApp.default_url=/lab/tree/$(START)

edit: .venv/installed ## open JupyterLab on the chapters themselves, for authors (it overwrites the stored outputs)
	@.venv/bin/jupyter trust notebooks/*.ipynb notebooks/appendix/*.ipynb >/dev/null
	@.venv/bin/jupyter lab $(AS_ROOT) --FileContentsManager.preferred_dir=notebooks

run: .venv/installed ## execute every notebook here and store the outputs
	@.venv/bin/python book/tools/run_notebooks.py

diff: .venv/installed ## show what changed in the notebooks since the last commit, or since a different one: make diff REV=main~3
	@.venv/bin/python book/tools/diff_notebooks.py "$(REV)"

bench: .venv/installed ## measure how fast the book's code is here, as a table of ratios (twenty minutes on two cores)
	@.venv/bin/python book/lab/bench.py

gpu-report: .venv/installed ## on a machine with a GPU: run the GPU tests, time training steps, and print a report to paste into an issue
	@.venv/bin/python book/lab/gpu_report.py

clean: ## delete the built site and the test caches, but not .venv and lab/
	@rm -rf _build .pytest_cache .ruff_cache
	@find book d2lpar tests notebooks -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf

# The stamp makes a second call quick, and records the folder for which .venv was made: its scripts work only there.
.PHONY: usable
usable:
	@case "$$(pwd -P)" in *[][*?]*) echo "jupyter-book cannot build in a folder with [, ], * or ? in its name: $$(pwd -P). Rename the folder, then run the same command again."; exit 1;; esac
	@test ! -e .venv/installed || { .venv/bin/python -c 'import pip' >/dev/null 2>&1 && test "$$(cat .venv/installed)" = "$$(pwd -P)"; } || \
	  { echo "This folder was moved or copied, or its Python was upgraded, after .venv was made. Delete .venv, then run the same command again."; exit 1; }

# A choice of PyTorch is kept for later installations; a different one is installed over what is there.
NEW_CHOICE = $(if $(filter-out file,$(origin TORCH)),$(shell test "$$(cat .venv/torch 2>/dev/null)" = "$(TORCH)" || echo new-choice))
.PHONY: new-choice

.venv/installed: requirements.txt pyproject.toml $(NEW_CHOICE) | usable
	@"$(PYTHON)" -c '' >/dev/null 2>&1 || { echo "Cannot run $(PYTHON). Install Python 3.11 to 3.14, or name one: make book PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c '$(VERSION_TEST)'
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@test -x .venv/bin/pip || "$(PYTHON)" -m venv .venv
	@.venv/bin/python -c 'import pip' >/dev/null 2>&1 || { echo "The Python in .venv does not run or has no pip. Delete .venv, then run the same command again."; exit 1; }
	@.venv/bin/python -c '$(VENV_TEST)'
	@rm -f $@
	@.venv/bin/python book/tools/install.py --torch="$(TORCH)" $(PIP_EXTRA)
	@echo "$(TORCH)" > .venv/torch
	@pwd -P > $@
