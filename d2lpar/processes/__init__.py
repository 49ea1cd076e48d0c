"""Processes that form one group: the ranks of `torch.distributed`, started from a notebook, a script or a test.

`run_ranks(fn, 3)` gives what `fn` returned on each rank; a `RankGroup(2)` is kept for many calls. `launch` is the side
of the caller, `rank` what a rank's process runs, and `keeper` sees to it that no process is left.
"""

from d2lpar.processes.launch import RankError as RankError
from d2lpar.processes.launch import RankGroup as RankGroup
from d2lpar.processes.launch import run_ranks as run_ranks
