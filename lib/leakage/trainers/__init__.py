"""Training of many models at once: ensembles of networks, DP-SGD and what it guarantees.

Trainers take tensors and a generator, and return models in the same precision and on the same device.

```python
import torch

from leakage.models import mlp
from leakage.trainers.ensembles import Examples, MlpEnsemble, Recipe, train

generator = torch.Generator().manual_seed(0)
points, labels = torch.randn(200, 10, generator=generator), torch.randint(2, (200,), generator=generator)
examples = Examples((points,), labels)  # labels are coin flips: nothing to learn
rows = torch.rand(8, 200, generator=generator).argsort(1)[:, :100]  # a random half for each of eight networks
networks = MlpEnsemble.from_mlp(mlp.initial((8,), (10, 50, 2), generator=generator, dtype=torch.float32))
recipe = Recipe(epochs=100, batch=20, learning_rate=0.01)
trained = train(networks, examples, rows, recipe, generator=generator)
right = 1 - trained.compute_losses(examples).wrong.double()
member = torch.zeros(8, 200, dtype=torch.bool).scatter(1, rows, True)
print(f"accuracy on members {right[member].mean():.1f}, on others {right[~member].mean():.1f}")
```

```text
accuracy on members 1.0, on others 0.5
```
"""
