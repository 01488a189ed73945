"""What a function of the attacks on margins and gradients cannot use is refused, by the name of the argument.

A table says how each function is called well. Every tensor in it is spoilt in every way: what has no meaning is never
taken, and no shape, dtype or value ever meets an error of PyTorch's.
"""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch

from leakage.attacks import line_reconstruction
from leakage.attacks.gradient_inversion import decompose, deep, design, equations, moments, refine, span
from leakage.attacks.gradient_inversion.matching import match
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.attacks.gradient_inversion.recover import recover
from leakage.attacks.gradient_inversion.tensor import reconstruct
from leakage.attacks.membership import margin
from leakage.data.gaussians import gaussian
from leakage.metrics import reconstruction
from leakage.models import clients, two_layer
from leakage.models.activations import activation
from leakage.runtime import DTYPE, stream
from leakage.studies.gradient_inversion import games
from leakage.theory import hermite
from leakage.theory.kkt import bounds, conditions, optimum
from leakage.theory.piecewise_linear import PiecewiseLinear, from_network
from leakage.trainers import federated, margin_flow, module_flow
from leakage.trainers.margin_flow import Descent

M, D, B = 40, 4, 2
TANH = activation("tanh")


def drawn(*shape):
    return gaussian(shape, generator=stream(0, f"refusals/{shape}"))


def signs(*shape):
    return (-torch.ones(shape, dtype=DTYPE)).cumprod(-1)


def sizes(*shape):
    return drawn(*shape).abs() + 2


def network(*, width=3, d=D):
    return two_layer.TwoLayer(drawn(width, d), sizes(width), drawn(width))


def attack(function, **options):
    options = {"batch": B, "norm": 1.0, **options}
    return function(SEEN, generator=stream(0, "refusals"), **options)


SEEN = games.play(games.Game(D, M, batch=B, activation="tanh", inputs="sphere"), seed=0).observation
ROWS = equations.HiddenEquations(TANH, drawn(M, B), drawn(M, B))
GEOMETRY = bounds.Geometry.of(10 * torch.eye(3, D, dtype=DTYPE))
KINKS = from_network(network(d=1))
MODULE = torch.nn.Sequential(torch.nn.Linear(D, 1), torch.nn.Flatten(0)).double()
STACK = {name: part.detach().unsqueeze(0) for name, part in MODULE.named_parameters()}
TRAIN = partial(module_flow.train, MODULE, STACK, descent=Descent(steps=2))


def case(function: Callable, fine: str = "", **tensors: torch.Tensor) -> tuple[Callable, dict, list[str]]:
    """A function with good tensors, and the ways to spoil them that have a meaning: of all, or of one of them."""
    return function, tensors, fine.split(", ")


CASES = {
    "margin_of": case(margin.margin_of, "rank, leading, longer", targets=drawn(3, 5)),
    "share_on": case(margin.share_on, "rank margin, leading, longer outputs", outputs=drawn(3, 5), margin=sizes(3)),
    "share_above": case(
        margin.share_above, "rank margin, leading, longer outputs", outputs=drawn(3, 5), margin=sizes(3)
    ),
    "known_margin": case(
        margin.known_margin, "empty outputs, rank margin, leading, longer outputs", outputs=drawn(3, 5), margin=sizes(3)
    ),
    "leaked_point": case(margin.leaked_point, "rank, leading, longer", outputs=drawn(3, 5)),
    "shadow_margin": case(margin.shadow_margin, "rank, leading, longer", margins=sizes(4)),
    "size_score": case(margin.size_score, "any", outputs=drawn(5)),
    "distance_score": case(
        margin.distance_score, "rank margin, leading", outputs=drawn(3, 5), margin=sizes(3), labels=signs(3, 5)
    ),
    "loss_score": case(margin.loss_score, "float32 outputs, leading", outputs=drawn(5), labels=signs(5)),
    "Observation": case(
        partial(Observation, activation=TANH),
        weights=drawn(M, D),
        outputs=drawn(M),
        hidden=drawn(M, D),
        readout=sizes(M),
    ),
    "of_rows": case(partial(span.of_rows, batch=1, generator=stream(0, "rows")), "longer", gradient=drawn(M, D)),
    "decompose": case(partial(decompose.decompose, generator=stream(0, "terms")), "leading", tensor=drawn(2, 2, 2)),
    "match_error": case(reconstruction.match_error, "nan found, inf found", found=drawn(B, D), truth=drawn(B, D)),
    "polish": case(partial(refine.polish, ROWS, steps=1), points=drawn(3, B, B), residuals=drawn(3, B)),
    "HiddenEquations": case(partial(equations.HiddenEquations.of, SEEN), "empty, longer", basis=drawn(D, B)),
    "tensor": case(moments.of_hidden(SEEN).tensor, "empty, longer", basis=drawn(D, B)),
    "inputs_from": case(
        partial(deep.inputs_from, activation=TANH, depth=2, kind="plain"), "inf, empty, longer", features=drawn(B, D)
    ),
    "inputs_along": case(
        partial(deep.inputs_along, activation=TANH, depth=2, kind="plain"), "longer", directions=drawn(B, D)
    ),
    "match": case(
        partial(match, SEEN, batch=B, scale=0.5, iterations=2, generator=stream(0, "match")), labels=signs(B)
    ),
    "batch_gradient": case(
        partial(federated.batch_gradient, clients.Client(drawn(M, D), activation="tanh"), loss="sum"),
        inputs=drawn(B, D),
        labels=signs(B),
    ),
    "client": case(partial(clients.Client, activation="tanh"), "longer", weights=drawn(M, D)),
    "DeepStack": case(partial(clients.DeepStack, activation="tanh", depth=2), "longer", weights=drawn(M, D)),
    "moment": case(partial(hermite.moment, TANH, order=3), "any", norm=sizes(3)),
    "Geometry.of": case(bounds.Geometry.of, "rank, leading, longer", points=drawn(3, D)),
    "delta_x": case(GEOMETRY.delta_x, "float32, rank, leading", products=drawn(5, 3)),
    "activation_ceiling": case(partial(bounds.activation_ceiling, GEOMETRY), "any", margin=sizes(3)),
    "activation_floor": case(partial(bounds.activation_floor, GEOMETRY), "any", margin=sizes(3)),
    "check": case(margin_flow.check, "empty points, longer points", points=drawn(3, D), labels=signs(3)),
    "train": case(partial(margin_flow.train, network(), descent=Descent(steps=2)), points=drawn(3, D), labels=signs(3)),
    "train a module": case(TRAIN, points=drawn(1, 3, D), labels=signs(1, 3)),
    "TwoLayer": case(
        two_layer.TwoLayer,
        "nan, inf, empty weights, longer weights",
        weights=drawn(3, D),
        biases=drawn(3),
        outputs=drawn(3),
    ),
    "a network": case(network(), "nan, inf, leading", points=drawn(5, D)),
    "PiecewiseLinear": case(
        PiecewiseLinear, nodes=drawn(3).sort().values, values=drawn(3), left_slope=drawn(1)[0], right_slope=drawn(1)[0]
    ),
    "a function": case(KINKS, "inf, any", points=drawn(3)),
    "univariate": case(optimum.univariate, "float32", points=drawn(3), labels=signs(3)),
    "orthant": case(optimum.orthant, "float32, longer points", points=drawn(3, D), labels=signs(3)),
    "single": case(partial(optimum.single, label=1), "longer", point=drawn(D)),
}


def first(value, found):
    return torch.where(torch.arange(value.numel()).reshape(value.shape) == 0, found, value)


VALUES = {
    "list": lambda value: value.tolist(),
    "whole": lambda value: value.long(),
    "nan": lambda value: first(value, math.nan),
    "inf": lambda value: first(value, math.inf),
    "float32": lambda value: value.float(),
}
SHAPES = {
    "empty": lambda value: value[..., :0] if value.ndim else value.new_zeros(0),
    "rank": lambda value: value.unsqueeze(-1).expand(*value.shape, 3),
    "leading": lambda value: value.expand(7, *value.shape),
    "longer": lambda value: torch.cat([value, value[..., :1]], dim=-1) if value.ndim else value.expand(2),
}


def spoilt(name, spoil):
    """What a function says to each of its tensors spoilt alone: (argument, an error of ours or None)."""
    function, tensors, _ = CASES[name]
    for argument, value in tensors.items():
        try:
            function(**{**tensors, argument: spoil(value)})
        except (ValueError, TypeError) as error:
            yield argument, str(error)
        else:
            yield argument, None


@pytest.mark.parametrize("name", CASES)
def test_what_is_good_is_taken(name):
    function, tensors, _ = CASES[name]
    function(**tensors)


def meant(name, way, argument):
    """Whether an argument that is spoilt in this way has a meaning all the same."""
    _, tensors, fine = CASES[name]
    ways = {way, f"{way} {argument}", "any" if way in SHAPES else way}
    lone = way == "float32" and len(tensors) == 1  # nothing says in what precision it ought to be
    labels = argument == "labels" and way in ("whole", "float32")  # signs are signs in every dtype
    return lone or labels or not ways.isdisjoint(fine)


@pytest.mark.parametrize("way", [*VALUES, *SHAPES])
@pytest.mark.parametrize("name", CASES)
def test_what_has_no_meaning_is_refused_by_name(name, way):
    for argument, said in spoilt(name, VALUES.get(way) or SHAPES[way]):
        assert said is not None or meant(name, way, argument), f"`{argument}` was taken"
        assert said is None or way in VALUES or not meant(name, way, argument), said
        # Of two arguments that do not fit together, one is named: nobody knows which of them is wrong.
        related = (*CASES[name][1], "model", "module", "batch", "size") if way in SHAPES or way == "float32" else ()
        assert said is None or any(f"`{known}`" in said for known in (argument, *related)), said


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": 1.5}, {"batch": D + 1}, {"norm": math.nan}, {"norm": 0.0}])
@pytest.mark.parametrize("function", [recover, reconstruct])
def test_what_an_attacker_cannot_claim_is_refused_by_name(function, wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be"):
        attack(function, **wrong)


@pytest.mark.parametrize(
    ("function", "good", "wrong"),
    [
        (partial(design.draw, generator=stream(0, "draw")), {"kind": "iid", "m": 4, "d": 2}, {"m": 2.0, "d": 0}),
        (Descent, {"steps": 3}, {"steps": 1.5, "margin": math.nan, "learning_rate": -1.0, "growth": math.inf}),
        (partial(conditions.check, network(), drawn(3, D), signs(3)), {}, {"kinks": math.nan}),
        (partial(bounds.output_bound, GEOMETRY, sizes(1), sizes(1)[0]), {}, {"factor": 3}),
        (partial(from_network, network(d=1)), {}, {"tolerance": math.nan}),
        (partial(hermite.route, TANH), {}, {"norm": math.inf}),
        (partial(line_reconstruction.from_crossing, network(width=1, d=1)), {"margin": 1.0}, {"margin": math.nan}),
    ],
)
def test_a_number_that_is_none_is_refused_by_name(function, good, wrong):
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            function(**{**good, name: value})
