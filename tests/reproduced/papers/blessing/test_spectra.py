"""The two readings of (5) have the eigenvalues and the signal that each gives them."""

import torch

from planted import doubles
from reproduced.papers.blessing.spectra import printed_bilevel


def test_the_squares_of_the_eigenvalues_are_the_numbers_that_are_printed():
    phi = doubles(2.0, 16.0, 1e6)
    setting = printed_bilevel(penalty=0.1, samples=5.0, phi=phi)
    squares = setting.spectrum.values.square()
    torch.testing.assert_close(squares, torch.stack([phi, phi / (phi - 1)], -1))  # p/d and ηp/(p - d), with η = 1
    # β*ᵀΣβ*/p: a share 1/φ of the features, each with the variance σ_β² and the eigenvalue √φ.
    torch.testing.assert_close(setting.kappa, (100 * phi.sqrt() / phi).sqrt())
    torch.testing.assert_close(setting.delta * phi, torch.full_like(phi, 5.0))
