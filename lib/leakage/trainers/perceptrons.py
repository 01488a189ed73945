r"""Fully connected networks as an ensemble that can be trained: their gradient is written out, for all at once.

A step gathers a batch for each network and multiplies batches of matrices. That computes what separate PyTorch
trainings compute, without their overhead for each network. `ensembles.train` does the rest.
"""

import torch
from torch import Tensor

from leakage.models.mlp import Mlp
from leakage.trainers.criteria import Evaluation, Examples, concatenate, cross_entropies

_LARGEST_EVALUATION = 2**20  # numbers in the widest layer of one evaluated chunk: 4 MiB of float32 stay in the cache


class MlpEnsemble(Mlp):
    """An `Mlp` with one leading dimension: an `ensembles.Ensemble` that minimises the cross-entropy.

    Examples have one input, the points (n, d), and classes from 0 to the number of outputs - 1 as targets. Points are
    taken in the precision of the networks.
    """

    @classmethod
    def of(cls, networks: Mlp) -> "MlpEnsemble":
        """These networks, in the same memory."""
        return cls(networks.weights, networks.biases)

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, then all biases."""
        return [*self.weights, *self.biases]

    def __len__(self) -> int:
        return len(self.weights[0])

    def clone(self) -> "MlpEnsemble":
        """See `Ensemble.clone`."""
        return MlpEnsemble(*(tuple(part.detach().clone() for part in both) for both in (self.weights, self.biases)))

    def gradients(self, batch: Examples) -> list[Tensor]:
        r"""See `Ensemble.gradients`.

        $\partial L/\partial o = (\operatorname{softmax}(o) - e_y)/b$ and backwards from there; the subgradient of the
        ReLU at 0 is 0, as in PyTorch.
        """
        features, labels = _asked(batch)
        points = features.to(self.weights[0].dtype)
        below = [points]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            below.append(torch.baddbmm(bias.unsqueeze(1), below[-1], weight.mT).clamp_min_(0))
        # The classes stand before the points: over few neighbours in memory a softmax takes a number at a time.
        logits = torch.baddbmm(self.biases[-1].unsqueeze(-1), self.weights[-1], below[-1].mT)
        place = labels.unsqueeze(-2)
        push = logits.softmax(-2).scatter_add_(-2, place, logits.new_full((1, 1, 1), -1.0).expand(place.shape))
        push = push.div_(points.shape[1]).mT
        weights, biases = [], []
        for weight, inputs in zip(reversed(self.weights), reversed(below), strict=True):
            weights.append(push.mT @ inputs)
            biases.append(push.sum(1))
            if inputs is not points:
                push = torch.ops.aten.threshold_backward(push @ weight, inputs, 0)  # where the ReLU is on, in one pass
        return [*reversed(weights), *reversed(biases)]

    def evaluate(self, examples: Examples) -> Evaluation:
        r"""See `Ensemble.evaluate`: $\ell = -\log \operatorname{softmax}(o(x))_y$ in nats, and one answer an example.

        See `criteria.cross_entropies` for their precision.
        """
        features, labels = _asked(examples)
        chunk, found = max(1, _LARGEST_EVALUATION // (len(self) * max(self.widths[1:]))), []
        kind, sparse = self.weights[0].dtype, examples.sparse
        table = self.weights[0].permute(2, 0, 1).flatten(1) if sparse is not None and kind == torch.float32 else None
        for first in range(0, len(features), chunk):
            part = labels[first : first + chunk]
            if table is None or sparse is None:
                outputs = self(features[first : first + chunk].to(kind))
            else:
                wide = sparse.between(first, first + len(part)).times(table)
                outputs = self.above(wide.view(len(part), len(self), -1).transpose(0, 1).contiguous())
            losses, wrong = cross_entropies(outputs, part.expand(len(self), -1))
            found.append(Evaluation(losses, wrong.long(), torch.ones_like(part).expand(len(self), -1)))
        return concatenate(found, -1)


def _asked(examples: Examples) -> tuple[Tensor, Tensor]:
    """Points and labels."""
    (features,) = examples.inputs
    return features, examples.targets
