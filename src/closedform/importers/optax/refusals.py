"""The reasons why primitives of JAX have no rule, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

from closedform.errors import TraceError

_AT_AN_INDEX = (
    "rows of a tensor are replaced at an index, and a rule has an expression for a whole tensor",
    "make each row of a history a state, such as a tuple of trees, and select the new ones with "
    "jnp.where(count % rows == row, value, row)",
)
_IN_ORDER = (
    "the order of the elements depends on data, and has no expression",
    "compare with a threshold, or take maxima and sums",
)
_OF_LAPACK = (
    "a decomposition by LAPACK has no expression: its signs and the basis of equal values are "
    "those of a library",
    "write the rule with closedform.language.matrices, whose orthogonal_factor and "
    "right_singular_vectors are defined",
)
_RANDOM = (
    "random numbers have no expression",
    "take them as an input of a rule: UpdateRule(…, inputs=('noise',))",
)
_UNKNOWN = (
    "the operation has no expression in the language",
    "write it with elementwise operations, sums, maxima and products of matrices",
)

_AT_INDICES = "dynamic_update_slice scatter scatter-add scatter-max scatter-min scatter-mul"
_DECOMPOSITIONS = (
    "cholesky eig eigh geqrf geqp3 householder_product lu qr schur svd triangular_solve"
)
_REASONS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(_AT_INDICES.split(), _AT_AN_INDEX),
    **dict.fromkeys(("sort", "top_k", "argmax", "argmin", "approx_top_k"), _IN_ORDER),
    **dict.fromkeys(_DECOMPOSITIONS.split(), _OF_LAPACK),
}
_RANDOM_PARTS = ("random", "threefry", "rng_bit_generator")


def concatenation_refusal() -> TraceError:
    """Returns the error for a concatenation of tensors of the size of a parameter."""
    return TraceError(
        "tensors are concatenated, and a rule has an expression for each parameter",
        hint="update each parameter by itself; of optax.flatten(inner), pass inner, whose steps "
        "are equal if they are elementwise or take norms of all gradients",
    )


def refusal(primitive: str) -> TraceError:
    """Returns the error for a primitive that has no rule: the cause, and what to write instead."""
    is_random = any(part in primitive for part in _RANDOM_PARTS)
    what, hint = _RANDOM if is_random else _REASONS.get(primitive, _UNKNOWN)
    return TraceError(what, hint=hint)
