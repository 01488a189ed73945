r"""ResNet18 ensembles on CIFAR-10, watched while they train.

The experiment of Tan et al. (2023), section F, for one width: halves of a pool, random shifts and mirror images, Adam.
It is meant for a GPU and for a reader who has CIFAR-10; every size is an argument, so that a test can run it small.
Split number and seed fix pool and pairs, so that widths are compared on the same images. Nothing here attacks.
"""

from collections.abc import Sequence

import torch

from leakage import arguments
from leakage.data.augmentation import shift_and_flip
from leakage.data.cifar10 import CLASSES, ColourImages, standardised
from leakage.data.membership_splits import complementary_pairs
from leakage.models.initialisation import initial
from leakage.models.residual import ResNet18
from leakage.runtime import stream
from leakage.studies.blessing import trajectories
from leakage.studies.blessing.trajectories import Trajectory
from leakage.trainers import criteria
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.modules import Modules

PAPER = Recipe(epochs=256, batch=128, learning_rate=1e-4)
"""50,000 steps on 25,000 images, rounded up to whole epochs of 196 steps (Tan et al. 2023, section F)."""


def watched(
    point: tuple[int, int],
    *,
    training: ColourImages,
    validation: ColourImages,
    pool: int,
    models: int,
    recipe: Recipe,
    epochs: Sequence[int],
    seed: int,
    device: torch.device | str = "cpu",
    route: str = "auto",
    together: int | None = None,
) -> Trajectory:
    r"""Train `models` networks on halves of a pool of images and record losses and errors.

    Losses are taken on the images as they are, in evaluation mode, as an attacker without knowledge of the
    augmentation would. Colours are standardised by the pool, which holds members and outsiders alike.

    Args:
        point: the width w, and the number of the split: another one has another pool, other pairs and networks.
        training: images that the pool is drawn from.
        validation: other images.
        pool: how many images members and outsiders come from.
        models: in complementary pairs.
        recipe: of the training; the paper's is `PAPER`.
        epochs: when to record.
        seed: of all randomness.
        device: where to compute.
        route: see `Modules`.
        together: networks at once; w = 64 needs some 2 GiB of a GPU for each.

    Raises:
        ValueError: if the pool is larger than the training images, or as `ResNet18`, `complementary_pairs`, `Modules`
            and `trajectories.watch`.
    """
    width, split = point
    arguments.count("pool", pool, least=1, most=len(training))
    order = torch.randperm(len(training), generator=stream(seed, f"image pool/{split}"))[:pool]
    images, labels = training.images[order].to(device), training.labels[order].to(device)
    others = standardised(validation.images.to(device), like=images)
    module, draws = ResNet18(width, classes=len(CLASSES)), stream(seed, f"residual networks/{split}/{width}", device)
    stack = initial(module, models, generator=draws)
    return trajectories.watch(
        Modules(module, stack, criterion=criteria.classes, route=route, together=together),
        Examples((standardised(images, like=images),), labels),
        Examples((others,), validation.labels.to(device)),
        recipe,
        pairs=complementary_pairs(pool, models, generator=stream(seed, f"image pairs/{split}", device)),
        epochs=epochs,
        generator=draws,
        augment=shift_and_flip,
        description=f"ResNet18({width})",
    )
