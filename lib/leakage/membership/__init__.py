"""Membership attacks, a module for each thing that an attacker sees or knows; larger scores are likelier members.

`table.ATTACKS` lists them all, with what each needs; `leakage.evaluate` runs them on `trained_models.TrainedModels`.
`rays` finds what a ray crosses in a ReLU network, and `polytopes` the one polytope of a point.

```python
import torch

from leakage.membership.lira import lira_of_logits
from leakage.metrics.roc import auc

generator = torch.Generator().manual_seed(0)
member = torch.rand(64, 2000, generator=generator) < 0.5  # 64 models, 2000 points, random halves
easiness = 4 * torch.rand(2000, generator=generator)  # points differ, in the same way for all models
logits = torch.randn(64, 2000, generator=generator) + easiness + 2 * member  # training adds 2
scores = lira_of_logits(logits, member, target=0)[0]  # no attack can exceed an AUC of Φ(√2) = 0.92
for name, found in {"the logit itself": logits[0], "LiRA": scores}.items():
    print(f"{name}: AUC {auc(member=found[member[0]], outsider=found[~member[0]]).estimate:.2f}")
```

```text
the logit itself: AUC 0.82
LiRA: AUC 0.91
```
"""
