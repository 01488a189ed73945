"""Recover the batch behind the gradient of your own module; this package calls `recover`, never the other way.

`invert` needs a linear first layer. It returns the inputs with a bound on their error, or says why it found none.

```python
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakage import invert

generator = torch.manual_seed(0)  # which draws the module, too
inputs, labels = torch.randn(3, 20), torch.tensor([2, 5, 7])
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
gradient = torch.autograd.grad(cross_entropy(model(inputs), labels), list(model.parameters()))
found = invert(model, gradient, batch=3, loss="cross_entropy", generator=generator)
error = torch.cdist(inputs.double(), found.inputs).amin(1).max()  # the order of the batch is lost
print(f"certified: {found.certified}, error below the bound: {bool(error < found.bound)}")
print(f"labels: {sorted(found.labels.tolist())}")
```

```text
certified: True, error below the bound: True
labels: [2, 5, 7]
```
"""
