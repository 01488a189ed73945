"""Losses of models on a pool with a known leak, for tests of attacks that learn from reference models."""

import torch

from leakage.data.membership_splits import complementary_pairs
from reproduced.runtime import stream


def paired(models, points):
    drawn = complementary_pairs(points, models, generator=stream(0, "pairs"))
    return drawn.member, drawn.partner


def independent(models, points):
    """Subsets in which the first point has no reference that saw it, the second only such, and the third just one."""
    member = torch.rand(models, points, generator=stream(0, "subsets")) < 0.4
    member[1:, 0], member[1:, 1], member[1:, 2] = False, True, False
    member[1, 2] = True
    return member, None


def draw_losses(member, shift, *, epochs=(), name="losses"):
    """Losses whose logits are Gaussian about a mean of each point, larger by `shift` for members."""
    draws = stream(0, name)
    noise = torch.randn(*epochs, *member.shape, generator=draws, dtype=torch.float64)
    level = 2 * torch.randn(member.shape[-1], generator=draws, dtype=torch.float64)
    return torch.nn.functional.softplus(-(level + noise + shift * member))


def split_references(values, member, partner, target, point):
    """The values of the references that saw a point, and of those that did not."""
    kept = torch.ones(len(member), dtype=torch.bool)
    kept[target] = False
    if partner is not None:
        kept[partner[target]] = False
    seen, inside = values[kept, point], member[kept, point]
    return seen[inside], seen[~inside]
