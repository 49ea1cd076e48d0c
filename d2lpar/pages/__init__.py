"""What only the pages and their authors need: figures, explorers, checks of exercises, stored results.

`import d2lpar.pages as book` provides the names that chapters use. It also makes GPUs reproducible, because chapters
compare bits. No module outside this subpackage imports it.
"""

import d2lpar.devices
from d2lpar.pages.building import yours as yours
from d2lpar.pages.cells import without_checks as without_checks
from d2lpar.pages.cluster_results import on_cluster as on_cluster
from d2lpar.pages.explorer import show_explorer as show_explorer
from d2lpar.pages.frames import Film as Film
from d2lpar.pages.frames import show_films as show_films
from d2lpar.pages.kept_bytes import most_kept_bytes as most_kept_bytes
from d2lpar.pages.kill_tests import Kill as Kill
from d2lpar.pages.kill_tests import PowerOff as PowerOff
from d2lpar.pages.kill_tests import differing as differing
from d2lpar.pages.kill_tests import kill_test as kill_test
from d2lpar.pages.means import mean_of_means as mean_of_means
from d2lpar.pages.message_audit import AuditError as AuditError
from d2lpar.pages.message_audit import audit as audit
from d2lpar.pages.plot import draw_call as draw_call
from d2lpar.pages.plot import draw_chunks as draw_chunks
from d2lpar.pages.plot import draw_curves as draw_curves
from d2lpar.pages.plot import draw_cuts as draw_cuts
from d2lpar.pages.plot import draw_efficiencies as draw_efficiencies
from d2lpar.pages.plot import draw_fit as draw_fit
from d2lpar.pages.plot import draw_halving as draw_halving
from d2lpar.pages.plot import draw_intervals as draw_intervals
from d2lpar.pages.plot import draw_memory as draw_memory
from d2lpar.pages.plot import draw_panels as draw_panels
from d2lpar.pages.plot import draw_runs as draw_runs
from d2lpar.pages.plot import draw_seeds as draw_seeds
from d2lpar.pages.plot import draw_step as draw_step
from d2lpar.pages.plot import draw_timeline as draw_timeline
from d2lpar.pages.plot import draw_timelines as draw_timelines
from d2lpar.pages.plot import draw_trees as draw_trees
from d2lpar.pages.plot import draw_turns as draw_turns
from d2lpar.pages.plot import show as show
from d2lpar.pages.published import published_controls as published_controls
from d2lpar.pages.published import published_pairs as published_pairs
from d2lpar.pages.published import published_runs as published_runs
from d2lpar.pages.race import Race as Race
from d2lpar.pages.race import race_step as race_step
from d2lpar.pages.race import show_race as show_race
from d2lpar.pages.results import judged_rows as judged_rows
from d2lpar.pages.results import median_interval as median_interval
from d2lpar.pages.results import stored_records as stored_records
from d2lpar.pages.results import stored_results as stored_results
from d2lpar.pages.results import stored_script as stored_script
from d2lpar.pages.scaling import published_scaling as published_scaling
from d2lpar.pages.scaling import sister_runs as sister_runs
from d2lpar.pages.scaling import typical_error as typical_error
from d2lpar.pages.settings import Setting as Setting
from d2lpar.pages.settings import predicted as predicted
from d2lpar.pages.step_spans import trace_step as trace_step
from d2lpar.pages.step_spans import trace_typical_step as trace_typical_step
from d2lpar.pages.stepper import show_stepper as show_stepper
from d2lpar.pages.stepper import trace_rounds as trace_rounds
from d2lpar.pages.timings import print_speedups as print_speedups
from d2lpar.pages.timings import quietly as quietly
from d2lpar.pages.train_gpt import diff_of_script as diff_of_script
from d2lpar.pages.train_gpt import gpt_script as gpt_script
from d2lpar.pages.verdicts import check as check
from d2lpar.pages.which_run import differs_at_the_end as differs_at_the_end
from d2lpar.pages.which_run import show_which_run as show_which_run
from d2lpar.pages.which_run import which_run_answers as which_run_answers
from d2lpar.pages.which_run import which_runs as which_runs

d2lpar.devices.make_gpus_reproducible()
