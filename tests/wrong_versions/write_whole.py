def under_its_own_name(data, path, unfinished):
    """What everybody does."""
    path.write_bytes(data)


def without_waiting(data, path, unfinished):
    """No fsync."""
    unfinished.write_bytes(data)
    os.replace(unfinished, path)


def without_flushing(data, path, unfinished):
    """Python's own buffer is not on its way yet."""
    unfinished.unlink(missing_ok=True)
    with open(unfinished, "xb") as file:
        file.write(data)
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    sync_folder(path.parent)


def waiting_too_late(data, path, unfinished):
    """The name first, then the bytes."""
    with open(unfinished, "wb") as file:
        file.write(data)
    os.replace(unfinished, path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def the_new_name_is_not_waited_for(data, path, unfinished):
    """No `sync_folder`."""
    with open(unfinished, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def remains_of_a_killed_run(data, path, unfinished):
    """`x` refuses a file that is there."""
    with open(unfinished, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    sync_folder(path.parent)


def added_to_the_remains(data, path, unfinished):
    """`a` appends."""
    with open(unfinished, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    sync_folder(path.parent)


def the_old_file_is_deleted_first(data, path, unfinished):
    """For a moment there is none."""
    with open(unfinished, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.unlink(missing_ok=True)
    os.rename(unfinished, path)
    sync_folder(path.parent)


def copied_instead_of_renamed(data, path, unfinished):
    """A copy takes its time, and may be killed."""
    with open(unfinished, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.write_bytes(unfinished.read_bytes())
    unfinished.unlink()
    sync_folder(path.parent)
