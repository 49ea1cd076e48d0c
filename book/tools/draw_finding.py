"""Draw the finding that the README shows, from the numbers that its chapter has stored.

`python book/tools/draw_finding.py` reads how large the step of k replicas is that are one, and draws a bar for each k.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from d2lpar.pages.plot import STYLE

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "notebooks" / "03_bugs_that_train.ipynb"
PICTURE = ROOT / "book" / "_static" / "finding.svg"


def factors() -> dict[int, float]:
    """By the number of devices, how many times the right step is taken, as a cell of the chapter has printed it."""
    outputs = [output.get("text", "") for cell in nbformat.read(CHAPTER, as_version=4).cells
               for output in cell.get("outputs", [])]
    found = re.findall(r"^k = (\d+): +([\d.]+) times the right step", "".join(outputs), re.M)
    return {int(k): float(factor) for k, factor in found}


def draw(found: dict[int, float]) -> Figure:
    """A bar for each number of devices."""
    fig, ax = plt.subplots(figsize=(6.8, 0.42 * len(found) + 0.8))
    names = [f"{k} device{'s' * (k > 1)}" for k in found]
    sizes = list(found.values())
    bars = ax.barh(names, sizes, color=["C2" if size == 1 else "C1" for size in sizes])
    ax.bar_label(bars, ["right" if size == 1 else f"{size:g} times too large" for size in sizes], padding=5)
    ax.set(xlabel="one training step, as a multiple of the right one", xticks=sizes, xlim=(0, 1.3 * max(sizes)))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    return fig


if __name__ == "__main__":
    with plt.style.context([*STYLE, {"svg.fonttype": "none", "font.family": "sans-serif"}]):
        draw(factors()).savefig(PICTURE, bbox_inches="tight", metadata={"Date": None})
    print(f"{PICTURE.relative_to(ROOT)}: {factors()}")
