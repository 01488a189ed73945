r"""What networks of any kind are asked, what they should answer, and how their answers are judged.

A criterion takes the outputs of *one* network for a batch and the targets, and gives an `Evaluation`: losses in nats
*summed* over the answers an example asks for, and how many there are: a classifier gives one answer an example, a translator one
a word (`trainers.translators`). Nothing here trains.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int, Shaped
from torch import Tensor
from torch.nn.functional import softplus

from leakage.trainers.sparse_rows import SparseRows


@dataclass(frozen=True, eq=False)
class Examples:
    """What networks are asked and should answer: as many rows in every tensor."""

    inputs: tuple[Shaped[Tensor, "n ..."], ...]
    targets: Int[Tensor, "n ..."]

    @cached_property
    def sparse(self) -> SparseRows | None:
        """The first input, where most of its numbers are 0."""
        return SparseRows.of(self.inputs[0])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: Tensor | slice) -> "Examples":
        """These rows of every tensor."""
        return Examples(tuple(_rows(tensor, rows) for tensor in self.inputs), _rows(self.targets, rows))


def _rows(tensor: Tensor, rows: Tensor | slice) -> Tensor:
    """`tensor[rows]`; numbers of rows are looked up, which copies whole rows and is several times as quick."""
    if isinstance(rows, slice) or rows.dtype != torch.int64:
        return tensor[rows]
    return tensor.index_select(0, rows.flatten()).unflatten(0, rows.shape)


class Evaluation(NamedTuple):
    """What networks make of examples.

    Attributes:
        losses: cross-entropies in nats, summed over the answers that an example asks for.
        wrong: how many of these answers are wrong.
        answers: how many there are.
    """

    losses: Float[Tensor, "*models b"]
    wrong: Int[Tensor, "*models b"]
    answers: Int[Tensor, "*models b"]


def concatenate(parts: Sequence[Evaluation], dimension: int) -> Evaluation:
    """Scores of several networks, or of several chunks of examples, as one."""
    return Evaluation(*(torch.cat(field, dimension) for field in zip(*parts, strict=True)))


def cross_entropies(
    logits: Float[Tensor, "*b k"], targets: Int[Tensor, "*b"]
) -> tuple[Float64[Tensor, "*b"], Bool[Tensor, "*b"]]:
    r"""Losses and mistakes of outputs in any precision, for eyes only: $\ell = \log(1 + e^{r - o_y})$.

    Here $r = \log \sum_{j \ne y} e^{o_j}$ is taken in the precision of the logits and the rest in float64, so that no
    loss is rounded to 0: a float32 softmax's is below 6e-8, and attacks look at its logarithm. An output that equals
    the largest of the others is a mistake.
    """
    own = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    rivals = logits.scatter(-1, targets.unsqueeze(-1), -math.inf)
    most = rivals.amax(-1)
    rest = rivals.sub_(most.unsqueeze(-1)).exp_().sum(-1).log()  # r is their sum; `logsumexp` takes new memory for it
    losses = softplus(most.double() + rest.double() - own.double(), threshold=40)
    return losses, most >= own


Criterion = Callable[[Tensor, Tensor], Evaluation]


def classification(logits: Float[Tensor, "b k"], targets: Int[Tensor, " b"]) -> Evaluation:
    r"""The criterion of classifiers, $\ell = -\log \operatorname{softmax}(o(x))_y$: one answer an example."""
    wrong = logits.argmax(-1) != targets
    # The classes stand before the examples: over few neighbours in memory a softmax takes a number at a time.
    losses = -logits.mT.log_softmax(0).gather(0, targets.unsqueeze(0)).squeeze(0)
    return Evaluation(losses, wrong.long(), torch.ones_like(targets))
