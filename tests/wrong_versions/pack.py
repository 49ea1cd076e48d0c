import torch


def no_zero_before(texts, length):
    """The texts are joined without a 0 between them."""
    rows = []
    for text in texts:
        if not rows or len(rows[-1]) + 1 + len(text) > length:
            rows.append([])
        rows[-1] += [*text]
    return torch.tensor([row + [0] * (length + 1 - len(row)) for row in rows])


def rows_too_short(texts, length):
    """Rows of `length` tokens, without the last target."""
    rows = []
    for text in texts:
        if not rows or len(rows[-1]) + 1 + len(text) > length:
            rows.append([])
        rows[-1] += [0, *text]
    return torch.tensor([row + [0] * (length - len(row)) for row in rows])


def no_room_for_the_end(texts, length):
    """A text may end with the row, and then its end has no target."""
    rows = []
    for text in texts:
        if not rows or len(rows[-1]) + 1 + len(text) > length + 1:
            rows.append([])
        rows[-1] += [0, *text]
    return torch.tensor([row + [0] * (length + 1 - len(row)) for row in rows])


def a_row_too_early(texts, length):
    """Leaves out a text that fits exactly."""
    rows = []
    for text in texts:
        if not rows or len(rows[-1]) + 1 + len(text) >= length:
            rows.append([])
        rows[-1] += [0, *text]
    return torch.tensor([row + [0] * (length + 1 - len(row)) for row in rows])


def one_text_per_row(texts, length):
    """Packs nothing."""
    rows = [[0, *text] for text in texts]
    return torch.tensor([row + [0] * (length + 1 - len(row)) for row in rows])


def first_fit(texts, length):
    """Goes back to earlier rows."""
    rows = []
    for text in texts:
        for row in rows:
            if len(row) + 1 + len(text) <= length:
                row += [0, *text]
                break
        else:
            rows.append([0, *text])
    return torch.tensor([row + [0] * (length + 1 - len(row)) for row in rows])


def filled_with_blanks(texts, length):
    """Spaces fill up a row."""
    rows = []
    for text in texts:
        if not rows or len(rows[-1]) + 1 + len(text) > length:
            rows.append([])
        rows[-1] += [0, *text]
    return torch.tensor([row + [32] * (length + 1 - len(row)) for row in rows])


def nothing_returned(texts, length):
    """Forgets to return."""
    rows = []
    for text in texts:
        rows.append([0, *text])


def only_ascii(texts, length):
    """Bytes above 127 become question marks."""
    rows = []
    for text in texts:
        if not rows or len(rows[-1]) + 1 + len(text) > length:
            rows.append([])
        rows[-1] += [0, *text.decode("ascii", "replace").replace("\ufffd", "?").encode()]
    return torch.tensor([row + [0] * (length + 1 - len(row)) for row in rows])
