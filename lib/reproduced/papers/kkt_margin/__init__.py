"""Laws, trainers and experiments of *Provable Privacy Attacks on Trained Shallow Neural Networks*.

`margin_flow` trains towards the margin, `max_margin` solves for it on the line, and `line_reconstruction` reads
training points from the weights of a network.

```python
import torch

from reproduced.papers.kkt_margin.line_reconstruction import candidates_from_function
from reproduced.papers.kkt_margin.max_margin import optimum_on_line
from reproduced.papers.kkt_margin.piecewise_linear import from_network

points = torch.tensor([-2.0, -0.5, 1.0, 3.0], dtype=torch.float64)
labels = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
network = optimum_on_line(points, labels).model  # of least norm, margin 1
found = candidates_from_function(from_network(network), margin=1.0, low=-10, high=10, simplification=1e-5)
print("training points:", *(f"{point:.2f}" for point in found))  # from the weights alone
```

```text
training points: -2.00 -0.50 1.00 3.00
```
"""
