"""Data: the public sets (`datasets`), their loaders and strict parsers, Gaussian samplers and splits into members.

Nothing here trains. Loaders return CPU tensors or strings, read only payloads whose SHA-256 was checked, and never open
a pickle. A name that is unknown raises `ValueError`, a set that is not here `DataAbsent`, a file with other content, or
which a parser finds malformed, `DataDamaged`.

```python
import torch

from leakage.data.membership_splits import complementary_pairs

generator = torch.Generator().manual_seed(0)
pairs = complementary_pairs(points=100, models=8, generator=generator)
print("of 8 models, those trained on a point:", set(pairs.member.sum(0).tolist()))
```

```text
of 8 models, those trained on a point: {4}
```
"""
