"""Keeps d2l 0.17.0 usable: its plotting calls a function that IPython 9 no longer has."""

from IPython import display
from matplotlib_inline import backend_inline

if not hasattr(display, "set_matplotlib_formats"):
    # pyrefly: ignore[missing-attribute] -- that it is missing is why it is put there
    display.set_matplotlib_formats = backend_inline.set_matplotlib_formats
