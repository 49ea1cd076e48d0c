"""Tests of d2lpar.compat: d2l's own plotting works in the installed IPython, and nobody loads plotting for nothing."""

import os
import subprocess
import sys

import pytest
from IPython import display

import d2lpar.plot

READER = """
from IPython.core.interactiveshell import InteractiveShell

CELL = '''
import d2lpar
from d2l import torch as d2l
d2l.use_svg_display()
d2l.set_figsize((3, 2))
d2l.plot([1, 2, 3], [[1, 4, 9], [1, 8, 27]], "x", "y", legend=["square", "cube"])
animator = d2l.Animator("epoch", "accuracy", xlim=[1, 2])
animator.add(1, (0.1,))
animator.add(2, (0.2,))
'''
result = InteractiveShell.instance().run_cell(CELL)
result.raise_error()
print("d2l plots")
"""


def test_the_function_that_d2l_calls_and_ipython_9_lacks_is_there():
    assert d2lpar.plot.compat and callable(display.set_matplotlib_formats)


@pytest.mark.slow
def test_what_takes_long_to_load_is_loaded_by_those_who_need_it():
    loads = "print(sorted({'matplotlib', 'd2l', 'torchvision', 'torch._dynamo', 'IPython'} & set(sys.modules)))"
    code = f"import d2lpar.collectives, sys; {loads}; import d2lpar.data; {loads}; import d2lpar.plot; {loads}"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n[]\n['IPython', 'matplotlib']\n"


def test_every_name_of_the_package_is_found_where_it_says():
    assert all(callable(getattr(d2lpar, name)) for name in d2lpar.__all__)
    with pytest.raises(AttributeError, match="no attribute 'allreduse'"):
        d2lpar.allreduse


@pytest.mark.slow
def test_d2ls_plotting_runs_in_a_real_ipython_shell(tmp_path):
    env = {**os.environ, "IPYTHONDIR": str(tmp_path), "MPLBACKEND": "agg"}
    reader = subprocess.run([sys.executable, "-c", READER], env=env, capture_output=True, text=True, timeout=120)
    assert reader.returncode == 0, reader.stdout + reader.stderr
    assert reader.stdout.endswith("d2l plots\n")
    assert "AttributeError" not in reader.stdout + reader.stderr
