"""The schedule records that are not simply compared: each with its flag and reason."""

from closedform.errors import ClosedFormError, DefinitionError, DomainError

Refusal = tuple[type[ClosedFormError], str]

# Flags of records whose values come from a defect: only as_implemented gives them.
DEFECTS = {
    "cawr_restart": "cerebras warm restarts: plateaus after the first period",
    "poly_cycle_ignored": "cerebras polynomial: cycle has no effect",
    "frozen_children": "cerebras composites in composites: children stay at step 0",
    "lambda_power_of_initial": "cerebras lambda: the initial value once per function",
    "sequential_last_epoch": "cerebras: last_epoch moves the outer counter alone",
    "recursive_differs_from_closed": "torch: step() misses fractional and zero numbers of steps",
    "nested_one_step_ahead": "torch: a composite as first member runs one step ahead",
    "chain_is_not_a_product": "torch: some members overwrite what came before them",
    "sequential_not_restarted_from_base": "torch: OneCycleLR overwrites the base of the others",
    "cosine_cut_by_warmup": "pytorch-accelerated: the cosine ends as early as the warmup is long",
    "warmup_ratio_slope": "pytorch-accelerated: ratio start with the slope of the fixed start",
    "continuation_state": "pytorch-accelerated: loading a state brings the first arguments back",
}

UNFLAGGED_DEFECTS = {"cb-0689": "configured LambdaLR with its two default functions"}

SAME_AS_IMPLEMENTED = {"pa-0121": "continuation_state: both runs have the same arguments"}

# Refused by the reference at construction, and here with this error.
REFUSED: dict[str, Refusal] = {
    **dict.fromkeys(
        ("cb-0575", "cb-0576"),
        (DefinitionError, "has no initial value to be divided by"),
    ),
    **dict.fromkeys(
        ("cb-0595", "cb-0596"),
        (DefinitionError, "schedulers must hold at least one schedule"),
    ),
    **dict.fromkeys(("cb-0641", "cb-0642"), (DefinitionError, "must not name a tag twice")),
    **dict.fromkeys(("cb-0647", "cb-0648"), (DefinitionError, "must have the param_group_tags")),
    "pa-0060": (DefinitionError, "lr_min must be at least 0, got -0.1"),
    "pa-0073": (DefinitionError, "decay_phase_ratio must be at most 1/3 with several checkpoints"),
    "pa-0067": (DefinitionError, "warmup_starting_lr must be at most the largest base value 1/100"),
    "th-0189": (DefinitionError, "pct_start must be a float in [0, 1], got 0"),
    "th-0071": (DefinitionError, "factor must be in [0, 1], got 1.5"),
    "th-0072": (DefinitionError, "factor must be in [0, 1], got -0.1"),
    "th-0084": (DefinitionError, "start_factor must be in (0, 1], got 0.0"),
    "th-0085": (DefinitionError, "start_factor must be in (0, 1], got 1.2"),
    "th-0143": (DefinitionError, "T_0 must be an integer >= 1, got 5.0"),
    "th-0146": (DefinitionError, "T_mult must be an integer >= 1, got 0"),
    "th-0165": (DomainError, "step_size_up must be above 0, got 0"),
    "th-0186": (DomainError, "pct_start * total_steps must not be 1, got 1/10 * 10"),
    "th-0191": (DefinitionError, "the length is missing"),
    "th-0227": (DefinitionError, "milestones must be one fewer than schedulers"),
}

# The reference is infinite or NaN at some step, or raises there: refused when it is built.
NO_VALUE: dict[str, tuple[type[ClosedFormError], str, str]] = {
    **dict.fromkeys(
        ("cb-0099", "cb-0100"),
        (
            DomainError,
            "decay_rate must be at least 0 where total_iters is 4, got -1/2",
            "non_finite",
        ),
    ),
    **dict.fromkeys(
        ("cb-0133", "cb-0134"),
        (DomainError, "decay_rate must be at least 0, got -0.5", "non_finite"),
    ),
    **dict.fromkeys(
        ("cb-0139", "cb-0140"),
        (DomainError, "total_iters must be above 0, got 0", "non_finite"),
    ),
    **dict.fromkeys(
        ("cb-0425", "cb-0426"),
        (DomainError, "step_size_up must be above 0, got 0", "non_finite"),
    ),
    **dict.fromkeys(
        ("cb-0463", "cb-0464"),
        (DomainError, "pct_start * total_steps must not be 1, got 1/10 * 10", "non_finite"),
    ),
    **dict.fromkeys(
        ("cb-0583", "cb-0584"),
        (DefinitionError, "is divided by its initial value, which is 0", "non_finite"),
    ),
    "pa-0054": (DefinitionError, "decay_phase_ratio is 0", "zero_decay_steps"),
    "pa-0055": (DefinitionError, "the decay before checkpoint 9 has no steps", "zero_decay_steps"),
    "pa-0058": (DefinitionError, "lr_min must be above 0 where", "zero_lr_min"),
    "pa-0076": (DefinitionError, "total_steps must be at least 4", "zero_decay_steps"),
    "th-0041": (DomainError, "step_size must be above 0, got 0", "error"),
    "th-0126": (DomainError, "T_max must be above 0, got 0", "error"),
}

# No function of the step: compared as update rules, over the metrics of the record.
METRIC_DRIVEN = ("th-0252", "th-0255", "th-0256")

# The documented formula has no value, or a reading that the reference does not share.
SHIPPED_ONLY: dict[str, tuple[type[ClosedFormError], str, str]] = {
    **dict.fromkeys(
        ("cb-0455", "cb-0456"),
        (
            DefinitionError,
            "anneal_strategy must be one of cos, linear, got 'other'",
            "past_end_not_clamped: an unknown strategy is taken for linear",
        ),
    ),
    **dict.fromkeys(
        ("cb-0215", "cb-0216"),
        (
            DefinitionError,
            "must be one more than milestones: expected 3, got 4",
            "the last value is used at the end, the third is dropped",
        ),
    ),
    **dict.fromkeys(
        ("cb-0417", "cb-0418"),
        (
            DefinitionError,
            "mode must be one of triangular, triangular2, exp_range, got 'anything'",
            "cyclic_unknown_mode: taken for exp_range",
        ),
    ),
    "th-0069": (
        DomainError,
        "total_iters must be above 0, got -1",
        "recursive_differs_from_closed: step() never recovers, the closed form is the base",
    ),
    "th-0082": (
        DomainError,
        "total_iters must be above 0, got 0",
        "recursive_differs_from_closed: step() stays, the closed form divides by zero",
    ),
    "th-0066": (
        DomainError,
        "total_iters must be above 0, got 0",
        "recursive_differs_from_closed: step() never recovers, the closed form is the base",
    ),
    "th-0112": (
        DomainError,
        "total_iters must be above 0, got 0",
        "recursive_differs_from_closed: step() stays, the closed form divides by zero",
    ),
    "th-0213": (
        DefinitionError,
        "milestones must be >= 0 and must not decrease, got 4 after 8",
        "unsorted_milestones: torch assumes that they are sorted",
    ),
}

# The implemented value is refused: the reference refuses it too, or it has no closed form.
DOCUMENTED_ONLY: dict[str, tuple[type[ClosedFormError], str, str]] = {
    **dict.fromkeys(
        ("cb-0357", "cb-0358"),
        (
            DefinitionError,
            "T_mult must be 1 as implemented, got 2",
            "error: only T_mult 1 is implemented",
        ),
    ),
    "th-0222": (
        DefinitionError,
        "a SequentialLR as a later member has no value as implemented",
        "error: torch raises at the milestone",
    ),
    "th-0240": (
        DefinitionError,
        "is not modelled as implemented: it is a recursion",
        "chain_is_not_a_product: a sum of as many terms as steps",
    ),
}
