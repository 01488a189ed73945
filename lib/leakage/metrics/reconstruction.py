r"""How far a reconstructed batch is from the true one; the order of the inputs, and their signs if asked, do not count.

For chapters and tests alone: whatever is called here has seen the secret, and no attack may.
"""

import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def match_error(found: Float[Tensor, "B d"], truth: Float[Tensor, "B d"], *, signs: bool = True) -> float:
    r"""The root mean square error over the best permutation $\pi$,

    $$ \min_\pi \sqrt{ \frac1B \sum_i \lVert \hat x_{\pi(i)} - x_i \rVert^2 } . $$

    Source: Wang et al., eq. (5.1). Without `signs`, each $\hat x$ may also be turned into $-\hat x$, which the paper
    does not do.

    Returns:
        The error; NaN if an input that was found is not finite.
    """
    gaps = matched(found, truth, signs=signs) - truth
    return float(gaps.square().sum(-1).mean().sqrt())


def matched(found: Float[Tensor, "B d"], truth: Float[Tensor, "B d"], *, signs: bool = True) -> Float[Tensor, "B d"]:
    r"""The rows of `found` in the order of the inputs they stand for, and without `signs` turned towards them."""
    # By differences: where inputs are long and alike, their products hold no digit of a distance.
    distances = torch.cdist(truth, found, compute_mode="donot_use_mm_for_euclid_dist")
    turned = distances if signs else torch.cdist(truth, -found, compute_mode="donot_use_mm_for_euclid_dist")
    costs = torch.minimum(distances, turned).square()
    # A row that is not finite fits all inputs alike: it gets what the others leave, and stays in the result.
    _, order = linear_sum_assignment(costs.nan_to_num(0, 0, 0).cpu().numpy())
    picked = torch.as_tensor(order, device=found.device)
    rows = found[picked]
    if signs:
        return rows
    nearer = (turned < distances).gather(1, picked.unsqueeze(1))
    return torch.where(nearer, -rows, rows)
