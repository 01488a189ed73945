"""Reconstructing a batch from the gradient that a client returns to a server which chose the model.

`recover` finds the batch of a two-layer network and certifies it. `tensor_attack` is the paper's attack, and
`own_modules` takes modules of your own. `federated` has the client, `reconstruction` compares batches.

```python
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.federated import Client, batch_gradient
from leakage.inversion.observation import Observation
from leakage.inversion.recover import recover

generator = torch.Generator().manual_seed(0)
inputs, labels = sphere(4, 20, generator=generator), gaussian((4,), generator=generator)
client = Client(gaussian((200, 20), generator=generator), activation="softplus")
gradient = batch_gradient(client, inputs, labels, loss="half_sum")  # all that the server receives
observation = Observation.from_module(client, gradient, batch=4, loss="half_sum")
found = recover(observation, batch=4, generator=generator)
error = torch.cdist(inputs, found.inputs).amin(1).max()  # the order of the batch is lost
print("largest error of an input below 1e-10:", bool(error < 1e-10))
```

```text
largest error of an input below 1e-10: True
```
"""
