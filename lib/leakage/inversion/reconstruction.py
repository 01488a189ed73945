r"""Error of a reconstructed batch, whatever the order of the inputs and, if asked, their signs.

For chapters and tests only: these functions see the secret, which no attack may.
"""

import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def match_error(found: Float[Tensor, "B d"], truth: Float[Tensor, "B d"], *, signs: bool = True) -> float:
    r"""The root mean square error over the best permutation $\pi$,

    $$ \min_\pi \sqrt{ \frac1B \sum_i \lVert \hat x_{\pi(i)} - x_i \rVert^2 } . $$

    Source: Wang et al., eq. (5.1). If `signs` is false, each $\hat x$ may also be replaced by $-\hat x$, which the
    paper does not do. NaN if a found input is not finite.
    """
    gaps = match_inputs(found, truth, signs=signs) - truth
    return float(gaps.square().sum(-1).mean().sqrt())


def match_inputs(
    found: Float[Tensor, "B d"], truth: Float[Tensor, "B d"], *, signs: bool = True
) -> Float[Tensor, "B d"]:
    """The rows of `found` in the order of the true inputs that they match best; with signs flipped, too, if allowed."""
    # Distances by differences: those by matrix products lose all digits where inputs are long and alike.
    distances = torch.cdist(truth, found, compute_mode="donot_use_mm_for_euclid_dist")
    flipped = distances if signs else torch.cdist(truth, -found, compute_mode="donot_use_mm_for_euclid_dist")
    costs = torch.minimum(distances, flipped).square()
    # A row that is not finite costs the same everywhere: it gets the input that the others leave.
    _, order = linear_sum_assignment(costs.nan_to_num(0, 0, 0).cpu().numpy())
    assigned = torch.as_tensor(order, device=found.device)
    rows = found[assigned]
    if signs:
        return rows
    nearer = (flipped < distances).gather(1, assigned.unsqueeze(1))
    return torch.where(nearer, -rows, rows)
