"""Laws and limits the experiments are measured against: closed forms, exact finite-sample laws, quadrature.

Each module treats one model: two Gaussians, mixtures of Gaussians, least squares, ridge and logistic regression,
two-layer networks of maximum margin. Closed forms are float64 on the CPU. Only `hermite`, `piecewise_linear` and
`logistic.proximal_operator`, which trainers and attacks call, compute on the device of their tensors.

```python
import torch

from leakage.theory import two_gaussians
from leakage.theory.gaussian_mixtures import ScaleMixture, total_variation

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
