"""Run by `test_audit_training` in a process of its own: modules on the second device are audited and inverted."""

import sys

import torch
from torch import nn

from leakage import audit, invert
from leakage.data.membership_splits import complementary_pairs
from leakage.membership.trained_models import TrainedModels
from leakage.trainers.ensembles import Recipe
from second_device import CPU, DEVICE, SecondDevice

DRAWS = torch.Generator().manual_seed(0)
X = torch.rand(60, 8, generator=DRAWS)
Y = torch.randint(0, 3, (60,), generator=DRAWS)
RECIPE = Recipe(epochs=5, batch=10, learning_rate=0.05)
seen = []


def factory():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def train(module, rows, labels):
    seen.extend(part.device for part in (rows, labels, *module.parameters()))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5, foreach=False)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(rows), labels).backward()
        optimiser.step()


def audited(how, **more):
    found = audit.of_module(factory, how, X, Y, models=6, fprs=(0.1,), recipe=None if how else RECIPE, **more)
    models = found.evaluation.models
    assert {table.device for table in (models.saved_losses, models.member, models.saved_correct)} == {CPU}
    return found


def of_modules(device):
    pairs = complementary_pairs(60, 6, generator=torch.Generator().manual_seed(1))
    plain = [factory().to(device) for _ in range(6)]
    for points in (X, X.to(device)):
        for modules in (plain, [nn.Sequential(one, nn.Tanh()) for one in plain]):
            models = TrainedModels.from_modules(modules, points, Y, pairs.member, pairs.partner)
            assert models.losses.device == points.device
            assert audit.of_models(models).evaluation.models.saved_losses.device == CPU


def of_gradient(device):
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    loss = nn.functional.cross_entropy(module(X[:1].to(device)), Y[:1].to(device))
    gradient = [part.cpu() for part in torch.autograd.grad(loss, list(module.parameters()))]
    found = invert(module, gradient, batch=1, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.inputs.cpu(), X[:1].double(), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    near = str(audited(train, folder=sys.argv[1] + "/kept")), str(audited(None))
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # a wrapped tensor cannot change in place
    with SecondDevice():
        seen.clear()
        assert str(audited(train, device=DEVICE, folder=sys.argv[1] + "/kept")) == near[0]
        assert {*seen} == {DEVICE}, "trained anew there, on rows and weights there"
        assert str(audited(None, device=DEVICE)) == near[1]
        of_modules(DEVICE)
        of_gradient(DEVICE)
