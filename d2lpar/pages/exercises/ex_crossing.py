"""The check of the exercise `ex-crossing`."""

from d2lpar.checks import is_number


def check(crossing):
    """What is not right yet of the answer, in words, or "Right."."""
    for outputs, num_params in ((25_088, 11_175_818), (800, 129_068), (10, 10), (50, 7), (10, 4_721_664)):
        answer = crossing(outputs, num_params)
        if not is_number(answer):
            return "Not yet: crossing must give a number."
        pipeline, data_parallel = 4 * answer * outputs, 4 * num_params
        if not abs(pipeline / data_parallel - 1) < 1e-7:
            return (f"Not yet: for {outputs:,} outputs and {num_params:,} parameters you return {answer:.8g}. With "
                    f"it, the pipeline sends {pipeline:,.1f} bytes, and data parallelism {data_parallel:,} bytes.")
    return "Right."
