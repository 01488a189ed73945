"""The core algorithms of the chapters along one size each, ours and the straightforward ones, for `growth`.

Inputs and straightforward sides are those of the chapters' benchmarks. Every axis checks at a small size that its
methods agree. Sizes begin where the leading term shows and end where a call takes seconds.
"""

from collections.abc import Iterator

import attacking_axes
import trained_axes
from growing import Axis


def axes() -> Iterator[Axis]:
    """All of them, in the order of the chapters."""
    yield trained_axes.margin_flow_dimension()
    yield trained_axes.margin_flow_points()
    yield trained_axes.points_features()
    yield trained_axes.left_out_points()
    yield trained_axes.networks_models()
    yield attacking_axes.tensor_dimension()
    yield attacking_axes.span_dimension()
    yield attacking_axes.attack_neurons()
    yield attacking_axes.polytopes_neurons()
    yield trained_axes.law_points()
    yield trained_axes.law_features()
    yield trained_axes.nested_widths()
    yield attacking_axes.curves_points()
    yield attacking_axes.ratios_models()
