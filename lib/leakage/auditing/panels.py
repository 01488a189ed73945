"""What the models of a panel say of its points, as an audit is given it."""

from typing import Any

from leakage.attacks.membership.panels import Panel
from leakage.auditing.given import Given, given


def known(panel: Any, *, target: int | None, groups: Any) -> Given:
    """What an audit is given; see `audit.of_panel`."""
    if not isinstance(panel, Panel):
        raise TypeError(
            f"`panel` must be an attacks.membership.panels.Panel, got {type(panel).__name__}; `Panel.of_modules` and "
            "`Panel.of_estimators` make one."
        )
    # Losses that were given are passed on in their own precision, in which they lost what they have lost.
    saved = panel.given is not None
    losses = panel.given if saved else panel.losses
    correct = None if saved else panel.correct
    return given(losses, panel.member, target=target, correct=correct, labels=panel.labels, groups=groups)
