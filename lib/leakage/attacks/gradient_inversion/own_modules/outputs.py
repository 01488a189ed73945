r"""Residuals and labels of inputs that were found, from the gradient of the layers above the first.

A residual here is $\rho_i = \partial L / \partial f(x_i)$, one number for each output. Of the cross-entropy,

$$ \rho_i = s\, (\operatorname{softmax}(f(x_i)) - e_{y_i}) , $$

with $s = 1/B$ for the mean and 1 for the sum, so that the label is the one negative entry. Nothing here draws or
searches.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion.own_modules.first_layer import FirstLayer
from leakage.trainers.federated import LOSSES, find_loss

CROSS_ENTROPY = "cross_entropy"
_OFF = 1e-2  # relative distance of residuals from those of a cross-entropy: rounding leaves 1e-4 in float32


def check(loss: str, *, width: int) -> None:
    """Raise `ValueError` unless this is a loss of so many outputs."""
    arguments.choice("loss", loss, (CROSS_ENTROPY, *LOSSES))
    if (loss == CROSS_ENTROPY) == (width == 1):
        rule = "one of several outputs" if width > 1 else "one of a single output"
        raise ValueError(f"`loss` must be {rule}, as the module has {width}; got {loss!r}.")


def of_one(first: FirstLayer, inputs: Float[Tensor, "1 d"]) -> Float[Tensor, "1 k"]:
    r"""$\rho$ of a single input: the gradient of a bias of the outputs, otherwise the one that gives $\delta$.

    Returns:
        NaN where neither determines it.
    """
    if first.readout is not None:
        return first.gradient[first.readout].unsqueeze(0)
    heads, slopes = first.heads(inputs)[0], first.rows[:, -1]
    if int(torch.linalg.matrix_rank(heads)) < len(heads):
        return torch.full_like(heads[:, :1].mT, torch.nan)
    return (torch.linalg.pinv(heads.mT) @ slopes).unsqueeze(0)


def signs(residuals: Float[Tensor, "B k"], loss: str | None) -> Float[Tensor, " B"] | None:
    """1 where residuals may be those of a cross-entropy, -1 where the opposite ones may; `None` if this tells nothing.

    One entry of three or more is negative, the label's.
    """
    if loss != CROSS_ENTROPY or residuals.shape[1] < 3:
        return None
    return torch.where((residuals < 0).sum(1) <= 1, 1.0, -1.0).to(residuals)


def labels(
    first: FirstLayer, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, "B k"], loss: str | None, *, batch: int
) -> tuple[Tensor | None, tuple[str, ...]]:
    r"""The labels of a batch, and what speaks against them in words; `None` without a loss or residuals.

    $y_i = \arg\min_c \rho_{ic}$ for the cross-entropy, $f(x_i) - r_i$ for the losses of one output, with
    $r_i = \rho_i / c$ and the constant c of the loss.

    Source: Zhao et al. (2020), iDLG, for the sign of the label's entry.
    """
    if loss is None or not bool(residuals.isfinite().all()):
        return None, ()
    found = first.outputs(inputs)
    if loss != CROSS_ENTROPY:
        chosen = find_loss(loss)
        values = (torch.sigmoid(found) if chosen.logistic else found) - residuals / chosen.scale(batch)
        return values.squeeze(-1), ()
    classes = residuals.argmin(dim=1)
    expected = torch.softmax(found, dim=1) - torch.nn.functional.one_hot(classes, residuals.shape[1])
    scale = (expected * residuals).sum() / expected.square().sum()
    if float((scale * expected - residuals).norm()) > _OFF * float(residuals.norm()) or not bool(scale > 0):
        return classes, ("labels: the residuals are not those of a plain cross-entropy",)
    return classes, ()
