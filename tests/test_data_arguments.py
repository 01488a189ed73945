"""What the functions of `leakage.data` take: NumPy's numbers like Python's, and nothing that makes no sense."""

import dataclasses

import numpy as np
import pytest
import torch

from leakage.data import (
    augmentation,
    cifar10,
    embedded,
    gaussians,
    images,
    membership_splits,
    mixtures,
    newsgroups,
)
from leakage.data.multi30k import SentencePairs
from leakage.runtime import stream
from leakage.studies.blessing import bilevel, feature_models, purchase_like, tokens

PAIRS = SentencePairs(("a dog", "two men sing"), ("ein Hund", "zwei singen"))
WORDS = tokens.vocabulary(PAIRS.en)
ROWS = torch.eye(4, dtype=torch.float64)
PIXELS = torch.linspace(0, 1, 3 * 64).view(3, 8, 8)
SIGNS = torch.tensor([1.0, -1.0] * 5)
LAW = {"n": 3, "d": 2, "p": 8, "sigma_beta": 1.5}


def new():
    return stream(0, "arguments")


def separable(**given):
    return feature_models.separable_gaussians(new(), **given).point


def balanced(**given):
    sizes = {"rows_per_class": 2, "fresh": 3, "runs": 2}
    return images.balanced_split(SIGNS, **(sizes | given), generator=new())


def sets(**given):
    sizes = {"trials": 2, "rows": 3, "fresh": 1, "width": 4}
    return feature_models.weak_features(new(), dimension=5).sets(**(sizes | given), generator=new())


def mixture(**given):
    return mixtures.draw("mixture", **({"rows": 2, "fresh": 1, "dimension": 3, "runs": 2} | given), generator=new())


# What is called, an argument that counts or measures, a good value, and values that are refused.
COUNTS = [
    (lambda **k: augmentation.shift_and_flip(PIXELS[None], new(), **k), "pixels", 2, (-1, 8)),
    (lambda **k: bilevel.Bilevel(**(LAW | k)), "n", 3, (0,)),
    (lambda **k: bilevel.Bilevel(**(LAW | k)), "d", 2, (0, 8)),
    (lambda **k: bilevel.fixed_points(bilevel.Bilevel(**LAW), **k, generator=new()), "count", 3, (-1,)),
    (lambda **k: bilevel.training_sets(bilevel.Bilevel(**LAW), **k, generator=new()), "trials", 2, (-1,)),
    (sets, "trials", 2, (-1,)),
    (sets, "rows", 3, (1,)),
    (sets, "fresh", 1, (-1,)),
    (sets, "width", 4, (0, 6)),
    (lambda **k: feature_models.weak_features(new(), **k).point, "dimension", 4, (0,)),
    (lambda **k: feature_models.random_relu(new(), **k).point, "dimension", 4, (0,)),
    (separable, "dimension", 200, (0,)),
    (separable, "informative", 7, (-1, 1001)),
    (lambda **k: images.resize(PIXELS, **k), "side", 4, (0, 9)),
    (balanced, "rows_per_class", 2, (0, 6)),
    (balanced, "fresh", 3, (-1, 7)),
    (balanced, "runs", 2, (0,)),
    (lambda **k: membership_splits.complementary_pairs(models=2, **k, generator=new()), "points", 4, (0, 3)),
    (lambda **k: membership_splits.complementary_pairs(points=4, **k, generator=new()), "models", 2, (0, 3)),
    (lambda **k: membership_splits.quarters(**k, size=1, generator=new()), "points", 9, (3,)),
    (lambda **k: membership_splits.quarters(9, **k, generator=new()), "size", 1, (0, 3)),
    (mixture, "rows", 2, (0,)),
    (mixture, "fresh", 1, (-1,)),
    (mixture, "dimension", 3, (0,)),
    (mixture, "runs", 2, (0,)),
    (lambda **k: purchase_like.draw(**k, generator=new()), "n", 3, (0,)),
    (lambda **k: purchase_like.draw(3, **k, generator=new()), "features", 5, (0,)),
    (lambda **k: purchase_like.draw(3, **k, generator=new()), "classes", 2, (0,)),
    (lambda **k: purchase_like.draw(3, **k, generator=new()), "styles", 2, (0,)),
    (lambda **k: gaussians.gaussian_factor(columns=5, batch=(2,), **k, generator=new()), "rows", 3, (0,)),
    (lambda **k: gaussians.gaussian_factor(rows=3, batch=(2,), **k, generator=new()), "columns", 5, (-1,)),
    (lambda **k: gaussians.sphere(dimension=3, **k, generator=new()), "count", 2, (-1,)),
    (lambda **k: gaussians.sphere(count=2, **k, generator=new()), "dimension", 3, (0,)),
    (lambda **k: gaussians.gaussian_twin(ROWS, **k, generator=new()), "count", 2, (-1,)),
    (lambda **k: tokens.vocabulary(PAIRS.en, **k).words, "least", 1, (0,)),
    (lambda **k: tokens.encode(PAIRS.en, WORDS, **k), "longest", 3, (0,)),
    (lambda **k: tokens.short(PAIRS, **k), "longest", 2, (0,)),
    (lambda **k: newsgroups.tf_idf(newsgroups.MessageSet(PAIRS.en, SIGNS.long(), ()), **k), "features", 2, (0,)),
]
NUMBERS = [
    (lambda **k: bilevel.Bilevel(**(LAW | k)), "sigma_beta", (0.0,)),
    (lambda **k: bilevel.Bilevel(**(LAW | k)), "eta", (0.0, -1.0)),
    (lambda **k: feature_models.weak_features(new(), **k), "noise", (-0.1, 1.1)),
    (separable, "noise", (-0.1, 1.1)),
    (lambda **k: feature_models.random_relu(new(), **k), "strength", (-1.0,)),
    (lambda **k: purchase_like.draw(3, **k, generator=new()), "density", (0.0, 1.0)),
    (lambda **k: purchase_like.draw(3, **k, generator=new()), "flip", (-0.1, 0.5)),
]
NO_COUNT = (2.0, "2", True, None, float("nan"), float("inf"), np.float64(2.0), torch.tensor(2.5), [2])
NO_NUMBER = ("0.1", True, None, float("nan"), float("inf"), -float("inf"), 1j, [0.1])


def parts(result):
    """A result as plain values."""
    if isinstance(result, torch.Tensor):
        return result.tolist()
    if dataclasses.is_dataclass(result):
        return [parts(getattr(result, field.name)) for field in dataclasses.fields(result)]
    return [parts(one) for one in result] if isinstance(result, tuple | list) else result


def named(table):
    return [pytest.param(*row, id=f"{place}-{row[1]}") for place, row in enumerate(table)]


@pytest.mark.parametrize(("call", "name", "good", "wrong"), named(COUNTS))
def test_a_count_of_numpy_is_a_count_and_nothing_else_is(call, name, good, wrong):
    expected = parts(call(**{name: good}))
    for same in (np.int64(good), np.uint8(good)):
        assert parts(call(**{name: same})) == expected
    for value in (*wrong, *NO_COUNT):
        if value is None and name == "size":  # a quarter of the pool
            continue
        with pytest.raises(ValueError, match=f"`{name}`|`p`"):
            call(**{name: value})


@pytest.mark.parametrize(("call", "name", "wrong"), named(NUMBERS))
def test_a_number_out_of_range_is_refused(call, name, wrong):
    for value in (*wrong, *NO_NUMBER):
        with pytest.raises(ValueError, match=f"`{name}` must be a number"):
            call(**{name: value})


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: feature_models.digit_pixels(new(), classes=(3, 3)), "classes"),
        (lambda: feature_models.digit_pixels(new(), classes=(3, 12)), "classes"),
        (lambda: images.parity(torch.tensor([1.5])), "digits"),
        (lambda: images.load("digits", dtype=torch.int64), "dtype"),
        (lambda: cifar10.standardised(COLOURS, like=COLOURS, dtype=torch.int64), "dtype"),
        (lambda: gaussians.gaussian_twin(ROWS.long(), 2, generator=new()), "inputs"),
        (lambda: gaussians.gaussian_twin(ROWS * torch.nan, 2, generator=new()), "inputs"),
        (lambda: tokens.vocabulary("a dog"), "sentences"),
        (lambda: tokens.encode("a dog", WORDS, longest=3), "sentences"),
        (lambda: tokens.chosen(PAIRS, [-1]), "numbers"),
        (lambda: tokens.chosen(PAIRS, [2]), "numbers"),
        (lambda: WORDS.text([-1]), "row"),
        (lambda: WORDS.text([1000]), "row"),
    ],
)
def test_an_argument_that_makes_no_sense_is_named(call, name):
    with pytest.raises(ValueError, match=f"`{name}` must"):
        call()


COLOURS = torch.arange(2 * 3 * 4, dtype=torch.uint8).view(2, 3, 2, 2)


def test_a_twin_has_the_precision_of_the_book_whatever_its_pattern_has():
    single = gaussians.gaussian_twin(ROWS.float(), 2, generator=new())
    assert torch.equal(single, gaussians.gaussian_twin(ROWS, 2, generator=new()))


def test_embedded_sets_are_fresh_at_every_call():
    embedded.digits().features.zero_()
    assert float(embedded.digits().features.sum()) > 0
