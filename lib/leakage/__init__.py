"""Attacks on the privacy of training data, and audits of models against them.

These are the public names; the modules behind them have the rest, and may change in any release. These names stay, and
so do those that `leakage.audit` lists in its `__all__`, and options, exit statuses and JSON of `leakage audit`. One
that has to change works for one more minor release, with a `DeprecationWarning` that names its successor. The changelog
lists it when it begins to warn, and again when it goes.

- `audit`: how much models give away of the rows they were trained on (`audit.of_losses`, `audit.of_models`,
  `audit.of_sklearn`, `audit.of_module`), and lower bounds of ε (`audit.one_run`, `audit.of_trials`)
- `TrainedModels`, `ATTACKS`, `Attack`, `evaluate`, `Evaluation`: models and who was trained on what; the table of
  membership attacks; all attacks on the same models, judged alike
- `lira`, `rmia`: likelihood ratios over shadow models, from losses
- `auc`, `roc_curve`, `tpr_at_fpr`, `best_advantage`: what scores of members and outsiders achieve, with intervals
- `Estimate`, `mean_interval`, `wilson_interval`, `clopper_pearson`, `newcombe_interval`: numbers with intervals
- `invert`, `recover`: training rows from a gradient, of a module of your own, and of the theory's two-layer networks

Names are imported when they are first used: `import leakage` alone imports no PyTorch.

```python
import numpy as np
from sklearn.linear_model import LogisticRegression

from leakage import TrainedModels, evaluate

draw = np.random.default_rng(0)
x, y = draw.normal(size=(300, 20)), draw.integers(2, size=300)  # labels are coin flips: nothing to learn
member = draw.random((16, 300)) < 0.5  # each of 16 models is trained on a random half
fits = [LogisticRegression().fit(x[rows], y[rows]) for rows in member]
models = TrainedModels.from_estimators(fits, x, y, member)
result = evaluate(models, ["gap", "loss", "LiRA"])
for attack in result.results:
    print(f"{attack}: AUC {result.interval(attack).estimate:.2f}")
```

```text
gap: AUC 0.58
loss: AUC 0.60
LiRA: AUC 0.61
```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # so that editors and type checkers know the names, too
    from leakage import audit
    from leakage.inversion.own_modules.invert import invert
    from leakage.inversion.recover import recover
    from leakage.membership.evaluation import Evaluation, evaluate
    from leakage.membership.lira import lira
    from leakage.membership.rmia import rmia
    from leakage.membership.table import ATTACKS, Attack
    from leakage.membership.trained_models import TrainedModels
    from leakage.metrics.estimates import Estimate, clopper_pearson, mean_interval, newcombe_interval, wilson_interval
    from leakage.metrics.roc import auc, best_advantage, roc_curve, tpr_at_fpr

__version__ = "0.1.0"

_NAMES = {
    "leakage.inversion.own_modules.invert": "invert",
    "leakage.inversion.recover": "recover",
    "leakage.membership.lira": "lira",
    "leakage.membership.rmia": "rmia",
    "leakage.membership.table": "ATTACKS Attack",
    "leakage.membership.trained_models": "TrainedModels",
    "leakage.membership.evaluation": "Evaluation evaluate",
    "leakage.metrics.estimates": "Estimate clopper_pearson mean_interval newcombe_interval wilson_interval",
    "leakage.metrics.roc": "auc best_advantage roc_curve tpr_at_fpr",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [
    "ATTACKS", "Attack", "Estimate", "Evaluation", "TrainedModels", "auc", "audit", "best_advantage", "clopper_pearson",
    "evaluate", "invert", "lira", "mean_interval", "newcombe_interval", "recover", "rmia", "roc_curve", "tpr_at_fpr",
    "wilson_interval",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "audit":
        return import_module("leakage.audit")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'leakage' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
