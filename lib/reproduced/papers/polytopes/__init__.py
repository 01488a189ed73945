"""Geometry and experiments of *The Inside Story: Towards Understanding Privacy Leakage of Neural Networks*.

`subdivision` finds all polytopes in a window of the plane, `decision_boundary` the segments on which the label changes.

```python
import torch

from leakage.models import mlp
from reproduced.papers.polytopes.subdivision import subdivide

window = 1e4 * torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
shallow = mlp.initial((), (2, 6, 2), generator=torch.Generator().manual_seed(0))  # () = one network
print(len(subdivide(shallow, window)), "linear pieces")  # 6 lines in general position: 1 + 6 + 15 pieces
deep = mlp.initial((), (2, 8, 8, 8, 2), generator=torch.Generator().manual_seed(0))
print("pieces after each of three layers:", *subdivide(deep, window).layer_counts)
```

```text
22 linear pieces
pieces after each of three layers: 37 125 315
```
"""
