"""Run one attack of another tool on saved numbers: `python peer_attacks.py NAME FILE`, in an environment that has it.

It prints JSON: the CPU seconds of the attack, without the import, and what it found. Nothing of ours is imported here.
"""
# pyright: reportMissingImports=false
# The other tools are in an environment of their own.

import json
import logging
import sys
import tempfile
import time
import warnings

import numpy as np

CLASSIFIER_SHARE = 2  # of the rows of either kind one half teaches ART's classifier, the other is judged


def sacro_lira(known):
    """SACRO-ML's online LiRA of the first targets, from the posteriors of the same shadow models."""
    from sacroml.attacks import utils
    from sacroml.attacks.likelihood_attack import LIRAAttack

    labels, member, posteriors, partner = (known[name] for name in ("labels", "member", "posteriors", "partner"))
    true = np.take_along_axis(posteriors, labels[None, :, None], 2)[..., 0]

    def attack():
        scores = []
        for target in range(int(known["targets"])):
            shadows = [model for model in range(len(member)) if model not in (target, partner[target])]
            logits = {model: [utils.logit(p) for p in true[model]] for model in shadows}
            inside, outside = (
                {row: [logits[m][row] for m in shadows if member[m, row] == kind] for row in range(len(labels))}
                for kind in (True, False)
            )
            one = LIRAAttack(output_dir=tempfile.mkdtemp(), write_report=False, mode="online-carlini")
            found = one._compute_scores(labels, posteriors[target], outside, inside)[0]
            scores.append([score[1] for score in found])
        return {"scores": scores}

    return attack


def sacro_quantiles(known):
    """SACRO-ML's quantile regression on the first target, with a model that repeats the saved posteriors."""
    from sacroml.attacks.qmia_attack import QMIAAttack
    from sacroml.attacks.target import Target
    from sklearn.base import BaseEstimator, ClassifierMixin

    labels, inside, posteriors = known["labels"], known["member"][0], known["posteriors"][0]

    class Saved(ClassifierMixin, BaseEstimator):
        classes_ = np.arange(posteriors.shape[1])

        def predict_proba(self, rows):
            return posteriors[rows[:, -1].astype(int)]

    rows = np.column_stack([known["x"], np.arange(len(labels))])
    target = Target(
        model=Saved(), X_train=rows[inside], y_train=labels[inside], X_test=rows[~inside], y_test=labels[~inside]
    )

    def attack():
        one = QMIAAttack(output_dir=tempfile.mkdtemp(), write_report=False, report_individual=True)
        one.attack(target)
        scores = np.empty(len(labels))
        scores[np.concatenate([np.flatnonzero(inside), np.flatnonzero(~inside)])] = one.attack_metrics[0]["individual"][
            "margin"
        ]
        return {"scores": [scores.tolist()]}

    return attack


def art_black_box(known):
    """ART's black-box attack on the first target: a forest learns from every second row how members look."""
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
    from art.estimators.classification import BlackBoxClassifier

    labels, inside, posteriors = known["labels"], known["member"][0], known["posteriors"][0]
    rows, classes = np.arange(len(labels), dtype=float)[:, None], posteriors.shape[1]
    taught = np.arange(len(labels)) % CLASSIFIER_SHARE == 0

    def attack():
        model = BlackBoxClassifier(lambda some: posteriors[some[:, 0].astype(int)], (1,), classes)
        one = MembershipInferenceBlackBox(model, attack_model_type="rf")
        parts = [taught & inside, taught & ~inside]
        one.fit(*(table[part] for part in parts for table in (rows, np.eye(classes)[labels])))
        scores = one.infer(rows[~taught], np.eye(classes)[labels[~taught]], probabilities=True)
        return {"scores": [scores.ravel().tolist()], "rows": np.flatnonzero(~taught).tolist()}

    return attack


def jax_epsilon(known, kind):
    """jax_privacy's bounds of ε of each run, at thresholds that it chooses."""
    from jax_privacy import auditing

    def attack():
        found = []
        for scores, coins in zip(known["noisy"], known["coins"], strict=True):
            auditor = auditing.CanaryScoreAuditor(scores[coins], scores[~coins])
            found.append(float(getattr(auditor, kind)(significance=0.05, delta=float(known["delta"]))))
        return {"bounds": found}

    return attack


ATTACKS = {
    "sacro_lira": sacro_lira,
    "sacro_quantiles": sacro_quantiles,
    "art_black_box": art_black_box,
    "jax_one_run": lambda known: jax_epsilon(known, "epsilon_one_run"),
    "jax_f_dp": lambda known: jax_epsilon(known, "epsilon_one_run_fdp"),
}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    name, file = sys.argv[1:]
    with np.load(file) as saved:
        attack = ATTACKS[name](dict(saved))
    start = time.process_time()
    found = attack()
    print(json.dumps({"seconds": time.process_time() - start, **found}))
