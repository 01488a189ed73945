r"""Transformers as an ensemble that can be trained to translate: all at once, each word given the right ones before it.

The layers are differentiated automatically, on stacked weights; the gradient of the loss by the logits, which are most
of the numbers of a small Transformer, is written out. `ensembles.train` does the rest. Nothing here searches for a
translation.
"""

import copy
from collections.abc import Iterable

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from leakage.models.initialisation import Stack
from leakage.models.transformer import PADDING, Transformer
from leakage.trainers.criteria import Evaluation, Examples, concatenate, cross_entropies
from leakage.trainers.modules import check_stacked

_LARGEST_EVALUATION = 2**20  # numbers of one evaluated chunk: 4 MiB of float32 stay in the cache
_OUTPUT = "target.weight"  # whose words' vectors are the output weights, too


class Translators:
    r"""A stack of Transformers: an `ensembles.Ensemble` that minimises the mean loss over all words of a batch.

    Examples have two inputs, the source (n, s) and the target so far (n, t), and as targets the next word at every
    place of it, `PADDING` where none is asked. An answer is a word.

    Args:
        form: of the networks.
        stack: their parameters.
    """

    def __init__(self, form: Transformer, stack: Stack) -> None:
        check_stacked("stack", stack.parameters | stack.buffers, dict(form.named_parameters()), len(stack))
        self.form, self.stack = form, stack
        # The same memory as the stack's. `torch.func.functional_call` would put it in its place at every call, which
        # takes longer than the network itself.
        self._leaves = {name: nn.Parameter(tensor) for name, tensor in stack.parameters.items()}
        self._network = copy.deepcopy(form)
        for name, leaf in self._leaves.items():
            owner, _, own_name = name.rpartition(".")
            setattr(self._network.get_submodule(owner), own_name, leaf)

    @property
    def parameters(self) -> list[Tensor]:
        """Of the stack, in the form's order."""
        return list(self.stack.parameters.values())

    def __len__(self) -> int:
        return len(self.stack)

    def clone(self) -> "Translators":
        """See `Ensemble.clone`."""
        self.stack.check_finite()
        return Translators(self.form, self.stack.clone())

    def gradients(self, batch: Examples) -> list[Tensor]:
        r"""See `Ensemble.gradients`.

        $\partial L/\partial o_t = (\operatorname{softmax}(o_t) - e_{y_t})/a$ at each of the a places with an answer,
        and automatically backwards from there.
        """
        vectors = self._network(*batch.inputs)
        table, targets = self.stack.parameters[_OUTPUT], batch.targets.flatten(1)
        asked = targets != PADDING
        share = (asked.to(table.dtype) / asked.sum(-1, keepdim=True)).unsqueeze(-1)
        push = (vectors.detach() @ table.mT).softmax(-1).mul_(share).scatter_add_(-1, targets.unsqueeze(-1), -share)
        # Many rows of few numbers are multiplied in half the time as few rows of many numbers.
        back = (table.mT @ push.mT).mT
        found = dict(zip(self._leaves, torch.autograd.grad(vectors, list(self._leaves.values()), back), strict=True))
        found[_OUTPUT] = found[_OUTPUT] + (vectors.detach().mT @ push).mT
        return [slope.contiguous() for slope in found.values()]

    @torch.no_grad()
    def evaluate(self, examples: Examples) -> Evaluation:
        """See `Ensemble.evaluate`: losses in nats, summed over an example's words; see `criteria.cross_entropies`."""
        hidden = len(self) * examples.targets.shape[1] * 4 * self.form.width
        at_once = max(1, _LARGEST_EVALUATION // hidden)
        chunks = (examples[slice(first, first + at_once)] for first in range(0, len(examples), at_once))
        return concatenate([self._judged(asked) for asked in chunks], 1)

    def _judged(self, examples: Examples) -> Evaluation:
        """Only places that ask for a word have logits, and few of them at a time."""
        vectors = self._network(*(words.expand(len(self), *words.shape) for words in examples.inputs))
        asked, table = examples.targets != PADDING, self.stack.parameters[_OUTPUT]
        places = asked.flatten().nonzero()[:, 0]
        at_once = max(1, _LARGEST_EVALUATION // (len(self) * table.shape[1]))
        judged = []
        for part in places.split(at_once):
            targets = examples.targets.flatten()[part].expand(len(self), -1)
            judged.append(cross_entropies(vectors.index_select(1, part) @ table.mT, targets))
        sentence = places // asked.shape[1]

        def summed(parts: Iterable[Shaped[Tensor, "models words"]]) -> Shaped[Tensor, "models b"]:
            each = torch.cat(list(parts), 1)
            return each.new_zeros(len(self), len(asked)).index_add_(1, sentence, each)

        losses, wrong = zip(*judged, strict=True)
        return Evaluation(summed(losses), summed(each.long() for each in wrong), asked.sum(-1).expand(len(self), -1))
