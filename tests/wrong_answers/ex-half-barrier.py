def all_leave_at_once(came_s, left_s):
    """A barrier lets go, it does not push."""
    return max(left_s) - min(left_s) < 0.1 and min(left_s) >= max(came_s)


def everybody_has_waited(came_s, left_s):
    """Nobody goes at once, but they may still go too early."""
    return all(left > came for came, left in zip(came_s, left_s))


def neighbours_only(came_s, left_s):
    """Each has waited for the next one."""
    k = len(came_s)
    return all(left_s[r] >= came_s[(r + 1) % k] for r in range(k))


def never(came_s, left_s):
    """Right about half a barrier, and wrong about a whole one."""
    return False


def rank_0_has_waited_for_all(came_s, left_s):
    """Asks rank 0 alone, and it is the others who go too early."""
    return left_s[0] >= max(came_s)


def rank_0_waits_longest(came_s, left_s):
    """The page's own test, for all ranks: waiting longest is not waiting long enough."""
    waited = [left - came for came, left in zip(came_s, left_s)]
    return waited[0] == max(waited)


def the_last_rank_comes_last(came_s, left_s):
    """Takes the last rank for the last to come."""
    return min(left_s) >= came_s[-1]


def the_others_have_waited_for_all(came_s, left_s):
    """Does not ask rank 0."""
    return min(left_s[1:] or left_s) >= max(came_s)
