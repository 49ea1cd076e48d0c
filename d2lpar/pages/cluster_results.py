"""Experiments that need a cluster, with stored results for machines that cannot make one.

`stored/cluster.json` holds the results of the chapter's cells; `python book/lab/record_cluster.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from d2lpar.cluster import Cluster, ClusterError
from d2lpar.pages.results import stored_results

measured: dict[str, Any] = {}  # what has been measured here, by name


def on_cluster(name: str, experiment: Callable[[], Any]) -> Any:
    """What `experiment()` returns, as JSON would keep it; where no cluster can be made, what is stored as `name`.

    Stored results are announced by a line that begins with STORED and says where and when they were measured, and what
    this machine lacks.
    """
    if lacks := what_is_missing():
        stored = stored_results("cluster")
        about = stored["about"]
        print(f"STORED, measured on {about['machine']}, {about['date']}. Not measured here: {lacks}")
        return stored["results"][name]
    measured[name] = json.loads(json.dumps(experiment()))
    return measured[name]


@cache
def what_is_missing() -> str:
    """Why this machine cannot make a cluster; empty if it can."""
    try:
        with Cluster(1):
            return ""
    except ClusterError as error:
        return str(error)
