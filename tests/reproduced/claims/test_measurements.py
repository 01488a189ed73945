"""A measurement carries its uncertainty, whatever it is, and survives as plain JSON."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakage.metrics.estimates import Estimate
from reproduced.claims import measurements
from reproduced.claims.measurements import Count, Exact

NUMBERS = st.floats(allow_nan=False)
ESTIMATES = st.tuples(NUMBERS, NUMBERS, NUMBERS, st.integers(1, 9)).map(
    lambda found: Estimate(found[0], min(found[1:3]), max(found[1:3]), found[3])
)
EXACT = st.builds(Exact, NUMBERS, st.floats(0, 1e3))
COUNTS = st.tuples(st.integers(0, 99), st.integers(1, 99)).map(lambda found: Count(min(found), found[1]))
SINGLE = (ESTIMATES, EXACT, COUNTS)


@given(st.one_of(*SINGLE, *(st.lists(kind, min_size=1, max_size=4) for kind in SINGLE)))
def test_a_measurement_survives_as_json(measured):
    stored = json.loads(json.dumps(measurements.to_json(measured), allow_nan=False, sort_keys=True))
    assert measurements.from_json(stored) == measured


@given(st.one_of(*SINGLE))
def test_several_measurements_are_one_whose_ends_are_arrays(measured):
    for suffix, number in measurements.ends(measured).items():
        np.testing.assert_allclose(measurements.ends([measured, measured])[suffix], [number, number])


@pytest.mark.parametrize(
    ("measured", "ends"),
    [
        (Estimate(0.5, 0.4, 0.7, 9), {".low": 0.4, ".high": 0.7}),
        (Exact(2, 0.5), {".low": 1.5, ".high": 2.5}),
        (Exact(math.inf, 0), {".low": math.inf, ".high": math.inf}),
        (Count(0, 10), {"": 0, ".of": 10, ".low": 0.0, ".high": pytest.approx(0.30849711)}),  # 1 - 0.025^(1/10)
    ],
)
def test_the_ends_are_what_the_measurement_says(measured, ends):
    assert measurements.ends(measured) == ends


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (Estimate(0.60046, 0.59981, 0.60111, 9), "0.6005 [0.5998, 0.6011]"),
        (Estimate(0.5, 0.5, 0.5, 9), "0.5 [0.5, 0.5]"),
        (Estimate(1234.5, 1200.0, 1270.0, 9), "1234 [1200, 1270]"),
        (Estimate(1e-9, 0.5e-9, 2e-9, 9), "1e-09 [5e-10, 2e-09]"),
        (Estimate(0.5, -math.inf, math.inf, 9), "0.5 [-inf, inf]"),
        (Estimate(-0.004, -0.3, 0.29, 9), "0.00 [-0.30, 0.29]"),
        (Exact(0.123456789, 0.1), "0.1235"),
        (Exact(-math.inf, 0), "-inf"),
        (Count(27, 32), "27 of 32"),
        ([Exact(3, 0), Exact(1, 0), Exact(2, 0)], "1 to 3 (3 values)"),
        ([Count(3, 4), Count(1, 2)], "1 of 2 to 3 of 4 (2 values)"),
        ([Count(0, 4), Count(0, 4)], "0 of 4 (each of 2 values)"),
        ([Exact(3, 0)], "3"),
    ],
)
def test_a_measurement_is_written_to_the_digits_its_interval_supports(measured, text):
    assert measurements.describe(measured) == text


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (Estimate(0.60046, 0.59981, 0.60111, 9), "0.6005 [0.5998, 0.6011]"),
        (Exact(0.123456789, 0.1), "0.1235"),
        ([Estimate(0.5, 0.4, 0.6, 9), Estimate(0.712, 0.702, 0.722, 9)], "0.50 to 0.712"),
        ([Estimate(1, 0.99, 1, 9), Estimate(1, 0.99, 1, 9)], "1.000"),
        ([Count(3, 4), Count(1, 2)], "1 of 2 to 3 of 4"),
        ([Exact(3, 0)], "3"),
    ],
)
def test_in_few_words_several_measurements_are_their_range(measured, text):
    assert measurements.describe_briefly(measured) == text


@pytest.mark.parametrize(
    "measured", [0.5, True, None, "0.5", np.float64(1), [], [0.5], [Exact(1, 0), Count(1, 1)], {"x": Exact(1, 0)}]
)
def test_what_carries_no_uncertainty_is_no_measurement(measured):
    with pytest.raises(ValueError, match=r"`x` must be an Estimate, an Exact\(value, error\), a Count\(count, of\)"):
        measurements.check("x", measured)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exact(math.nan, 0), "`value`"),
        (lambda: Exact(1, -1), "`error`"),
        (lambda: Exact(1, math.inf), "`error`"),
        (lambda: Count(1, 0), "`of`"),
        (lambda: Count(-1, 2), "`count`"),
        (lambda: Count(3, 2), "`count`"),
    ],
)
def test_a_faulty_measurement_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
