"""The closed form of a recipe in the extension point of a framework: Python source.

The source has a function of the update for each learning rate, and what the framework calls. It
needs only the framework, not this package. The functions are read back as expressions, and proved
equal to the schedules; the part around them is fixed text.
"""

from __future__ import annotations

from collections.abc import Mapping

from closedform.analysis.profile import Profile
from closedform.analysis.writing.python_text import FUNCTIONS, python_function
from closedform.language import Schedule
from closedform.recipes.recipe import Recipe

_LAMBDA = '''

def scheduler(optimizer):
    """A LambdaLR of the optimizer: a param group may have the name of a rate above.{usage}"""
    from torch.optim.lr_scheduler import LambdaLR

    names = [group.get("name", "") for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] = 1.0  # the functions return rates, not factors
    return LambdaLR(optimizer, [LEARNING_RATES.get(name, learning_rate) for name in names])
'''

_USAGES: Mapping[str, str] = {
    "transformers": "\n\n    ``Trainer(…, optimizers=(optimizer, scheduler(optimizer)))``.\n    ",
    "deepspeed": "\n\n    ``deepspeed.initialize(…, lr_scheduler=scheduler)``.\n    ",
    "lightning-cli": (
        '\n\n    ``configure_optimizers`` returns it as ``{"scheduler": scheduler(optimizer), '
        '"interval": "step"}``.\n    '
    ),
}
_TRAINERS = ("alignment-handbook", "axolotl", "llama-factory", "ms-swift", "transformers", "trl")
"""Programs whose training is transformers' Trainer."""

_COMPOSER = '''

def scheduler(state, ssr=1.0):
    """The factor of the rate in a batch: ``Trainer(…, schedulers=scheduler)`` of Composer.

    The rate of the optimizer must be {peak!r}; ``scale_schedule_ratio`` has no effect.
    """
    return learning_rate(int(state.timestamp.batch)) / {peak!r}
'''

_OPTAX = '''

def schedule(count):
    """A schedule of optax: the rate by the count of updates, in float32."""
    import jax.numpy as jnp

    # The values of the run, each rounded once; after it, that of the last update.
    table = jnp.asarray([learning_rate(t) for t in range({total})], dtype=jnp.float32)
    return table[jnp.minimum(count, {total} - 1)]
'''

_FVCORE = '''

def multiplier():
    """A ParamScheduler of fvcore for detectron2's LRMultiplier, of a run of {total} updates.

    BASE_LR must be {peak!r}: ``LRMultiplier(optimizer, multiplier(), max_iter={total})``.
    """
    from fvcore.common.param_scheduler import ParamScheduler

    class ClosedForm(ParamScheduler):
        def __call__(self, where):
            return learning_rate(round(where * {total})) / {peak!r}

    return ClosedForm()
'''

_MEGATRON = '''

def scheduler_class(batch={batch}):
    """The OptimizerParamScheduler of Megatron with these rates; it counts samples in batches.

    ``megatron.training.training.OptimizerParamScheduler = scheduler_class()`` before ``pretrain``.
    """
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    class ClosedForm(OptimizerParamScheduler):
        def get_lr(self, param_group):
            return LEARNING_RATES.get(param_group.get("name", ""), learning_rate)(
                self.num_steps // batch
            )

    return ClosedForm
'''

_POINTS: Mapping[str, str] = {
    "big_vision": _OPTAX,
    "composer": _COMPOSER,
    "detectron2": _FVCORE,
    "levanter": _OPTAX,
    "llm-foundry": _COMPOSER,
    "maxtext": _OPTAX,
    "megatron": _MEGATRON,
    "optax": _OPTAX,
    "t5x": _OPTAX,
}
"""The extension points that are not torch's LambdaLR."""


def extension_source(recipe: Recipe, framework: str, total: int) -> str:
    """Returns the source of a module with the learning rates of a recipe, for a framework.

    Args:
        recipe: The recipe.
        framework: The framework, or ``optax`` or ``torch``.
        total: The updates of the run.

    Raises:
        LoweringError: A schedule has a function that the source cannot have.
    """
    rates = {"": recipe.schedule(), **other_rates(recipe)}
    names = {key: f"learning_rate_{index}" for index, key in enumerate(rates)} | {
        "": "learning_rate"
    }
    functions = "\n\n".join(python_function(rate, names[key]) for key, rate in rates.items())
    table = ", ".join(f"{key!r}: {names[key]}" for key in rates)
    function_names = [name for name in FUNCTIONS if name in functions]
    imports = f"from math import {', '.join(function_names)}\n\n\n" if function_names else "\n"
    peak = Profile.of(recipe.schedule(), total).peak.high or 1.0
    point = _POINTS.get(framework, _LAMBDA)
    usage = _USAGES.get("transformers" if framework in _TRAINERS else framework, "")
    values = {
        "peak": peak,
        "total": total,
        "batch": recipe.facts.global_batch_size or 1,
        "usage": usage,
    }
    title = f"The learning rate of {recipe.name!r} for {framework}, by the updates done before."
    return (
        f'"""{title}"""\n\n'
        f"{imports}{functions}\n\nLEARNING_RATES = {{{table}}}\n{point.format(**values)}"
    )


def other_rates(recipe: Recipe) -> dict[str, Schedule]:
    """Returns the learning rates of the param groups that differ from the default one, by name."""
    first = recipe.schedule()
    return {
        group.name: group.schedules["lr"]
        for group in recipe.param_groups[1:]
        if group.name and group.schedules["lr"] != first
    }
