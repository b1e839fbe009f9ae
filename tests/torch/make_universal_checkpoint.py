"""Makes universal_checkpoint.zip by DeepSpeed's converter, and reads our files by its loader.

``python -m tests.torch.make_universal_checkpoint CLONE`` with a clone of DeepSpeed, of which only
deepspeed/checkpoint is imported: it needs neither a GPU nor the package's dependencies. The clone
of the stored file is edaa7221 (0.19.6).
"""

import importlib.util
import logging
import sys
import tempfile
import types
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from closedform import optimizers
from closedform.torch import Optimizer
from closedform.torch.checkpoints import write_universal

FILE = Path(__file__).parent / "universal_checkpoint.zip"
SHAPES = {"proj.weight": (4, 6), "proj.bias": (4,), "norm.weight": (6,)}
TENSOR_RANKS, DATA_RANKS, STEPS = 2, 2, 3


def trained() -> tuple[dict[str, torch.nn.Parameter], torch.optim.AdamW]:
    """Parameters after some steps of torch's AdamW, and the optimizer."""
    generator = torch.Generator().manual_seed(0)
    params = {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in SHAPES.items()
    }
    optimizer = torch.optim.AdamW(params.values(), lr=0.05, weight_decay=0.1)
    for step in range(STEPS):
        advance(params, optimizer, step)
    return params, optimizer


def advance(params: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """A step with gradients that its number decides."""
    generator = torch.Generator().manual_seed(100 + step)
    for param in params.values():
        param.grad = torch.randn(param.shape, generator=generator)
    optimizer.step()


def import_checkpoint(clone: Path) -> tuple[Any, Any]:
    """The converter and the loader, without deepspeed/__init__.py and its dependencies."""
    for name in ("deepspeed", "deepspeed.utils", "tqdm"):
        # torch asks for the specification of each module.
        specification = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module = importlib.util.module_from_spec(specification)
        module.__path__ = [str(clone / name)]
    vars(sys.modules["deepspeed.utils"])["logger"] = logging.getLogger("deepspeed")
    return (
        importlib.import_module("deepspeed.checkpoint.ds_to_universal"),
        importlib.import_module("deepspeed.checkpoint.universal_checkpoint"),
    )


def convert(converter: Any, folder: Path) -> None:
    """The states of two tensor-parallel ranks with two ZeRO partitions each, converted."""
    params, optimizer = trained()
    tables: dict[str, dict[str, Tensor]] = {"fp32": {}, "exp_avg": {}, "exp_avg_sq": {}}
    for name, param in params.items():
        tables["fp32"][name] = param.detach()
        for key in ("exp_avg", "exp_avg_sq"):
            tables[key][name] = optimizer.state[param][key]
    slices = folder / "slices"
    is_cut = {name: len(shape) == 2 for name, shape in SHAPES.items()}
    shapes: dict[str, list[Any]] = {name: [] for name in SHAPES}
    for rank in range(TENSOR_RANKS):
        for key, table in tables.items():
            parts = {
                name: value.chunk(TENSOR_RANKS)[rank] if is_cut[name] else value
                for name, value in table.items()
            }
            flat = torch.cat([part.flatten() for part in parts.values()])
            half = -(-len(flat) // DATA_RANKS)
            flat = torch.nn.functional.pad(flat, (0, half * DATA_RANKS - len(flat)))
            begin = 0
            for name, part in parts.items():
                for data_rank in range(DATA_RANKS):
                    low = max(begin, half * data_rank)
                    high = min(begin + part.numel(), half * (data_rank + 1))
                    if low < high:
                        own = flat[half * data_rank : half * (data_rank + 1)]
                        place = (name, low - half * data_rank, high - low)
                        converter.dump_param_fragment(
                            str(slices), rank, data_rank, key, own, *place
                        )
                        converter.dump_param_fragment(
                            str(slices), rank, data_rank, "step", torch.tensor(3.0), *place
                        )
                begin += part.numel()
                if key == "fp32":
                    shapes[name].append(part.shape)
    info = {"tp_replicated_parameter_patterns": ["proj.bias", "norm.weight"]}
    for item in shapes.items():
        converter.merge_tp_slices(info, str(folder / "zero"), str(slices), TENSOR_RANKS, item)


def check_our_files(loader: Any, folder: Path) -> None:
    """DeepSpeed's loader finds the states of rules that its converter cannot write."""
    for rule, key in (
        (optimizers.lion(0.1), "exp_avg"),
        (optimizers.muon(0.1), "momentum_buffer"),
        (optimizers.adamw(0.1), "exp_avg_sq"),
    ):
        param: Any = torch.nn.Parameter(torch.randn(4, 6))
        optimizer = Optimizer([param], rule)
        param.grad = torch.randn(4, 6)
        optimizer.step()
        write_universal(folder / rule.name, optimizer, [("w", param)])
        value = torch.zeros(24)
        address = types.SimpleNamespace(start=0, numel=24)
        param._hp_mapping = types.SimpleNamespace(
            lp_fragment_address=address, get_hp_fragment=lambda value=value: value
        )
        step = loader.load_hp_checkpoint_state(param, str(folder / rule.name / "zero" / "w"), 0, 1)
        state = param._hp_mapping.optim_fragment[key]
        assert torch.equal(value, param.detach().flatten())
        assert torch.equal(state, optimizer.state[param][key].flatten())
        print(rule.name, key, "step", step)


def main() -> None:
    """Writes the file and checks ours."""
    converter, loader = import_checkpoint(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        convert(converter, folder)
        with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted((folder / "zero").glob("**/*.pt")):
                info = zipfile.ZipInfo(path.relative_to(folder).as_posix())
                archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
        check_our_files(loader, folder)


if __name__ == "__main__":
    main()
