"""Any model that gives logits can be asked: a module, an estimator, a function."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from leakage.draws import gaussian
from leakage.membership import label_only
from leakage.models import classifier
from leakage.models.classifier import EstimatorClassifier, ModuleClassifier
from reproduced.runtime import stream

EPSILON = torch.finfo(torch.float64).eps


def points(count: int = 40, dimension: int = 5, *, name: str = "points") -> torch.Tensor:
    return gaussian((count, dimension), generator=stream(0, name))


def module() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def test_a_module_is_asked_in_evaluation_mode_and_stays_as_it_was(monkeypatch):
    monkeypatch.setattr(classifier, "_POINTS_AT_ONCE", 7)
    model = module().train()
    model[3].eval()  # part of it may be fixed
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = ModuleClassifier(model)(points())
    assert (found.dtype, found.shape, found.requires_grad) == (torch.float64, (40, 3), False)
    assert [part.training for part in model.modules()] == [True, True, True, True, False, True]
    torch.testing.assert_close(dict(model.state_dict()), state)
    torch.testing.assert_close(found, model.eval()(points().float()).double(), rtol=1e-5, atol=1e-6)


def test_a_module_of_doubles_is_asked_in_doubles():
    model = nn.Sequential(nn.Linear(5, 2)).double()
    torch.testing.assert_close(ModuleClassifier(model)(points()), model(points()).detach(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("last", [nn.Identity(), nn.Flatten(0)], ids=["(t, 1)", "(t)"])
def test_one_output_of_a_module_stands_for_two_logits(last):
    module = nn.Sequential(nn.Linear(5, 1), last).double()
    found = ModuleClassifier(module)(points())
    torch.testing.assert_close(found[:, 1], module(points()).detach().flatten())
    torch.testing.assert_close(found[:, 0], torch.zeros(len(points())).double())


def test_an_estimators_logits_are_the_logarithms_of_its_posteriors():
    inputs, labels = points(200).numpy(), (points(200)[:, 0] > 0).long().numpy()
    fitted = LogisticRegression().fit(inputs, labels)
    found = EstimatorClassifier(fitted)(points())
    odds = found[:, 1] - found[:, 0]
    np.testing.assert_allclose(odds, fitted.decision_function(points().numpy()), atol=1e-9)
    tree = EstimatorClassifier(DecisionTreeClassifier().fit(inputs, labels))(points())
    assert tree.unique().tolist() == pytest.approx([math.log(EPSILON), 0.0])


@pytest.mark.parametrize(
    "network",
    [ModuleClassifier(nn.Flatten(0)), lambda x: x[:, :1]],
    ids=["no classes", "a function"],
)
def test_what_gives_no_logits_is_refused(network):
    with pytest.raises(ValueError, match=r"two classes or more, got .* stands for the two logits 0 and o"):
        label_only.noise_robustness(
            network, points(), torch.zeros(40).long(), amount=0.1, copies=2, noise="gaussian", generator=stream(0, "n")
        )


@pytest.mark.parametrize("classes", [[0, 2, 3], [1, 0, 2], [0, 1]])
def test_classes_ascend_and_hold_those_of_the_estimator(classes):
    tree = DecisionTreeClassifier(random_state=0).fit(np.arange(9.0)[:, None], np.repeat([0, 1, 2], 3))
    with pytest.raises(ValueError, match="`classes` must ascend"):
        EstimatorClassifier(tree, np.array(classes))(torch.tensor([[4.0]]))
