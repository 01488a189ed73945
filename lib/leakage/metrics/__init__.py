"""Metrics of attacks, with confidence intervals.

`roc` measures how well the scores of one model separate members from outsiders, and `scores` does so for many models at
once. `estimates` has the intervals, `epsilon_bounds` bounds ε from below.

```python
import torch

from leakage.metrics.roc import auc, best_advantage, tpr_at_fpr

generator = torch.Generator().manual_seed(0)
scores = dict(
    member=torch.randn(1000, generator=generator) + 1,
    outsider=torch.randn(1000, generator=generator),
)
print("AUC", auc(**scores))  # of the laws: Φ(1/√2) = 0.760
print("best advantage", best_advantage(**scores))  # 2 Φ(1/2) - 1 = 0.383
print("TPR at 1 % FPR", tpr_at_fpr(**scores, fpr=0.01))  # 0.092
```

```text
AUC 0.761 [0.740, 0.781]
best advantage 0.407 [0.313, 0.501]
TPR at 1 % FPR 0.116 [0.055, 0.161]
```
"""
