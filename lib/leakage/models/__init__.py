"""Networks as parameters and the functions they compute, and classifiers of other libraries; nothing here trains.

`mlp` holds the weights of ReLU networks as plain tensors, many networks of one shape at once.
`initialisation` stacks copies of any PyTorch module, `classifier` adapts modules and scikit-learn estimators.

```python
import torch
from torch import nn

from leakage.models import mlp

modules = [nn.Sequential(nn.Linear(5, 30), nn.ReLU(), nn.Linear(30, 3)) for _ in range(8)]
networks = mlp.stack([mlp.from_module(module) for module in modules])  # eight networks as one
points = torch.randn(100, 5)
logits = networks(points)
expected = torch.stack([module(points) for module in modules])
print("models, points, classes:", *logits.shape)
print("as the modules:", torch.allclose(logits, expected, atol=1e-5))
```

```text
models, points, classes: 8 100 3
as the modules: True
```
"""
