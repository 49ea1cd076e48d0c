after_the_script = "python train.py MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432"  # arguments of the script
without_underscores = "MALLOC_TRIM_THRESHOLD=1073741824 MALLOC_MMAP_THRESHOLD=33554432 python train.py"
lines_of_their_own = """
MALLOC_TRIM_THRESHOLD_=1073741824
MALLOC_MMAP_THRESHOLD_=33554432
python train.py
"""  # of the shell, which passes on only what is exported
the_other_alone = "MALLOC_MMAP_THRESHOLD_=33554432 python train.py"
too_small = "MALLOC_TRIM_THRESHOLD_=1048576 MALLOC_MMAP_THRESHOLD_=1048576 python train.py"
no_script = "MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432 python"
