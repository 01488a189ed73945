r"""What the posteriors of a classifier tell about membership: the features of ML-Leaks, and scores of one number.

The attacker sees the logits (or the loss) of each point, and for the scores knows its true label; the features of
ML-Leaks need none. Logits come in as (models…, points, classes), one row of features or one score a point goes out,
larger for likelier members. Everything is computed from log-sum-exp in float64, so that a posterior that rounds to 1
still has the logit that it has. Nothing here trains.
"""

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor


def top(logits: Tensor, *, count: int = 3) -> Float64[Tensor, "*b t k"]:
    r"""The `count` largest posteriors $\operatorname{softmax}(o)$, in descending order.

    Source: Salem et al. (2018), adversary 1; with fewer classes than `count`, all of them.
    """
    return logits.double().softmax(-1).topk(min(count, logits.shape[-1]), dim=-1).values


def top_logits(logits: Tensor, *, count: int = 3) -> Float64[Tensor, "*b t k"]:
    r"""$\log \frac{p}{1 - p}$ of the `count` largest posteriors p, without ever rounding p.

    $$ \log \frac{p_i}{1 - p_i} = o_i - \log \sum_{k \ne i} e^{o_k} $$

    The information is that of `top`; but posteriors of members crowd below 1, and here they are spread out. This is
    ours, not the paper's.
    """
    largest = logits.double().topk(min(count, logits.shape[-1]), dim=-1).indices
    return torch.stack([margin(logits, labels) for labels in largest.unbind(-1)], dim=-1)


def margin(logits: Tensor, labels: Int[Tensor, "*own t"]) -> Float64[Tensor, "*b t"]:
    r"""$\log \frac{p_y}{1 - p_y}$ of the true label y, the logit-transformed confidence of Carlini et al. (2022).

    It is a strictly decreasing function of the cross-entropy: a threshold on it is a threshold on the loss. Nothing is
    rounded away on the way, so this is the one to take wherever logits are at hand; else `logit`.
    """
    logits = logits.double()
    place = labels.long().expand(logits.shape[:-1]).unsqueeze(-1)
    rest = logits.scatter(-1, place, -torch.inf).logsumexp(-1)
    return logits.gather(-1, place).squeeze(-1) - rest


def logit(losses: Float[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    r"""`margin` from losses alone: $\log \frac{p}{1-p} = -\ell - \log(1 - e^{-\ell})$, with $p = e^{-\ell}$.

    To rounding this is exact for the loss given; what a loss has lost, none can give back. Whoever computes
    $-\log \operatorname{softmax}$ cannot tell a loss below half of the precision's spacing at 1 from 0, so smaller ones
    count as that: logits end at 36.7 for float64 losses, at 16.6 for float32.
    """
    kept = losses.double().clamp_min(torch.finfo(losses.dtype).eps / 2)
    return -kept - torch.log(-torch.expm1(-kept))


def correct(logits: Tensor, labels: Int[Tensor, "*own t"]) -> Float64[Tensor, "*b t"]:
    """1 where the prediction is right, 0 elsewhere: the gap attack, which calls every point that fits a member.

    Its accuracy on as many members as outsiders is ½ + (training accuracy - test accuracy)/2.

    Source: Yeom et al. (2018), the baseline of Choquette-Choo et al. (2021).
    """
    return (logits.argmax(-1) == labels).double()
