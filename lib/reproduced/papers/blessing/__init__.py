"""Laws, trainers and experiments of *A Blessing of Dimensionality in Membership Inference through Regularization*.

The laws are those of ridge logistic regression in high dimensions: `limit.solve` finds the limit; `output_law` has the
outputs on seen and fresh points, errors and advantages that follow from it.

```python
import torch

from reproduced.papers.blessing.limit import Setting, solve
from reproduced.papers.blessing.output_law import average_advantage, generalisation_error

penalties = torch.tensor([1e-4, 1e-2, 1.0, 100.0])  # λδ with δ = n/p; p/φ signal features, 5 samples for each
law = solve(Setting.from_lambda_delta(lambda_delta=penalties, phi=50.0, samples=5.0)).law
for penalty, error, advantage in zip(penalties, generalisation_error(law), average_advantage(law), strict=True):
    print(f"penalty {penalty:g}: test error {error:.2f}, membership advantage {advantage:.2f}")
```

```text
penalty 0.0001: test error 0.14, membership advantage 0.70
penalty 0.01: test error 0.14, membership advantage 0.66
penalty 1: test error 0.15, membership advantage 0.47
penalty 100: test error 0.17, membership advantage 0.34
```
"""
