"""A recipe from a config file: schedule and optimizer, read without executing code."""

from pathlib import Path

import numpy as np

import closedform as cf
from closedform.plotting import terminal_plot

CONFIG = Path(__file__).parent / "configs" / "gpt3_111m.yaml"


def main() -> None:
    recipe = cf.load_recipe(CONFIG)
    lr = recipe.schedules["lr"]
    rule = recipe.optimizer()
    print(f"{CONFIG.name}: {recipe.horizon} steps of {rule.name}, states {', '.join(rule.states)}")
    for name, value in rule.hyperparameters.items():
        print(f"  {name} = {value.name if isinstance(value, cf.Schedule) else value}")

    steps = np.arange(recipe.horizon or 1000)
    print(terminal_plot(lr(steps)))
    for step in (0, 1524, 1525, 9036, 9037):
        print(f"step {step:>5}: {lr.exact(step)!s:>16} = {lr(step):.6g}")


if __name__ == "__main__":
    main()
