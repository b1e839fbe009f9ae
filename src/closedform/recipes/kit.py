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

from closedform.recipes import checks as checks
from closedform.recipes.build import class_schedule as class_schedule
from closedform.recipes.checks import refuse_unless as refuse_unless
from closedform.recipes.clock import Clock as Clock
from closedform.recipes.clock import Count as Count
from closedform.recipes.clock import Facts as Facts
from closedform.recipes.clock import Unit as Unit
from closedform.recipes.clock import hold as hold
from closedform.recipes.cycles import cycles as cycles
from closedform.recipes.defects import Condition as Condition
from closedform.recipes.defects import Defect as Defect
from closedform.recipes.defects import DefectKind as DefectKind
from closedform.recipes.document import Document as Document
from closedform.recipes.document import Syntax as Syntax
from closedform.recipes.document import in_sections as in_sections
from closedform.recipes.document import interpolate as interpolate
from closedform.recipes.documents import gin_text as gin_text
from closedform.recipes.documents import python_text as python_text
from closedform.recipes.documents.values import ConfigCall as ConfigCall
from closedform.recipes.documents.values import Reference as Reference
from closedform.recipes.documents.values import Unresolved as Unresolved
from closedform.recipes.entries import REQUIRED as REQUIRED
from closedform.recipes.entries import Arguments as Arguments
from closedform.recipes.entries import Context as Context
from closedform.recipes.entries import OptimizerEntry as OptimizerEntry
from closedform.recipes.entries import Parameter as Parameter
from closedform.recipes.entries import Required as Required
from closedform.recipes.entries import RuleOfArguments as RuleOfArguments
from closedform.recipes.entries import ScheduleBuilder as ScheduleBuilder
from closedform.recipes.entries import ScheduleEntry as ScheduleEntry
from closedform.recipes.entries import Touches as Touches
from closedform.recipes.entries import build_schedule as build_schedule
from closedform.recipes.entries import check_joints as check_joints
from closedform.recipes.entries import fill as fill
from closedform.recipes.entries import find_schedule as find_schedule
from closedform.recipes.entries import generic_arguments as generic_arguments
from closedform.recipes.entries import locate_errors as locate_errors
from closedform.recipes.entries import parameters as parameters
from closedform.recipes.entries import parameters_of as parameters_of
from closedform.recipes.entries import passed_to as passed_to
from closedform.recipes.entries import sub_schedule as sub_schedule
from closedform.recipes.entries import sub_schedules as sub_schedules
from closedform.recipes.entries import touches_all as touches_all
from closedform.recipes.entries import values_of as values_of
from closedform.recipes.expressions import parse_function as parse_function
from closedform.recipes.forms import RUN as RUN
from closedform.recipes.forms import Config as Config
from closedform.recipes.forms import CurveName as CurveName
from closedform.recipes.forms import GroupDifference as GroupDifference
from closedform.recipes.forms import Optimizer as Optimizer
from closedform.recipes.forms import WarmupDecayForm as WarmupDecayForm
from closedform.recipes.forms import Writer as Writer
from closedform.recipes.forms import literal as literal
from closedform.recipes.forms import native as native
from closedform.recipes.forms import nearest_integer as nearest_integer
from closedform.recipes.framework import ConfigFunction as ConfigFunction
from closedform.recipes.framework import Framework as Framework
from closedform.recipes.framework import Tier as Tier
from closedform.recipes.group_values import base_value as base_value
from closedform.recipes.group_values import number_of_group as number_of_group
from closedform.recipes.group_values import of_base as of_base
from closedform.recipes.group_values import of_group as of_group
from closedform.recipes.intervals import LazyNumber as LazyNumber
from closedform.recipes.intervals import Stage as Stage
from closedform.recipes.intervals import UndefinedError as UndefinedError
from closedform.recipes.intervals import by_intervals as by_intervals
from closedform.recipes.intervals import ending as ending
from closedform.recipes.intervals import first_after as first_after
from closedform.recipes.intervals import first_from as first_from
from closedform.recipes.intervals import power_quotient as power_quotient
from closedform.recipes.intervals import quotient as quotient
from closedform.recipes.keys import ArgumentKeys as ArgumentKeys
from closedform.recipes.keys import ClassKeys as ClassKeys
from closedform.recipes.keys import FlagKeys as FlagKeys
from closedform.recipes.keys import Key as Key
from closedform.recipes.keys import Keys as Keys
from closedform.recipes.keys import OpenKeys as OpenKeys
from closedform.recipes.keys import Values as Values
from closedform.recipes.keys import anything as anything
from closedform.recipes.keys import choice as choice
from closedform.recipes.keys import flag as flag
from closedform.recipes.keys import integer as integer
from closedform.recipes.keys import integers as integers
from closedform.recipes.keys import irrelevant as irrelevant
from closedform.recipes.keys import mapping as mapping
from closedform.recipes.keys import nullable as nullable
from closedform.recipes.keys import number as number
from closedform.recipes.keys import number_or_numbers as number_or_numbers
from closedform.recipes.keys import numbers as numbers
from closedform.recipes.keys import read_by as read_by
from closedform.recipes.keys import section as section
from closedform.recipes.keys import sections as sections
from closedform.recipes.keys import text as text
from closedform.recipes.keys import variants as variants
from closedform.recipes.keys import where_needed as where_needed
from closedform.recipes.optimizer_classes import ClassOptimizer as ClassOptimizer
from closedform.recipes.optimizer_classes import class_optimizer as class_optimizer
from closedform.recipes.optimizer_classes import fused_adam as fused_adam
from closedform.recipes.plateau import TORCH_ARGUMENTS as TORCH_ARGUMENTS
from closedform.recipes.plateau import metric_entry as metric_entry
from closedform.recipes.plateau import timm_plateau as timm_plateau
from closedform.recipes.plateau import torch_plateau as torch_plateau
from closedform.recipes.quantities import BatchSize as BatchSize
from closedform.recipes.quantities import EndRate as EndRate
from closedform.recipes.quantities import Epochs as Epochs
from closedform.recipes.quantities import Norm as Norm
from closedform.recipes.quantities import Rate as Rate
from closedform.recipes.quantities import RunRatio as RunRatio
from closedform.recipes.quantities import SequenceLength as SequenceLength
from closedform.recipes.quantities import Steps as Steps
from closedform.recipes.quantities import Tokens as Tokens
from closedform.recipes.raw_section import RELATED as RELATED
from closedform.recipes.raw_section import RawSection as RawSection
from closedform.recipes.raw_section import calls as calls
from closedform.recipes.raw_section import document_section as document_section
from closedform.recipes.raw_section import is_open as is_open
from closedform.recipes.reader import Reader as Reader
from closedform.recipes.reader import Reading as Reading
from closedform.recipes.recipe import Clipping as Clipping
from closedform.recipes.recipe import ClippingKind as ClippingKind
from closedform.recipes.recipe import OptimizerPlan as OptimizerPlan
from closedform.recipes.recipe import ParamGroup as ParamGroup
from closedform.recipes.recipe import Recipe as Recipe
from closedform.recipes.recipe import Role as Role
from closedform.recipes.recipe import is_constant as is_constant
from closedform.recipes.rules import plan_optimizer as plan_optimizer
from closedform.recipes.section import OpenSection as OpenSection
from closedform.recipes.section import ScheduleOfSections as ScheduleOfSections
from closedform.recipes.section import Section as Section
from closedform.recipes.section import section_entries as section_entries
from closedform.recipes.tags import Tags as Tags
from closedform.recipes.tags import build_member as build_member
from closedform.recipes.tags import read_tags as read_tags
