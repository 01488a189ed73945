"""What chapter gradient_inversion computes on a second device (`device_checks`)."""

import torch

import device_checks
from leakage.attacks.gradient_inversion import (
    decompose,
    deep,
    design,
    equations,
    matching,
    moments,
    recover,
    refine,
    relu_decoding,
    span,
    tensor,
)
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.data import gaussians
from leakage.metrics import reconstruction
from leakage.models import clients
from leakage.models.activations import ACTIVATIONS, activation
from leakage.models.clients import Client
from leakage.studies.gradient_inversion import gradient_symmetries, moment_error, rival_decompositions, step_errors
from leakage.studies.gradient_inversion.games import Round
from leakage.theory import hermite
from leakage.trainers import federated
from leakage.trainers.federated import batch_gradient

FEW_STEPS, FEW_SWEEPS = dict(_POWER_STEPS=3, _ALS_SWEEPS=3), dict(_MOST_SWEEPS=6)


class Inputs(device_checks.Inputs):
    """Clients, and what a server sees of them."""

    def moments(self):
        """Moments of a gradient of three inputs, from either layer."""
        weights, inputs = (gaussians.gaussian(size, generator=self.generator) for size in ((60, 4), (3, 4)))
        inner = weights @ inputs.mT
        seen = Observation(weights, activation("tanh"), 0.0, inner.tanh().sum(1), (1 - inner.tanh().square()) @ inputs)
        return moments.of_outputs(seen), moments.of_hidden(seen)

    def client(self, name="tanh", **options):
        """A client, its gradient, and what the server sees; `depth` makes it a stack."""
        kind = clients.DeepStack if "depth" in options else clients.Client
        module = kind(self.pool, activation=name, bias=1.0, **options)
        gradient = federated.batch_gradient(module, self.pool[:2], self.of(1, -1), loss="mean")
        see = deep.effective_observation if "depth" in options else Observation.from_module
        return gradient, see(module, gradient, batch=2, loss="mean")

    def observation(self, name):
        """A server's view of two inputs with residuals 2 and -1."""
        weights, inputs, residuals = (
            gaussians.gaussian((40, 6), generator=self.generator),
            self.pool[:2],
            self.of(2, -1),
        )
        values, slopes = activation(name).derivatives(weights @ inputs.mT, order=1)
        return Observation(weights, activation(name), 3.0, values @ residuals, (slopes * residuals) @ inputs / 40)

    def inverted(self, name, **options):
        found = tensor.reconstruct(self.observation(name), batch=2, generator=self.generator, **options)
        return [found.inputs, found.residuals, found.labels, *vars(found.terms).values()]

    def gradient_of(self, name, *, m=60):
        """What a server sees of two inputs."""
        client = Client(gaussians.gaussian((m, 4), generator=self.generator), activation=name, bias=3.0)
        points = gaussians.sphere(2, 4, generator=self.generator)
        gradient = batch_gradient(client, points, self.of(1, -1), loss="half_sum")
        return Observation.from_module(client, gradient, batch=2, loss="half_sum", activation=name)


CHECKS = {
    "gradient_inversion.recover": lambda x: [
        vars(recover.recover(x.gradient_of(name, m=m), batch=2, generator=x.generator, tries=2))
        for name, m in (("tanh", 60), ("gelu", 60), ("gelu", 8), ("gelu", 5))
    ],
    "gradient_inversion.recover from outputs": lambda x: vars(
        recover.recover(
            Observation((seen := x.gradient_of("tanh")).weights, seen.activation, seen.bias, outputs=seen.outputs),
            batch=2,
            generator=x.generator,
        )
    ),
    "gradient_inversion.polish": lambda x: vars(
        refine.polish(
            equations.HiddenEquations.of(x.gradient_of("gelu"), x.pool[:4, :2]), x.asked[:, :2, :2], norm=1.0, steps=5
        )
    ),
    "gradient_inversion.patterns": lambda x: vars(
        relu_decoding.decode(x.gradient_of("relu"), batch=2, norm=1.0, generator=x.generator)
    ),
    "gradient_inversion.decompose": lambda x: x.shortly(
        lambda: x.shortly(
            lambda: [
                vars(
                    decompose.decompose(
                        decompose.assemble(x.asked[0, :3], x.of(1, 2, -1), order=order),
                        order=order,
                        method=method,
                        contractions=count,
                        generator=x.generator,
                    )
                )
                for order, method, count in (
                    *((order, "joint", count) for order in (3, 4) for count in (9, None)),
                    *((3, method, None) for method in rival_decompositions.METHODS.values()),
                )
            ],
            rival_decompositions,
            **FEW_STEPS,
        ),
        decompose,
        **FEW_SWEEPS,
    ),
    "gradient_inversion.tensor": lambda x: x.shortly(
        lambda: [
            x.inverted(name, source=source, contraction=contraction)
            for name, source, contraction in (
                ("tanh", "outputs", "none"),
                ("tanh", "hidden", "random"),
                ("gelu", "span", "none"),
                ("gelu", "span", "ones"),
            )
        ],
        decompose,
        **FEW_SWEEPS,
    ),
    "activations": lambda x: [sigma.derivatives(x.of(-1, 2), order=4) for sigma in ACTIVATIONS.values()],
    "gradient_inversion.Observation": lambda x: [
        x.client()[0],
        vars(seen := x.client()[1]),
        seen.labels(x.pool[:2], x.of(1, 2)),
    ],
    "gradient_inversion.deep": lambda x: x.shortly(
        lambda: [
            vars(x.client("sigmoid", depth=3)[1]),
            deep.inputs_from(x.of(0.1, 2).view(1, 2), activation("sigmoid"), depth=3, kind="paired"),
            deep.inputs_along(x.of(0.1, 2).view(1, 2), activation("sigmoid"), depth=2, kind="paired"),
        ],
        deep,
        _DOUBLINGS=2,
        _HALVINGS=4,
    ),
    "gradient_inversion.design": lambda x: [
        design.draw(kind, m=8, d=3, generator=x.generator) for kind in design.KINDS
    ],
    "gradient_inversion.matching": lambda x: [
        vars(matching.match(x.client()[1], batch=2, scale=0.4, generator=x.generator, distance=way, iterations=3))
        for way in matching.DISTANCES
    ],
    "gradient_inversion.evaluation": lambda x: [
        reconstruction.matched(x.pool[:3], x.pool[1:4], signs=signs) for signs in (True, False)
    ],
    "gradient_symmetries": lambda x: [
        gradient_symmetries.mirrored(x.pool[:2], x.of(1, 2), activation("tanh"), flips=x.of(1, 0) > 0),
        gradient_symmetries.rotated(x.pool[:2], x.of(1, -2), activation("quadratic"), angle=0.3),
        gradient_symmetries.displaced(x.pool[:2], x.of(1, -2), activation("linear"), shift=x.pool[0]),
    ],
    "gradient_inversion.moments": lambda x: [
        [found.first(), found.second(basis), found.third(basis, basis[:, 0])]
        + [function(basis, order=order) for function in (found.tensor, found.regressed) for order in (3, 4)]
        for found in x.moments()
        for basis in [x.of(*range(8)).view(4, 2)]
    ],
    "gradient_inversion.span": lambda x: [
        (first := span.of_moments(x.moments()[1], batch=2, order=3, generator=x.generator)).basis,
        span.sharpened(x.moments()[1], first).basis,
        *(span.of_rows(x.moments()[1].rows, batch=batch, generator=x.generator).basis for batch in (None, 2)),
    ],
    "gradient_inversion.step_errors": lambda x: [
        step_errors.one_sided(x.client()[1]),
        *(
            step_errors.moment_error(
                Round(x.client()[1], x.pool[:2], x.of(1, -1)), x.pool[:6, :2], source=source, order=order
            )
            for source in step_errors.SOURCES
            for order in step_errors.ORDERS
        ),
    ],
    "hermite": lambda x: [
        hermite.moment(activation("relu"), x.of(1, 2), order=3),
        hermite.gaussian_mean(torch.tanh, device=x.device),
    ],
    "inversion_error": lambda x: [
        moment_error.error(x.of(1)),
        moment_error.span_error(x.of(*range(8)).view(4, 2), x.pool[:, :4]),
        moment_error.outputs_tilt(activation("elu"), x.of(10), x.of(99), batch=2, centre=True, noise=0.1),
        moment_error.hidden_tilt(activation("elu"), x.of(10), x.of(99), batch=2, centre=True),
    ],
}
