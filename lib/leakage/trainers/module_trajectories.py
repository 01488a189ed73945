r"""Networks of any one module watched while they train: every network's losses on the whole pool, epoch by epoch.

What `studies.blessing.early_stopping` records for fully connected networks, for any module and criterion: the networks
are in complementary pairs on a pool, and other examples validate. Nothing here attacks or reads a file.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leakage.data.membership_splits import complementary_pairs
from leakage.models.initialisation import Stack, initial
from leakage.trainers import module_ensembles
from leakage.trainers.criteria import Criterion, Examples
from leakage.trainers.ensemble_checkpoints import Checkpoint
from leakage.trainers.ensembles import Recipe, Recorder
from leakage.trainers.module_ensembles import Augment


def trajectories(
    module: nn.Module,
    pool: Examples,
    validation: Examples,
    recipe: Recipe,
    *,
    models: int,
    criterion: Criterion,
    epochs: Sequence[int],
    draws: torch.Generator,
    starts: torch.Generator,
    start: Stack | None = None,
    augment: Augment | None = None,
    checkpoint: Checkpoint | None = None,
    description: str | None = None,
    route: str = "auto",
    together: int | None = None,
) -> dict[str, Tensor]:
    r"""Train networks on halves of a pool and record what an attacker may look at.

    Args:
        module: the form of the networks.
        pool: examples that members and outsiders come from, an even number.
        validation: other examples.
        recipe: of the training.
        models: in complementary pairs.
        criterion: what is minimised and what counts as wrong.
        epochs: when to record.
        draws: of the pairs; with equal draws, networks of different forms can be compared one by one.
        starts: of the initial networks, the shuffles and `augment`.
        start: the initial networks, for modules that `initialisation.initial` does not know.
        augment: changes the inputs of a batch anew each time; see `module_ensembles.train`.
        checkpoint: lets a long training resume.
        description: text of a progress bar; none by default.
        route: see `module_ensembles.train`.
        together: see `module_ensembles.train`.

    Returns:
        `losses` on the pool (epochs, models, pool), each divided by its number of answers; `error`, the share of wrong
        answers to the validation examples (epochs, models); `validation_loss`, the mean over these examples (epochs,
        models); `member` (models, pool), `partner` (models) and `epochs`.

    Raises:
        ValueError: as `module_ensembles.train`, `initialisation.initial` and `complementary_pairs`.
    """
    pairs = complementary_pairs(len(pool), models, generator=draws)
    networks = initial(module, models, generator=starts) if start is None else start

    def measure(seen: Stack) -> dict[str, Tensor]:
        found, other = (
            module_ensembles.scores(module, seen, asked, criterion=criterion, route=route, together=together)
            for asked in (pool, validation)
        )
        return {
            "losses": found.losses / found.answers,
            "error": other.wrong.sum(-1).double() / other.answers.sum(-1),
            "validation_loss": (other.losses / other.answers).mean(-1),
        }

    watch = Recorder(measure)  # pyright: ignore[reportArgumentType]
    module_ensembles.train(
        module,
        networks,
        pool,
        pairs.rows,
        recipe,
        criterion=criterion,
        generator=starts,
        augment=augment,
        observe=watch,
        epochs_observed=epochs,
        checkpoint=checkpoint,
        description=description,
        route=route,
        together=together,
    )
    return watch.stacked() | {"member": pairs.member, "partner": pairs.partner}
