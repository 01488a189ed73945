"""Laws and experiments of *Parameters or Privacy: A Provable Tradeoff Between Overparameterization and Membership
Inference*.

Each law treats one model: two Gaussians, mixtures of Gaussians, least squares and ridge regression. Laws are float64 on
the CPU; `nested_fits` computes on the device of its tensors.

```python
import torch

from reproduced.papers.min_norm import two_gaussians
from reproduced.papers.min_norm.gaussian_mixtures import ScaleMixture, total_variation

member, outsider = (torch.tensor([variance], dtype=torch.float64) for variance in (1.0, 4.0))
exact = two_gaussians.advantage(member=member, outsider=outsider)  # N(0, 1) against N(0, 4)
integral = total_variation(member=ScaleMixture(member), outsider=ScaleMixture(outsider))
power = two_gaussians.power(member=member, outsider=outsider, fpr=0.1)
print(f"best advantage {exact.item():.2f}, by quadrature {integral.item():.2f}")
print(f"TPR at 10 % FPR {power.item():.2f}")
```

```text
best advantage 0.32, by quadrature 0.32
TPR at 10 % FPR 0.20
```
"""
