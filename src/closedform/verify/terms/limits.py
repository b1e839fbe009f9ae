"""The cost limits of a proof in one table."""

from __future__ import annotations

from dataclasses import dataclass

FOREVER = 1 << 200
"""Stands for no end; no breakpoint of a schedule comes near it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a proof may cost: each field with its unit.

    A larger limit decides more and takes longer; no limit makes a verdict less certain, and a goal
    that exceeds one is UNKNOWN.
    """

    # Work, in units of ``closedform.effort``: about a microsecond each
    claim_work: int = 10 * 2**20  # one claim, if nothing else is said
    identity_work: int = 500_000  # the canonical forms of the sides of an equation
    search_work: int = 1_600_000  # the search for one proof, if nothing else is said
    validation_work: int = 5_000_000  # one translation validation, if nothing else is said
    comparison_work: int = 5_000_000  # one comparison of two schedules
    first_work: int = 150_000  # the first points of a graph and its source
    simplifying_work: int = 100_000  # a simpler counterexample
    shared_work: int = 200_000  # a goal that an earlier proof may cover
    general_work: int = 500_000  # a goal for any number in the place of its branches
    refinement_work: int = 500_000  # that one branch of a graph is never reached
    region_work: int = 200_000  # a point in an open case
    question_work: int = 800_000  # one question of a front end
    questions_work: int = 2_000_000  # all questions of one trace but inductions
    induction_work: int = 5_000_000  # one induction of a front end
    solver_units: int = 4  # resource units of z3 in one unit of work

    # Points
    draw_roots: int = 8  # roots of the goal that one draw looks at
    draw_steps: int = 6  # steps of the clock in one draw
    draw_size: int = 10**40  # size of a root that is drawn
    refutation_points: int = 24  # points at which a graph is compared with its source
    guess_draws: int = 24  # values of the hyperparameters behind a guess
    guess_attempts: int = 4000  # attempts to find these
    guess_samples: int = 600  # values of the schedule behind a guess
    witnesses: int = 128  # steps at which the facts of a question of a front end hold
    few_witnesses: int = 32  # fewer: more are looked for
    witness_steps: int = 1 << 14  # steps among which they are looked for
    phase_samples: int = 17  # values on one phase
    jump_steps: int = 1000  # steps in which jumps are listed, of a schedule without length

    # Runs of rules
    run_work: int = 1_000_000  # all runs that look for a step at which one claim is false
    run_steps: int = 8  # steps of a run
    paired_states: int = 4  # states of which each pair is a candidate of an invariant
    drawn_runs: int = 6  # runs with drawn gradients
    unrolled_steps: int = 4  # steps whose states are terms of the gradients before
    unrolled_nodes: int = 4_000  # nodes of these terms
    unrolled_work: int = 200_000  # the point at which a claim is false after so many steps

    # Segments and steps
    floor_levels: int = 64  # integers that a floor may pass through to be divided
    curved_levels: int = 260  # values of a floor of a curve before it is not partitioned
    curved_work: float = 1e6  # to find the steps at which such a floor changes
    curved_runs: int = 600  # runs on which it is not monotone
    cycle_period: int = 10**12  # steps of a period that two terms are compared on
    summed_steps: int = 1000  # steps of a sum that is added up
    range_comparisons: int = 256  # comparisons of runs and steps to find the range that is proved
    jump_times: int = 10_000  # jumps of one floor that are listed

    # Cases
    unfolded_segments: int = 64  # segments of a term that is too large as an expression
    unfolding_work: int = 1_000_000  # to find them
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
    proved_nodes: int = 12_000  # nodes of a goal and its premises
    solver_bits: int = 2200  # bits of a number in a question: two float64 multiplied have 2,148
    bound_nodes: int = 200  # nodes of an assumption that bounds a drawn symbol

    # Algebra
    polynomial_terms: int = 3000  # monomials of a quotient
    product_terms: int = 60_000  # products of monomials in one product
    divisor_terms: int = 40_000  # products of monomials for a common divisor
    divisor_degree: int = 300  # degree for a common divisor
    power_terms: int = 100  # exponent times monomials of a power
    power_bits: int = 100_000  # bits of the coefficients of a power
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
    step_nodes: int = 20_000  # nodes of a step of a rule with its definitions in place
    nested_choices: int = 6  # choices in one condition of an expression
    number_bits: int = 20_000  # bits of a fraction before it becomes a ball
    separation_bits: int = 100_000  # bits of a ball that shows that a number is 0
    combined_constants: int = 40  # numbers of a source whose sums and products are tried
    constant_precision: int = 192  # bits of the interval arithmetic behind a constant

    # Certificates
    exhaustive_steps: int = 2**20  # steps of a range that is compared whole
    random_steps: int = 20_000  # random steps of a longer range
    end_steps: int = 1_000  # steps at each end of a longer range
    certificate_chunk: int = 2**16  # steps that run at once
    error_intervals: int = 4096  # intervals of error analysis
    error_rounds: int = 200  # rounds in which the worst intervals are halved
    decision_rounds: int = 200  # rounds in which the earliest intervals of decisions are halved
    float_work: int = 2_000_000  # the floats of one graph
    float_segments: int = 400  # ranges of steps on which the floats of a graph are looked at
    invariant_rounds: int = 24  # rounds in which the ranges of states are widened
    few_milestones: int = 16  # milestones from each of which lengths double


LIMITS = Limits()
"""The limits of all proofs."""
