"""Another machine's arithmetic: PyTorch's results, moved within the freedom that machines have.

IEEE 754 fixes the four operations and the square root to the last bit. It leaves open in which order a sum adds up and
how `exp` is rounded, so those differ between instruction sets, libraries and numbers of threads, and a decision that
differs with them rests on rounding. `LastBits(seed)` is such a machine, one for each seed: within it these results move
by -1, 0 or 1 unit in the last place. A hash decides, so that the same call gives the same bits again. Eigenvectors and
singular vectors, defined up to their sign, change it too.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Names of PyTorch's operations. What is not here moves, chooses, compares or copies numbers, draws evenly, or is one of
# IEEE's own operations: the same bits everywhere. How a sum is split depends on where it stands in the result.
_SUMS = """
    sum nansum mean var std var_mean std_mean cumsum logcumsumexp logsumexp trace cumprod prod
    mm bmm mv dot vdot addmm addbmm baddbmm addmv addr convolution convolution_backward index_add scatter_add
    embedding_dense_backward _cdist_forward _cdist_backward _pdist_forward _pdist_backward
    _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data nll_loss_forward mse_loss
    binary_cross_entropy binary_cross_entropy_with_logits
    native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward native_group_norm
    native_group_norm_backward avg_pool2d _adaptive_avg_pool2d
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    linalg_qr linalg_cholesky_ex _linalg_solve_ex linalg_solve_triangular triangular_solve linalg_lu linalg_lu_factor_ex
    linalg_lu_solve linalg_lstsq linalg_inv_ex _linalg_det _linalg_slogdet cholesky_solve cholesky_inverse
    linalg_matrix_exp _linalg_eigvals
    """
# Of these, equal arguments give equal results, wherever they stand.
_FUNCTIONS = """
    exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sinc
    sigmoid log_sigmoid_forward log_sigmoid_backward softplus softplus_backward logaddexp logit xlogy erf erfc erfinv
    special_erfcx special_ndtr special_log_ndtr special_ndtri special_i0e special_i1e special_xlog1py lgamma digamma
    polygamma mvlgamma hypot rsqrt gelu gelu_backward silu silu_backward elu elu_backward tanh_backward
    sigmoid_backward
    randn normal _standard_gamma linspace logspace pow
    """
_FUSED = ("addcmul", "addcdiv", "lerp", "add", "sub", "rsub")  # a product and a sum, in one rounding or two
_LENGTHS = ("linalg_vector_norm", "norm")  # of rows, one like the other
_FACTORS = ("_linalg_eigh", "_linalg_svd")
_BY_PLACE = frozenset([*_SUMS.split(), *_FACTORS])
_BY_ELEMENT = frozenset([*_FUNCTIONS.split(), *_FUSED])
_BY_VALUE = _BY_ELEMENT | {*_LENGTHS}
_MOVED = _BY_PLACE | _BY_VALUE

_WORDS = {torch.float32: torch.int32, torch.float64: torch.int64}
_MANTISSA = {torch.float32: 2**23 - 1, torch.float64: 2**52 - 1}
# A result that ends in so many zeros is taken for an exact one: a whole number, a half, or a sum of numbers of 30 bits,
# to which `metrics.scores.round_digits` rounds. Of the inexact ones this spares one in 4,096 or in 256.
_LAST_ZEROS = {torch.float32: 2**12 - 1, torch.float64: 2**8 - 1}
_MIX = 0x9E3779B97F4A7C15 - 2**64  # the golden ratio as an odd 64-bit number
_PLACE = 0x2545F4914F6CDD1D  # another odd number


class LastBits(TorchDispatchMode):
    """Within this context PyTorch computes like machine number `seed`."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and saying so to the compiler takes as long as the arithmetic

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let PyTorch compute, then move what another machine may round otherwise."""
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        name = name if name in _BY_PLACE else name.removesuffix("_")
        if name in _MOVED and not _exact(name, args, kwargs, results):
            parts = [part for part in (results if isinstance(results, tuple) else (results,)) if _is_real(part)]
            if name in _FACTORS:
                _turn(parts, self.seed)
            for part in parts:
                _move(part, self.seed, name in _BY_PLACE, _unrounded(name, args, part))
        return results


def _exact(name: str, args: Any, kwargs: Any, results: Any) -> bool:
    """Whether an operation that may round leaves no freedom with these arguments."""
    if name in ("add", "sub", "rsub"):
        return kwargs.get("alpha", 1) in (1, -1)
    if name == "pow":
        return isinstance(args[1], int | float) and args[1] in (0.5, 1, 2)
    if name in ("sum", "mean"):  # two numbers have one sum
        return not _is_real(results) or args[0].numel() <= 2 * results.numel()
    return False


def _is_real(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype in _WORDS and part.numel() > 0


def _unrounded(name: str, args: Any, result: Tensor) -> Tensor:
    """Where the result is what it is on every machine: if it ends in zeros (0, 3, 0.25, inf), for one."""
    kept = (result.view(_WORDS[result.dtype]) & _LAST_ZEROS[result.dtype]) == 0
    if name == "mean":  # of whole numbers: their sum is exact, and so is a quotient to the last bit
        count = args[0].numel() / result.numel()
        kept |= (result * count).round() / count == result
    if name in _BY_ELEMENT:  # numbers that come back as they were, with nothing to add to them
        for operand in (arg for arg in args if _is_real(arg) and arg is not result and arg.dtype == result.dtype):
            kept |= result.abs() == operand.abs()
    return kept


def _hash(values: Tensor, seed: int, *, by_place: bool) -> Tensor:
    """Of the digits alone: signs and powers of two change no rounding."""
    mixed = (values.view(_WORDS[values.dtype]) & _MANTISSA[values.dtype]).long() ^ seed
    if by_place:
        mixed ^= _places(values.numel(), values.device).view(values.shape)
    mixed *= _MIX
    return (mixed ^ (mixed >> 29)) * _MIX >> 40


@lru_cache(maxsize=64)
def _places(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device) * _PLACE


def _move(values: Tensor, seed: int, by_place: bool, kept: Tensor) -> None:
    """By a unit in the last place at most."""
    words = values.view(_WORDS[values.dtype])
    steps = _hash(values, seed, by_place=by_place).remainder(3) - 1
    words += steps.masked_fill_(kept, 0).to(words.dtype)


def _turn(parts: list[Tensor], seed: int) -> None:
    """Change the sign of some vectors: (values, vectors) of a symmetric matrix, or (U, values, V^T) of any."""
    if len(parts) == 2:
        values, vectors = parts
        vectors *= _signs(values, seed).unsqueeze(-2)
    elif len(parts) == 3:
        left, values, right = parts
        count, signs = values.shape[-1], _signs(values, seed)
        left[..., :, :count] *= signs.unsqueeze(-2)
        right[..., :count, :] *= signs.unsqueeze(-1)


def _signs(values: Tensor, seed: int) -> Tensor:
    return 1 - 2 * (_hash(values, seed, by_place=True) & 1).to(values.dtype)
