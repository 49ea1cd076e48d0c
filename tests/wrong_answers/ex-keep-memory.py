def after_the_script(script):
    """As arguments of the script."""
    return f"python {script} MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_MAX_=0"


def lines_of_their_own(script):
    """Variables of the shell, which passes on only what is exported."""
    return f"MALLOC_TRIM_THRESHOLD_=1073741824\nMALLOC_MMAP_MAX_=0\npython {script}"


def no_script(script):
    """Python starts with both, and has nothing to do."""
    return "MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_MAX_=0 python"


def the_other_alone(script):
    """Only the second of the two."""
    return f"MALLOC_MMAP_MAX_=0 python {script}"


def the_limit_of_glibc(script):
    """A threshold for blocks, at the highest value that glibc accepts; the blocks are larger."""
    return f"MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432 python {script}"


def too_small(script):
    """Both, with a threshold of a megabyte."""
    return f"MALLOC_TRIM_THRESHOLD_=1048576 MALLOC_MMAP_MAX_=0 python {script}"


def without_underscores(script):
    """Names that glibc does not know."""
    return f"MALLOC_TRIM_THRESHOLD=1073741824 MALLOC_MMAP_MAX=0 python {script}"
