"""The check of the exercise `ex-crossing`."""

from numbers import Real

import torch
from torch import Tensor


def check(crossing):
    """What is not right yet of the answer, in words, or "Right."."""
    cases = [(25_088, 11_175_818), (800, 129_068), (10, 10), (50, 7), (10, 4_721_664)]
    cases += torch.randint(1, 100_000, (20, 2)).tolist()
    for outputs, num_params in cases:
        answer = crossing(outputs, num_params)
        if isinstance(answer, Tensor) and answer.shape == ():
            answer = answer.item()
        if not isinstance(answer, Real) or isinstance(answer, bool):
            return "Not yet: crossing must give a number."
        by_layers, by_data = 4 * float(answer) * outputs, 4 * num_params
        if not abs(by_layers / by_data - 1) < 1e-7:
            return (f"Not yet: for {outputs:,} outputs and {num_params:,} parameters "
                    f"you give {float(answer):.8g}; there cutting by layers sends "
                    f"{by_layers:,.1f} bytes and cutting the data {by_data:,} bytes.")
    return "Right."
