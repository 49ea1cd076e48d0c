def the_oldest(folder):
    """In the order of the list."""
    for path in checkpoints(folder):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None


def none_is_not_expected(folder):
    """The last of an empty list."""
    path = checkpoints(folder)[-1]
    return path, read_checkpoint(path)[0]


def nothing_is_returned(folder):
    """If there is none, one None instead of two."""
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")


def only_whether_it_can_be_loaded(folder):
    """The digest is not compared."""
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        if state is not None:
            return path, state
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None


def it_gives_up_at_the_first(folder):
    """The one before is not tried."""
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")
        return None, None
    return None, None


def not_renamed(folder):
    """The broken file stays."""
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None


def deleted(folder):
    """What is broken might still be of use to somebody."""
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        path.unlink()
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None


def without_a_word(folder):
    """Nothing is printed."""
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        path.rename(path.with_suffix(".broken"))
    return None, None


def by_name(folder):
    """Names are sorted as words, and 1... comes before 9..."""
    for path in sorted(Path(folder).glob("step-*.pt"), reverse=True):
        state, digest = read_checkpoint(path)
        if path.stem.endswith(digest):
            return path, state
        path.rename(path.with_suffix(".broken"))
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None


def all_but_one_are_renamed(folder):
    """The else is missing."""
    for path in reversed(checkpoints(folder)):
        state, digest = read_checkpoint(path)
        path.rename(path.with_suffix(".broken"))
        if path.stem.endswith(digest):
            return path, state
        print(f"{path.name} is not whole: its digest is {digest}")
    return None, None
