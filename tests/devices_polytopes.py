"""What chapter polytopes computes on a second device (`device_checks`).

Trainers of whole tasks draw from streams of their own, which the pretended device does not have; what they are made of
is checked here and in the other chapters.
"""

import device_checks
from leakage.attacks.membership import attack_models, boundary_distance, calibration, hyperedges, label_only, posterior
from leakage.attacks.membership.attack_models import Settings
from leakage.data import gaussians
from leakage.geometry import boundary, distances, jacobian_norms, patterns, rays, row_space
from leakage.geometry.subdivision import subdivide
from leakage.models import mlp
from leakage.studies.polytopes import (
    boundary_walk,
    clusters,
    densities,
    movement,
    norm_ridges,
    path_formula,
    printed_search,
    ray_cuts,
    theorem_checks,
    windows,
)
from leakage.trainers.ensembles import Recipe


class Inputs(device_checks.Inputs):
    """A network on more inputs than neurons, deep ones in the plane, points, labels and memberships."""

    def __init__(self, device, generator):
        super().__init__(device, generator)
        self.network = mlp.initial((), (6, 4, 3), generator=generator)
        self.logits = self.network(self.pool)
        self.labels = self.logits.argmin(-1)
        self.member = self.pool[:, 0] > self.pool[:, 0].median()
        self.members = (self.pool[:10].mT > 1.2).expand(6, 10)
        self.rays = hyperedges.directions(self.pool, rays=2, generator=generator)
        self.aims = self.rays[:, 0]
        self.deep, self.other = (mlp.initial((), (2, 5, 4, 2), generator=generator) for _ in range(2))
        self.flat = self.pool[:, :2]
        self.square = windows.corners(device=device)

    @property
    def fine(self):
        return subdivide(self.deep, self.square)


QUICK = Settings(hidden=4, recipe=Recipe(epochs=1, batch=10))
CHECKS = {
    "posteriors": lambda x: (
        posterior.top(x.logits),
        posterior.top_logits(x.logits),
        posterior.margin(x.logits, x.labels),
        posterior.correct(x.logits, x.labels),
    ),
    "row space": lambda x: (row_space.row_space(x.network)[1], row_space.first_change(x.network, x.pool, -x.pool)),
    "deepfool": lambda x: (
        *boundary_distance.deepfool(x.network, x.pool),
        boundary_distance.certified_radius(x.network, x.pool),
    ),
    "hyperedges": lambda x: (*hyperedges.shoot(x.network, x.pool, x.rays, boundaries=2),),
    "walks": lambda x: tuple(
        part
        for variant in boundary_walk.VARIANTS
        for part in boundary_walk.walk(x.network, x.pool, boundary_walk.Steps(variant=variant, iterations=3))
    ),
    "walks by other losses": lambda x: tuple(
        boundary_walk.walk(x.network, x.pool, boundary_walk.Steps(loss=loss, iterations=3)).distances
        for loss in boundary_walk.LOSSES
    ),
    "labels only": lambda x: (
        *label_only.hop_skip_jump(
            x.network, x.pool, -x.pool, jumps=label_only.Jumps(iterations=1, directions=5), generator=x.generator
        ),
        label_only.noise_robustness(
            x.network, x.pool, x.labels, amount=0.1, copies=3, noise="gaussian", generator=x.generator
        ),
    ),
    "attack networks": lambda x: tuple(
        attack_models.networks(
            {"a": x.pool, "b": x.logits}, x.member, {"a": x.pool, "b": x.logits}, settings=QUICK, generator=x.generator
        ).values()
    ),
    "calibration": lambda x: calibration.calibrated(x.pool[:10].mT, x.pool[:10].mT > 1.5, without=1),
    "patterns": lambda x: (
        *patterns.pattern(x.network, x.pool),
        *(part for parts in patterns.adapted(x.network, patterns.pattern(x.network, x.pool)) for part in parts),
        *theorem_checks.printed_biases(x.deep, patterns.pattern(x.deep, x.flat)),
    ),
    "norms and distances": lambda x: (
        jacobian_norms.frobenius_norm(x.deep, patterns.pattern(x.deep, x.flat)),
        jacobian_norms.frobenius_norm(x.network, patterns.smooth(x.network, x.pool)),
        *jacobian_norms.row_norms(x.network, patterns.pattern(x.network, x.pool)),
        *distances.nearest(x.deep, x.flat, count=2),
    ),
    "rays": lambda x: (
        rays.walk(x.network, x.pool, x.aims, crossings=2).lengths,
        ray_cuts.all_breaks(x.network, x.pool, x.aims, until=3.0).lengths,
        rays.label_change(x.network, x.pool, x.aims, until=3.0),
        ray_cuts.label_change_by_breaks(x.network, x.pool, x.aims, until=3.0),
        *printed_search.bisection(x.network, x.pool, x.aims, steps=5),
    ),
    "subdivision": lambda x: (
        x.fine.vertices,
        x.fine.owners,
        x.fine.maps,
        x.fine.areas,
        x.fine.weight_norms,
        x.fine.bias_norms,
        x.fine.locate(x.flat),
        *x.fine.hyperedges(),
        norm_ridges.gradient_order(x.fine),
        *theorem_checks.refinement(x.deep, x.fine),
    ),
    "decision boundary": lambda x: (
        (found := boundary.decision_boundary(x.fine)).segments,
        found.classes,
        found.distance(x.flat),
        found.component_of,
    ),
    "densities": lambda x: (
        *densities.by_distance(x.fine, x.flat, edges=(0.0, 0.1), lattice=windows.lattice(4, device=x.device)),
        *densities.in_discs(x.fine, x.flat, radius=0.2),
    ),
    "movement": lambda x: movement.moves(x.deep, x.other, x.flat),
    "Clusters2D": lambda x: (
        *(data := clusters.draw(clusters.Layout(pairs=2, points=3), generator=x.generator)),
        data.middles,
        data.walls,
    ),
    "one early gradient": lambda x: path_formula.early_gradient(
        gaussians.gaussian((4, 3, 2, 2), generator=x.generator), x.flat[:4], x.flat[4:8]
    ),
}
