"""The cost limits of a proof in one table, and its deadline."""

from __future__ import annotations

import time
from dataclasses import dataclass


class OutOfTime(Exception):  # noqa: N818 - a bound that is met, not a fault
    """The moment has passed."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the machine's clock.

    Args:
        moment: The moment, in seconds of ``time.monotonic``.
    """

    moment: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Returns the moment that many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.moment - time.monotonic())

    def earlier(self, seconds: float) -> Deadline:
        """Returns the moment that many seconds from now, or this one if it is nearer."""
        return Deadline(min(self.moment, time.monotonic() + seconds))

    def check(self) -> None:
        """Raises OutOfTime if the moment has passed."""
        if time.monotonic() > self.moment:
            raise OutOfTime

    def milliseconds(self, most: int) -> int:
        """Returns the milliseconds for one step that should take ``most``.

        Raises:
            OutOfTime: The moment has passed.
        """
        self.check()
        return max(1, int(min(most, self.left * 1000)))


NEVER = Deadline(float("inf"))
"""A moment that does not come."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a proof may cost: each field with its unit.

    A larger limit decides more and takes longer; no limit makes a verdict less certain, and a goal
    that exceeds one is UNKNOWN.
    """

    # Time
    claim_seconds: float = 10.0  # s; one claim, if nothing else is said
    validation_seconds: float = 5.0  # s; one translation validation, if nothing else is said
    audit_seconds: float = 5.0  # s; one comparison of an audit
    tactics_share: float = 0.7  # part of the budget; the rest is for the last points
    first_seconds: float = 0.15  # s; points before the tactics
    confirming_seconds: float = 0.05  # s; points after a proof
    last_seconds: float = 2.0  # s; points where no tactic decided
    simplifying_seconds: float = 0.1  # s; a simpler counterexample
    escalation_seconds: float = 2.0  # s; the tactics on one segment of the clock
    shared_seconds: float = 0.2  # s; a goal that an earlier proof may cover
    general_seconds: float = 0.5  # s; a goal for any number in the place of its branches
    order_ms: int = 3000  # ms; the order solver on one goal
    model_ms: int = 1000  # ms; a model of an open case
    refinement_seconds: float = 0.5  # s; that one branch of a graph is never reached
    region_ms: int = 200  # ms; a point in an open case
    quotient_ms: int = 600  # ms; whether the divisor in a floor is positive
    neighbours_ms: int = 400  # ms; whether two floors are at most 1 apart
    sign_ms: int = 300  # ms; the sign of one term
    feasible_ms: int = 300  # ms; whether the facts of a case contradict each other
    squeeze_ms: int = 150  # ms; whether an inequality of integers is an equality
    work_per_ms: int = 20_000  # z3's deterministic work units, for a timer that it overlooks

    # Points
    first_points: int = 160  # points before the tactics
    confirming_points: int = 40  # points after a proof
    last_points: int = 1500  # points where no tactic decided
    region_draws: int = 24  # draws of the integers of an open case
    draw_roots: int = 8  # roots of the goal that one draw looks at
    draw_steps: int = 6  # steps of the clock in one draw
    draw_size: int = 10**7  # size of a root that is drawn
    refutation_points: int = 24  # points at which a graph is compared with its source
    guess_draws: int = 24  # values of the hyperparameters behind a guess
    guess_attempts: int = 4000  # attempts to find these
    guess_samples: int = 600  # values of the schedule behind a guess
    phase_samples: int = 17  # values on one phase
    jump_steps: int = 1000  # steps in which jumps are listed, of a schedule without length

    # Segments and steps
    split_depth: int = 6  # times that a segment is divided again
    split_levels: int = 3000  # integers that a floor may pass through to be divided by the prover
    floor_levels: int = 64  # the same in translation validation
    segment_intervals: int = 400  # intervals of interval arithmetic on one segment
    segment_steps: int = 20_000  # steps that are evaluated one by one
    fold_period: int = 10**6  # steps of a period that a goal is folded into
    cycle_period: int = 10**12  # steps of a period that two terms are compared on
    summed_steps: int = 1000  # steps of a sum that is added up
    audit_steps: int = 100_000_000  # steps of a run that is audited
    audit_chunk: int = 1 << 20  # steps that an audit evaluates at once
    range_comparisons: int = 256  # comparisons of runs and steps to find the range that is proved
    jump_times: int = 10_000  # jumps of one floor that are listed

    # Cases
    cases: int = 300  # cases that a goal is split into
    open_cases: int = 8  # cases left open before the escalation stops
    short_chain: int = 10  # branches that are split with all facts of those before them
    chain_facts: int = 2  # branches before its own that a branch of a longer chain knows
    integer_depth: int = 5  # cases of integers within one another
    eliminations: int = 12  # symbols that equalities eliminate
    unfolded_segments: int = 64  # segments of a term that is too large as an expression
    unfolding_seconds: float = 1.0  # s; to find them
    few_branches: int = 8  # more branches: first proved for any number in their place
    listed_branches: int = 24  # undecided branches of a graph whose paths are listed
    reached_branches: int = 32  # branches that are asked whether they can be reached
    paths: int = 100_000  # paths to partial operations
    path_conditions: int = 64  # conditions of a path that is common to others
    junction_operations: int = 12  # partial operations of an and or or whose parts excuse others
    floors: int = 3  # floors in one cell of the claim of continuity
    unread_directions: int = 2  # conditions of unknown direction in one cell

    # Guesses
    standard_guesses: int = 4  # bounds that are tried on each side
    named_jumps: int = 4  # jumps that a report names
    guess_cells: int = 64  # cells that are all sampled
    guess_turns: int = 16  # comparisons whose roots are looked at
    guess_size: int = 24  # nodes, or digits, of a candidate; readers cannot use larger ones
    guess_parts: int = 4  # candidates joined in one bound
    guess_phases: int = 8  # phases of a schedule

    # Terms given to solvers
    paired_functions: int = 14  # functions that have lemmas of pairs, whose number is quadratic
    stated_functions: int = 60  # functions that have lemmas at all
    solver_nodes: int = 4000  # nodes of a question
    product_factors: int = 12  # whole exponents that are written as products
    bound_nodes: int = 200  # nodes of an assumption that bounds a drawn symbol

    # Algebra
    polynomial_terms: int = 3000  # monomials of a quotient
    product_terms: int = 60_000  # products of monomials in one product
    divisor_terms: int = 40_000  # products of monomials for a common divisor
    divisor_degree: int = 300  # degree for a common divisor
    power_terms: int = 100  # exponent times monomials of a power
    power_bits: int = 20_000  # bits of the coefficients of a power
    factored_degree: int = 40  # degree of a polynomial that is factored
    factored_terms: int = 60  # monomials of a polynomial that is factored
    angle_multiples: int = 64  # multiples of an angle that are expanded
    canonical_rounds: int = 6  # rounds in which the relations between atoms are used
    angle_ratio: int = 16  # numerator and denominator of the ratio of two angles
    expanded_terms: int = 64  # monomials of a product that congruence expands

    # Numbers
    constant_bits: int = 14_000  # bits of a constant of a graph, 4,200 digits
    stated_digits: int = 400  # digits, and size of the exponent, of a number that a file states
    expression_nodes: int = 200_000  # nodes of an expression, each where it stands
    nested_choices: int = 6  # choices in one condition of an expression
    number_bits: int = 20_000  # bits of a rational power before it becomes a ball
    combined_constants: int = 40  # numbers of a source whose sums and products are tried
    constant_precision: int = 192  # bits of the interval arithmetic behind a constant

    # Certificates
    exhaustive_steps: int = 2**20  # steps of a range that is compared whole
    random_steps: int = 20_000  # random steps of a longer range
    end_steps: int = 1_000  # steps at each end of a longer range
    certificate_chunk: int = 2**16  # steps that run at once
    error_intervals: int = 4096  # intervals of error analysis
    error_rounds: int = 200  # rounds in which the worst intervals are halved
    float_seconds: float = 2.0  # s; the floats of one graph
    float_segments: int = 400  # ranges of steps on which the floats of a graph are looked at
    invariant_rounds: int = 24  # rounds in which the ranges of states are widened
    few_milestones: int = 16  # milestones from each of which lengths double


LIMITS = Limits()
"""The limits of all proofs."""
