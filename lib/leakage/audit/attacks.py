"""The attacks of an audit: which of them a design allows, and their scores.

Scores (targets, rows) are larger for likelier members and positive where the attack says "member". The references of a
target are all other models but its partner. Which attacks are possible follows from who was trained on what, never from
the losses. Nothing here trains, draws or judges.

The functions are those of `attacks.membership.table`, the rows are not: there models are asked, all are targets, any
order will do and scikit-learn is imported; here losses are all there is, one model may be the target, a design may lack
references, and a sign accuses.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from leakage import blocks
from leakage.attacks.membership import loss_threshold, references
from leakage.attacks.membership.calibration import calibrate_losses
from leakage.attacks.membership.lira import lira
from leakage.attacks.membership.rmia import rmia
from leakage.audit.given import Given


class Support(NamedTuple):
    """What the references of every target offer.

    Attributes:
        models: references of the target that has fewest.
        both: each target has a point with a reference that saw it and one that did not.
        seen: the largest number of references that saw one point, of the target that has fewest.
        unseen: likewise of references that did not see it.
        lonely: some point has no reference that did not see it.
    """

    models: int
    both: bool
    seen: int
    unseen: int
    lonely: bool


class Attack(NamedTuple):
    """An attack on losses, or on labels.

    Attributes:
        sees: what the attacker is given of each row.
        possible: whether a design supports it.
        scores: of all targets.
    """

    sees: str
    possible: Callable[[Given, Support], bool]
    scores: Callable[[Given], Tensor]


def support(given: Given) -> Support:
    """What the references of the targets offer."""
    only, asked = given.targets[0] if len(given.targets) == 1 else None, list(given.targets)
    least, lonely, most, both = [], False, [], []
    for part in blocks.of(given.member.shape):
        kinds = given.member[:, part]
        counted = [references.count_references(kind, given.partner, target=only) for kind in (kinds, ~kinds)]
        inside, outside = counted if only is not None else (one[asked] for one in counted)
        least.append(int((inside + outside).amin()))
        both.append(((inside > 0) & (outside > 0)).any(-1))
        most.append(torch.stack([inside.amax(-1), outside.amax(-1)]))
        lonely |= bool((outside == 0).any())
    seen, unseen = torch.stack(most).amax(0).amin(-1).tolist()
    return Support(
        models=min(least),
        both=bool(torch.stack(both).any(0).all()),
        seen=int(seen),
        unseen=int(unseen),
        lonely=lonely,
    )


def scores(given: Given) -> Iterator[tuple[str, Float64[Tensor, "targets points"]]]:
    """The scores of every attack that the design allows, by name, one after the other; there always is one."""
    found = support(given)
    for name, attack in ATTACKS.items():
        if attack.possible(given, found):
            yield name, attack.scores(given)


def _each(attack: Callable[..., Tensor], given: Given) -> Tensor:
    """The rows of the targets; all at once where every model is one."""
    known = (given.losses, given.member, given.partner)
    if len(given.targets) == len(given.losses):
        return attack(*known)
    found = blocks.room(len(given.targets), given.losses.shape[1])
    for place, target in enumerate(given.targets):
        found[place] = attack(*known, target=target)[0]
    return found


def _loss(given: Given) -> Tensor:
    """Against a threshold learned on the references, or else the mean loss of the members (Yeom et al., 2018)."""
    if support(given).both:
        return _each(loss_threshold.global_scores, given)
    losses, member, parts = blocks.chosen(given.losses, given.targets), given.attacked, blocks.of(given.losses.shape)
    total = sum((losses[:, part].double() * member[:, part]).sum(-1, keepdim=True) for part in parts)
    mean = total / blocks.counted(member).unsqueeze(-1)
    return blocks.made(tuple(losses.shape), parts, lambda part: loss_threshold.log_ratio(mean, losses[:, part]))


def _gap(given: Given) -> Tensor:
    assert given.correct is not None  # or else it is not possible
    right = blocks.chosen(given.correct, given.targets)
    return blocks.made(tuple(right.shape), blocks.of(right.shape), lambda part: right[:, part].double() - 0.5)


def _rmia(given: Given, *, offline: bool = False) -> Tensor:
    return _each(partial(rmia, population=given.population, offline=offline), given)


def _lira(**settings: Any) -> Callable[[Given], Tensor]:
    return partial(_each, partial(lira, **settings))


def _online(given: Given, found: Support) -> bool:
    return found.both and min(found.seen, found.unseen) >= 2


def _offline(given: Given, found: Support) -> bool:
    return not _online(given, found) and found.unseen >= 2 and (found.both or not found.lonely)


ATTACKS: Mapping[str, Attack] = {
    "loss": Attack("loss", lambda given, found: True, _loss),
    "sample threshold": Attack("loss", lambda given, found: found.both, partial(_each, loss_threshold.sample_scores)),
    "calibrated loss": Attack("loss", lambda given, found: found.unseen > 0, partial(_each, calibrate_losses)),
    "LiRA": Attack("loss", _online, _lira()),
    "LiRA, own variance": Attack("loss", _online, _lira(variance="own")),
    "LiRA, offline": Attack("loss", _offline, _lira(offline=True)),
    "RMIA": Attack("loss", _online, _rmia),
    "RMIA, offline": Attack("loss", _offline, partial(_rmia, offline=True)),
    "gap": Attack("label", lambda given, found: given.correct is not None, _gap),
}
"""Every attack of an audit, by name."""
