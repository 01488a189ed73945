"""Whether members can be told from outsiders without the model: then an attack may find that difference and no leak."""

from collections.abc import Sequence

from leakage.attacks.membership.row_features import tell_members_apart
from leakage.attacks.membership.trained_models import TrainedModels
from leakage.audit.result import AttackSummary
from leakage.evaluation import is_resolvable, mean_estimate
from leakage.metrics import roc
from leakage.metrics.estimates import newcombe_interval

_LEAST = 2  # members, and outsiders, among the rows that are judged
_CLEAR_AREA = 0.525  # the lower end of an area that differs clearly from one half


def measure_baseline(models: TrainedModels, *, fprs: Sequence[float], level: float) -> AttackSummary | None:
    """What `row_features.tell_members_apart` achieves; None without features. Ends are means of the targets' ends."""
    if models.features is None:
        return None
    scores, member = tell_members_apart(models.target_member, models.average_units(models.features.mT).mT)
    able = ((member.sum(1) >= _LEAST) & ((~member).sum(1) >= _LEAST)).nonzero().flatten().tolist()
    if not able:
        return None
    pairs = [(scores[target][member[target]], scores[target][~member[target]]) for target in able]
    flagged = [[(int((kind > 0).sum()), len(kind)) for kind in pair] for pair in pairs]
    kinds = [{"member": inside, "outsider": outside} for inside, outside in pairs]
    rates = [fpr for fpr in fprs if is_resolvable(fpr, min(len(outside) for _, outside in pairs))]
    hits = {fpr: [roc.tpr_at_fpr(**one, fpr=fpr, level=level) for one in kinds] for fpr in rates}
    return AttackSummary(
        "no attack: without the model",
        "features",
        mean_estimate([roc.auc(**one, level=level) for one in kinds], level=level),
        mean_estimate([newcombe_interval(*counts, level=level) for counts in flagged], level=level),
        {fpr: mean_estimate(hits[fpr], level=level) if fpr in hits else None for fpr in fprs},
    )


def explain_baseline(baseline: AttackSummary | None) -> list[str]:
    """A note if members clearly differ from outsiders."""
    if baseline is None or baseline.auc.low < _CLEAR_AREA:
        return []
    return [
        f"Members differ from outsiders without the model: AUC {baseline.auc:.2f} from the features alone. An attack "
        "whose AUC is below this shows no leak; take members and outsiders from the same rows at random."
    ]
