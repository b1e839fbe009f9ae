"""The vocabulary of a framework: everything that ``closedform.frameworks`` takes from the machine.

A framework imports it by one line, ``from closedform.recipes import kit``. Each name is documented
where it is defined.

Example:
    >>> from closedform.recipes import kit
    >>> class Scheduler(kit.Section):
    ...     lr: kit.Rate
    ...     warmup_steps: kit.Steps = 0
    >>> Scheduler.read_whole(kit.Document({"lr": 3e-4}, "run.yaml")).warmup_steps
    0
"""

from closedform.recipes import checks
from closedform.recipes.build import class_schedule
from closedform.recipes.checks import refuse_unless
from closedform.recipes.clock import Clock, Facts, Unit, hold, missing_facts
from closedform.recipes.curves import CurveFunction, curve
from closedform.recipes.cycles import cycles
from closedform.recipes.defects import Convention, Defect, Note
from closedform.recipes.document import Document, Syntax, in_sections, interpolate
from closedform.recipes.documents import gin_text, python_text
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved
from closedform.recipes.entries import (
    REQUIRED,
    Arguments,
    Context,
    OptimizerEntry,
    Parameter,
    Required,
    RuleOfArguments,
    ScheduleBuilder,
    ScheduleEntry,
    Touches,
    build_schedule,
    check_joints,
    fill,
    find_schedule,
    generic_arguments,
    locate_errors,
    parameters,
    parameters_of,
    passed_to,
    sub_schedule,
    sub_schedules,
    touches_all,
    values_of,
)
from closedform.recipes.expressions import parse_function
from closedform.recipes.forms import (
    RUN,
    Config,
    CurveName,
    GroupDifference,
    Optimizer,
    WarmupDecayForm,
    Writer,
    literal,
    native,
    nearest_integer,
)
from closedform.recipes.framework import ConfigFunction, Framework, Tier
from closedform.recipes.group_values import base_value, number_of_group, of_base, of_group
from closedform.recipes.inheritance import named_document
from closedform.recipes.intervals import (
    LazyNumber,
    Stage,
    UndefinedError,
    by_intervals,
    ending,
    first_from,
    power_quotient,
    quotient,
    undefined,
)
from closedform.recipes.optimizer_classes import ClassOptimizer, class_optimizer, fused_adam
from closedform.recipes.plateau import TORCH_ARGUMENTS, metric_entry, timm_plateau, torch_plateau
from closedform.recipes.quantities import (
    Accumulation,
    BatchSize,
    EndRate,
    Epochs,
    Epsilon,
    Momenta,
    Momentum,
    Norm,
    Number,
    NumberOrNumbers,
    Numbers,
    Power,
    Rate,
    RateOrRates,
    RateRatio,
    Rates,
    RealEpochs,
    RealSamples,
    RealSteps,
    RunRatio,
    Samples,
    SequenceLength,
    StartRate,
    Steps,
    Tokens,
    WeightDecay,
    WhereNeeded,
)
from closedform.recipes.raw_section import RELATED, RawSection, calls, document_section, is_open
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import (
    Clipping,
    ClippingKind,
    OptimizerPlan,
    ParamGroup,
    Recipe,
    Role,
    is_constant,
)
from closedform.recipes.rules import plan_optimizer
from closedform.recipes.section import (
    ArgumentSection,
    ClassSection,
    FlagSection,
    Key,
    OpenSection,
    ScheduleOfSections,
    Section,
    choice,
    integer,
    integers,
    nullable,
    number,
    numbers,
    read_by,
    section_entries,
    variants,
)
from closedform.recipes.summary import amount_text
from closedform.recipes.tags import Tags, build_member, read_tags
