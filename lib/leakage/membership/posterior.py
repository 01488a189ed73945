r"""Features and scores from the posteriors of a classifier, or from the loss.

Logits are (..., points, classes); there is one row of features or one score per point. Scores are larger for likelier
members and need true labels. All is computed from log-sum-exp in float64, so that a posterior that rounds to 1 keeps
its logit.
"""

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor


def top_posteriors(logits: Tensor) -> Float64[Tensor, "*b t k"]:
    r"""The three largest posteriors $\operatorname{softmax}(o)$, or both of two, in descending order.

    Source: Salem et al. (2018), adversary 1.
    """
    return logits.double().softmax(-1).topk(min(3, logits.shape[-1]), dim=-1).values


def top_logits(logits: Tensor) -> Float64[Tensor, "*b t k"]:
    r"""$\log \frac{p_i}{1 - p_i} = o_i - \log \sum_{k \ne i} e^{o_k}$ of the posteriors of `top_posteriors`.

    Posteriors of members lie close to 1; logits spread them out. This is ours, not the paper's.
    """
    largest = logits.double().topk(min(3, logits.shape[-1]), dim=-1).indices
    return torch.stack([label_logit(logits, labels) for labels in largest.unbind(-1)], dim=-1)


def label_logit(logits: Tensor, labels: Int[Tensor, "*own t"]) -> Float64[Tensor, "*b t"]:
    r"""$\log \frac{p_y}{1 - p_y}$ of the true label y, the logit-scaled confidence of Carlini et al. (2022).

    It is a strictly decreasing function of the cross-entropy, so a threshold on it is a threshold on the loss. It loses
    no digits; where only losses are at hand, take `logit_of_loss`.
    """
    logits = logits.double()
    place = labels.long().expand(logits.shape[:-1]).unsqueeze(-1)
    rest = logits.scatter(-1, place, -torch.inf).logsumexp(-1)
    return logits.gather(-1, place).squeeze(-1) - rest


def logit_of_loss(losses: Float[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    r"""`label_logit` from losses: $\log \frac{p}{1-p} = -\ell - \log(1 - e^{-\ell})$, with $p = e^{-\ell}$.

    Software that computes $-\log \operatorname{softmax}$ cannot tell a loss below half of the precision's spacing at 1
    from 0, so smaller losses count as that: logits end at 36.7 for float64 losses, at 16.6 for float32.
    """
    known = losses.to(torch.float64, copy=True).clamp_min_(torch.finfo(losses.dtype).eps / 2)
    other_classes = known.neg().expm1_().neg_().log_()  # log (1 - p); in place, for millions of losses
    return known.add_(other_classes).neg_()


def correct(logits: Tensor, labels: Int[Tensor, "*own t"]) -> Float64[Tensor, "*b t"]:
    """1 where the prediction is right, else 0: the gap attack, which calls every point that is fitted a member.

    Its accuracy on as many members as outsiders is ½ + (training accuracy - test accuracy)/2.

    Source: Yeom et al. (2018), the baseline of Choquette-Choo et al. (2021).
    """
    return (logits.argmax(-1) == labels).double()
