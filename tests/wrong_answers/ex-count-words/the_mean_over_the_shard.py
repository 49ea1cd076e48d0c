from torch.nn import functional as F


def words_loss(scores, y):
    return F.cross_entropy(scores, y)
