"""Data: the public sets (`datasets`), their loaders and strict parsers, synthetic laws and splits into members.

Nothing here trains. Loaders return CPU tensors or strings, read only payloads whose SHA-256 was checked, and never open
a pickle. A name that is unknown raises `ValueError`, a set that is not here `DataAbsent`, a file with other content, or
which a parser finds malformed, `DataDamaged`.

```python
import torch

from leakage.data.membership_splits import complementary_pairs
from leakage.data.mixtures import draw_sample

generator = torch.Generator().manual_seed(0)
sample = draw_sample("sphere", rows=100, fresh=10, dimension=10**6, runs=1, generator=generator)
cosines = sample.train[0] @ sample.train[0].T / sample.dimension
print("coordinates of 100 points in 10^6 dimensions:", sample.train.shape[-1])
print(f"largest cosine of two points: {cosines.fill_diagonal_(0).abs().max():.2f}")
pairs = complementary_pairs(points=100, models=8, generator=generator)
print("of 8 models, those trained on a point:", set(pairs.member.sum(0).tolist()))
```

```text
coordinates of 100 points in 10^6 dimensions: 100
largest cosine of two points: 0.00
of 8 models, those trained on a point: {4}
```
"""
