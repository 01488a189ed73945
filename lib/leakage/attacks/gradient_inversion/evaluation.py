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

    Raises:
        ValueError: if the shapes differ or there is nothing to compare.
    """
    return float((matched(found, truth, signs=signs) - truth).square().sum(-1).mean().sqrt())


def matched(found: Float[Tensor, "B d"], truth: Float[Tensor, "B d"], *, signs: bool = True) -> Float[Tensor, "B d"]:
    r"""The rows of `found` in the order of the inputs they stand for, and without `signs` turned towards them.

    Raises:
        ValueError: if the shapes differ or there is nothing to compare.
    """
    if found.shape != truth.shape or found.ndim != 2 or not truth.numel():
        raise ValueError(f"`found` and `truth` must both be (B, d), got {tuple(found.shape)}, {tuple(truth.shape)}.")
    products = truth @ found.mT
    gains = 2 * (products if signs else products.abs()) - found.square().sum(-1)
    # A row that is not finite fits all inputs alike: it gets what the others leave, and stays in the result.
    _, order = linear_sum_assignment(gains.nan_to_num(0, 0, 0).cpu().numpy(), maximize=True)
    picked = torch.as_tensor(order, device=found.device)
    rows = found[picked]
    if signs:
        return rows
    agreement = products.gather(1, picked.unsqueeze(1))
    return torch.where(agreement < 0, -rows, rows)
