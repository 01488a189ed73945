"""What each attack of the table costs, in units of asking every model about every point once.

`python benchmarks/attack_costs.py [--record]` prints a table and writes it to `attack_costs.md`. The targets are the
perceptrons of the page "Side by side". CPU time of one thread, the least of seven runs, each on models that were asked
nothing yet; so an attack that reads the losses costs 1 at least, and one that reads outputs only may cost less.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from leakage.data import tabular
from leakage.membership.table import ATTACKS
from leakage.membership.trained_models import TrainedModels
from reproduced import runtime
from reproduced.claims.texts import table
from reproduced.papers.side_by_side import targets
from timing import one_thread, wants_record

RECORD = Path(__file__).with_suffix(".md")
HEADS = ("attack", "sees", "CPU time, in answers of all models at all points")
ROUNDS = 7


def costs(models: TrainedModels) -> list[tuple[str, str, str]]:
    """A row for each attack, from the cheapest to the dearest."""
    asking = _least_seconds(models, lambda fresh, _: fresh.losses)
    found = {name: _least_seconds(models, entry.score) / asking for name, entry in ATTACKS.items()}
    return [
        (name, ATTACKS[name].sees, f"{cost:,.2g}" if cost < 10 else f"{cost:,.0f}")
        for name, cost in sorted(found.items(), key=lambda one: one[1])
    ]


def _least_seconds(models: TrainedModels, score: Callable) -> float:
    seconds = []
    for _ in range(ROUNDS):
        fresh, draws = replace(models), runtime.stream(0, "attack costs")
        began = time.process_time()
        score(fresh, draws)
        seconds.append(time.process_time() - began)
    return min(seconds)


if __name__ == "__main__":
    recorded = wants_record(None, "Time every attack of the table.", RECORD.name)
    digits, run = tabular.load("digits"), runtime.begin(device="cpu")
    models = targets.train_models("MLP", digits, points=500, models=12, name="digits", run=run)
    with one_thread():
        text = table(HEADS, costs(replace(models, features=models.rows)))
    print(text)
    if recorded:
        about = "Twelve perceptrons on 500 digits, 64 hidden neurons; `python benchmarks/attack_costs.py --record`."
        RECORD.write_text(f"# What each attack costs\n\n{about}\n\n{text}", "utf-8")
