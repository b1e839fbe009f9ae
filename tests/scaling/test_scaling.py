"""Parametrizations, rates by layers, and Muon next to AdamW: factors, groups, exports, recipes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.errors import ClosedFormError
from closedform.language.partitions import Partition
from closedform.optimizers import adam, adamw, lion, muon, sgd
from closedform.recipes import load_recipe
from closedform.recipes.recipe import Role
from closedform.scaling import Layer, layerwise_decay, muon_and_adamw, mup
from closedform.scaling.layers import block_of, layers_of
from closedform.torch import optim as drop_in
from tests.scaling.models import SUBJECTS, loss_of


def shapes(width: int, blocks: int = 2) -> dict[str, tuple[int, ...]]:
    """A transformer with a vocabulary of 11, 3 features and 2 classes."""
    per_block = {
        "up": (4 * width, width),
        "up_bias": (4 * width,),
        "down": (width, 4 * width),
        "norm": (width,),
    }
    return {
        "embed.w": (11, width),
        "stem": (width, 3),
        **{
            f"h.{index}.{name}": shape
            for index in range(blocks)
            for name, shape in per_block.items()
        },
        "kernel": (width, width, 3),
        "scale": (),
        "fixed": (3, 5),
        "head": (2, width),
    }


WIDE, BASE = shapes(64), shapes(16)


def test_layers_are_those_of_the_shapes() -> None:
    layers = {entry.name: entry.layer for entry in layers_of(WIDE, BASE)}
    assert layers["embed.w"] is Layer.EMBEDDING
    assert layers["stem"] is Layer.INPUT
    assert layers["h.1.up"] is layers["h.0.down"] is layers["kernel"] is Layer.HIDDEN
    assert layers["h.0.up_bias"] is layers["h.1.norm"] is Layer.VECTOR
    assert layers["head"] is Layer.OUTPUT
    assert layers["scale"] is layers["fixed"] is Layer.FIXED


# Tensor Programs V, Table 8, with m = 4: rate, deviation over the base, multiplier.
TABLE_8: dict[str, dict[str, tuple[Any, Any, Any]]] = {
    "adam": {
        "embed.w": (1, 1, 1),
        "stem": (1, 1, 1),
        "h.0.up": (sp.Rational(1, 4), sp.Rational(1, 2), 1),
        "h.0.up_bias": (1, 1, 1),
        "head": (1, 1, sp.Rational(1, 4)),
        "fixed": (1, 1, 1),
    },
    "sgd": {
        "embed.w": (4, 1, 1),
        "stem": (4, 1, 1),
        "h.0.up": (1, sp.Rational(1, 2), 1),
        "h.0.up_bias": (4, 1, 1),
        "head": (4, 1, sp.Rational(1, 4)),
        "fixed": (1, 1, 1),
    },
}


@pytest.mark.parametrize("name", TABLE_8)
def test_the_factors_are_those_of_table_8(name: str) -> None:
    rule = adam(1e-3) if name == "adam" else sgd(0.1)
    scales = mup(WIDE, BASE, rule)
    for parameter, expected in TABLE_8[name].items():
        entry = scales[parameter]
        assert (entry.rate, entry.deviation, entry.multiplier) == expected, parameter


def test_hidden_weights_of_sgd_have_the_ratio_of_both_widths() -> None:
    scales = mup({"w": (8, 12)}, {"w": (2, 4)}, sgd(0.1))
    assert scales["w"].rate == sp.Rational(4, 3)


def test_the_product_of_rate_and_decay_remains() -> None:
    entry = mup(WIDE, BASE, adamw(1e-3, weight_decay=0.1))["h.0.up"]
    assert entry.rate * entry.weight_decay == 1
    assert mup(WIDE, BASE, adamw(1e-3), scale_decay=False)["h.0.up"].weight_decay == 1
    assert "weight_decay" not in mup(WIDE, BASE, lion(1e-3))["h.0.up"].factors


def test_complete_p_scales_with_the_depth() -> None:
    deep = shapes(64, blocks=8)
    rule = adamw(1e-3, weight_decay=0.1)
    scales = mup(deep, BASE, rule, parametrization="complete-p", depths=(2, 8))
    hidden, norm, head = scales["h.7.up"], scales["h.7.norm"], scales["head"]
    # Dey et al. 2025, Table 1, with alpha = 1: no depth in the rates, 1 / (m_N m_L) in eps.
    assert (hidden.rate, hidden.weight_decay, hidden.eps) == (
        sp.Rational(1, 4),
        4,
        sp.Rational(1, 16),
    )
    assert (norm.rate, norm.eps) == (1, sp.Rational(1, 16))
    assert (head.rate, head.eps, head.multiplier) == (1, sp.Rational(1, 4), sp.Rational(1, 4))
    assert scales.residual == sp.Rational(1, 4)
    half = mup(deep, BASE, rule, parametrization="complete-p", depths=(2, 8), alpha=0.5)
    assert (half["h.0.up"].rate, half["h.0.norm"].rate) == (sp.Rational(1, 8), sp.Rational(1, 2))
    assert half["h.0.up"].weight_decay == 4


def test_complete_p_is_that_of_its_authors() -> None:
    """nanoGPT-mup, branch completep, model.py, configure_optimizers: lr_scale and weight decay."""
    width, depth, alpha = 4.0, 3.0, 0.75
    scales = mup(
        shapes(64, 6),
        BASE,
        adamw(1e-3, weight_decay=0.1),
        parametrization="complete-p",
        depths=(2, 6),
        alpha=alpha,
    )
    depth_scaling, width_scaling = depth ** (alpha - 1), 1 / width
    expected = {
        "embed.w": (1.0, 0.1),
        "h.5.norm": (depth_scaling, 0.1),
        "h.5.up": (width_scaling * depth_scaling, 0.1 / width_scaling),
        "h.5.up_bias": (depth_scaling, 0.1),
    }
    for name, (rate, decay) in expected.items():
        entry = scales[name]
        assert float(entry.rate) == pytest.approx(rate, rel=1e-15)
        assert float(entry.weight_decay) * 0.1 == pytest.approx(decay, rel=1e-15)
    hidden_eps = (1 / width) * depth ** (-alpha)
    assert float(scales["h.0.up"].eps) == pytest.approx(hidden_eps, rel=1e-15)
    assert float(scales.residual) == pytest.approx(depth**-alpha, rel=1e-15)


def test_u_mup_counts_the_sizes_themselves() -> None:
    scales = mup(WIDE, BASE, adam(1.0), parametrization="u-mup", depths=(4, 4))
    # unit_scaling 0.3, lr_scale_func_adam: fan_in**-1/2, the hidden size for embeddings, and
    # depth**-1/2 in residual branches.
    assert scales["h.0.down"].rate == sp.Rational(1, 16) / 2
    assert scales["embed.w"].rate == sp.Rational(1, 8)
    assert scales["h.0.norm"].rate == sp.Rational(1, 2)
    assert scales["head"].rate == 1
    assert (scales["h.0.down"].multiplier, scales["head"].multiplier) == (
        sp.Rational(1, 16),
        sp.Rational(1, 64),
    )
    assert {entry.deviation for entry in scales.parameters} == {1}


# --- groups ---------------------------------------------------------------------------------------

SMALL = {"embed.w": (3, 4), "h.0.w": (4, 4), "h.0.b": (4,), "head": (3, 4)}
SMALL_BASE = {name: tuple(2 if n == 4 else n for n in shape) for name, shape in SMALL.items()}


def test_groups_are_exported_with_their_rates(tmp_path: Path) -> None:
    rule = adamw(cf.schedules.linear(0.1, 0, 10), weight_decay=0.1)
    groups = mup(SMALL, SMALL_BASE, rule).groups
    cf.to_onnx(rule, tmp_path, params=SMALL, groups=groups)
    session = cf.OptimizerSession(
        rule, {name: np.ones(shape, np.float32) for name, shape in SMALL.items()}, groups=groups
    )
    session.step({name: np.ones(shape, np.float32) for name, shape in SMALL.items()})
    moves = {name: float(np.ravel(1 - session.params[name])[0]) for name in SMALL}
    # AdamW moves by lr (1 + weight decay); hidden weights by half the rate and twice the decay.
    assert moves["embed.w"] == pytest.approx(0.1 * (1 + 0.1), rel=1e-5)
    assert moves["h.0.w"] == pytest.approx(0.05 * (1 + 0.2), rel=1e-5)
    assert moves["head"] == pytest.approx(moves["h.0.b"], rel=1e-6)


def test_param_groups_of_torch_have_the_numbers() -> None:
    subject = SUBJECTS["mlp"]
    model = subject.model(256, True)
    rule = adamw(1e-2, weight_decay=0.1)
    scales = mup(model, subject.model(64, True), rule)
    groups = scales.param_groups(model, rule)
    optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1)
    by_name = {
        name: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for name in group["param_names"]
    }
    assert by_name["second.weight"] == pytest.approx((1e-2 / 4, 0.4))
    assert by_name["first.weight"] == by_name["head.weight"] == (1e-2, 0.1)
    assert sorted(by_name) == sorted(name for name, _ in model.named_parameters())


def test_the_drop_in_of_torch_takes_the_param_groups() -> None:
    torch.manual_seed(0)
    subject = SUBJECTS["mlp"]
    rule = adamw(1e-2, weight_decay=0.1)
    losses = []
    for make in (torch.optim.AdamW, drop_in.AdamW):
        torch.manual_seed(1)
        model = subject.model(128, True)
        groups = mup(model, subject.model(64, True), rule).param_groups(model, rule)
        optimizer = make(groups, lr=1e-2, weight_decay=0.1)
        for step in range(3):
            loss = loss_of(model, *subject.batches(0)(step))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_training_step_is_exported_with_the_groups(tmp_path: Path) -> None:
    model, base = torch.nn.Linear(4, 4), torch.nn.Linear(2, 2)
    rule = adamw(1e-2, weight_decay=0.1)
    groups = mup(model, base, rule).groups
    assert [group.globs for group in groups] == [("weight",)]
    cf.training.export(
        model,
        torch.nn.MSELoss(),
        (torch.zeros(3, 4), torch.zeros(3, 4)),
        rule,
        tmp_path / "step",
        groups=groups,
    )
    assert any((tmp_path / "step").iterdir())


def test_modules_that_look_up_rows_are_embeddings() -> None:
    def model(width: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Embedding(5, width), torch.nn.Linear(width, 5))

    layers = {entry.name: entry.layer for entry in layers_of(model(8), model(4))}
    assert layers["0.weight"] is Layer.EMBEDDING
    assert layers["1.weight"] is Layer.OUTPUT


MEGATRON = {
    "lr": 1e-3,
    "train-iters": 100,
    "lr-warmup-iters": 10,
    "weight-decay": 0.1,
    "lr-decay-style": "cosine",
}


def test_recipes_have_groups_by_role() -> None:
    recipe = load_recipe(MEGATRON, framework="megatron", facts={"global_batch_size": 8})
    scaled = mup(SMALL, SMALL_BASE, recipe.optimizer()).recipe(recipe)
    roles = {group.role: group for group in scaled.param_groups}
    assert list(roles) == [Role.DEFAULT, Role.EMBEDDING_AND_OUTPUT, Role.NO_DECAY]
    rate = recipe.schedule()
    assert roles[Role.DEFAULT].schedules["lr"].exact(50) == rate.exact(50) / 2
    assert roles[Role.DEFAULT].schedules["weight_decay"].exact(0) == sp.Rational(1, 5)
    assert roles[Role.EMBEDDING_AND_OUTPUT].schedules["lr"].exact(50) == rate.exact(50)
    assert roles[Role.NO_DECAY].schedules["weight_decay"].exact(0) == 0
    assert roles[Role.EMBEDDING_AND_OUTPUT].patterns == ("embed.w", "head")


def test_megatron_has_the_rate_of_embeddings_and_output_weights() -> None:
    flags = {**MEGATRON, "weight-decay": 0}
    recipe = load_recipe(flags, framework="megatron", facts={"global_batch_size": 8})
    scales = mup(SMALL, SMALL_BASE, recipe.optimizer(), scale_decay=False)
    written = cf.write_recipe(scales.recipe(recipe), "megatron")
    assert written.verdict.value == "exact"
    assert "--decoupled-lr 0.001" in written.text
    assert "--lr 0.0005" in written.text
    # Biases and gains have the rate of the hidden weights there.
    assert written.left_out == ("the param group 'no_decay'",)


def test_torchtitan_has_a_param_group_for_each() -> None:
    config = {
        "training": {"steps": 1000},
        "optimizer": {"name": "AdamW", "lr": 1e-3, "weight_decay": 0.1},
        "lr_scheduler": {"warmup_steps": 100},
    }
    recipe = load_recipe(config, framework="torchtitan")
    scaled = mup(SMALL, SMALL_BASE, recipe.optimizer()).recipe(recipe)
    written = cf.write_recipe(scaled, "torchtitan")
    assert (written.verdict.value, written.left_out, written.added) == ("exact", (), ())
    assert written.recipe is not None
    rates = {
        group.patterns[0]: (
            float(group.schedules["lr"].exact(99)),
            float(group.schedules["weight_decay"].exact(0)),
        )
        for group in written.recipe.param_groups
    }
    assert rates == {
        ".*": (5e-4, 0.2),
        r"^(embed\.w|head)$": (1e-3, 0.1),
        r"^(h\.0\.b)$": (1e-3, 0.1),
    }


def test_deepspeed_has_one_param_group_and_says_so() -> None:
    recipe = load_recipe(MEGATRON, framework="megatron", facts={"global_batch_size": 8})
    scaled = mup(SMALL, SMALL_BASE, recipe.optimizer()).recipe(recipe)
    written = cf.write_recipe(scaled, "deepspeed")
    assert "the param group 'embedding_and_output'" in written.left_out


# --- by layers ------------------------------------------------------------------------------------


def test_rates_fall_towards_the_input() -> None:
    groups = layerwise_decay(shapes(8), 0.5)
    factors = {name: group.factors["lr"] for group in groups for name in group.globs}
    assert factors["embed.w"] == sp.Rational(1, 8)
    assert factors["h.0.up"] == sp.Rational(1, 4)
    assert factors["h.1.norm"] == sp.Rational(1, 2)
    assert "head" not in factors


def test_layers_are_those_of_mae() -> None:
    """MAE, util/lr_decay.py, get_layer_id_for_vit: 0 for tokens and the patch embedding."""
    names = ["cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.w", "blocks.1.w", "fc"]
    groups = layerwise_decay(dict.fromkeys(names, (2, 2)), 0.75)
    factors = {name: float(group.factors["lr"]) for group in groups for name in group.globs}
    depth = 2 + 1
    identifiers = [0, 0, 0, 1, 2, depth]
    assert [factors.get(name, 1.0) for name in names] == [0.75 ** (depth - i) for i in identifiers]


def test_muon_and_adamw_follow_one_schedule() -> None:
    lr = cf.schedules.trapezoidal(3e-4, 0, 100, warmup=10, decay=40)
    pair = muon_and_adamw(SMALL, lr, ratio=10)
    (group,) = pair.groups
    assert group.globs == ("h.0.w",)
    assert group.rule is not None
    rates = group.rule.hyperparameters["lr"], pair.rule.hyperparameters["lr"]
    claim = cf.claims.equal(rates[0], rates[1].scale(10))
    assert claim.verify().proved
    assignment = cf.to_onnx(pair.rule, params=SMALL, groups=pair.groups)
    assert assignment is not None


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: mup(WIDE, BASE, muon()), "mup has no rates for the rule 'muon'"),
    (lambda: mup(WIDE, BASE, sgd(0.1), parametrization="u-mup"), "u-mup has no rates for the rule"),
    (
        lambda: mup(WIDE, BASE, adam(), parametrization="sp"),
        "one of mup, u-mup, complete-p, got 's",
    ),
    (lambda: mup(WIDE, BASE, adam(), alpha=2), "alpha must be a rational number from 1/2 to 1"),
    (
        lambda: mup(WIDE, BASE, adam(), depths=(0, 2)),
        r"depths must be two integers above 0, got \(0",
    ),
    (lambda: mup({"w": (2, 2)}, {}, adam()), "the base model has no parameter of this name"),
    (lambda: mup({"w": (2, 2, 4)}, {"w": (2, 2, 2)}, adam()), "only the first two dimensions"),
    (lambda: mup(3, BASE, adam()), "a model or its shapes by name must be given, got"),  # type: ignore[arg-type]
    (lambda: mup(WIDE, BASE, adam())["heda"], "did you mean 'head'"),
    (lambda: layerwise_decay(WIDE, 1.5), r"decay must be in \(0, 1\], got 1.5"),
    (lambda: layerwise_decay({"w": (2,)}, 0.5), "no parameter has the index of a block"),
    (lambda: muon_and_adamw({"b": (2,)}), "no parameter is a hidden matrix"),
    (lambda: muon_and_adamw(SMALL, ratio=0), "ratio must be above 0, got 0"),
    (
        lambda: muon_and_adamw({"a.qkv_proj.weight": (9, 4)}),
        re.escape(
            "the blocks of qkv_proj do not follow from its shape [9, 4] and that of o_proj, [] "
            "(parameter 'a.qkv_proj.weight'): give it a group with muon(…, partitions=…)"
        ),
    ),
    (
        lambda: muon_and_adamw(
            dict.fromkeys(("x.c_attn.weight", "x.q_attn.weight"), (4, 8))
            | {"x.c_proj.weight": (4, 4)}
        ),
        r"the blocks of c_attn do not follow from its shape \[4, 8\] and that of c_proj, \[4, 4\]",
    ),
    (
        lambda: muon_and_adamw(
            {"a.query_key_value.weight": (24, 8), "a.dense.weight": (8, 8)}, heads=3
        ),
        re.escape(
            "each head has its part of query, key and value of the sizes (8, 8, 8), got 3 heads "
            "(parameter 'a.query_key_value.weight'): give the number of attention heads: heads=…"
        ),
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        build()


def test_blocks_are_the_first_numbers_between_dots() -> None:
    assert [block_of(name) for name in ("h.12.w", "3.w", "w1.b", "layer.2.sub.7.w")] == [
        12,
        3,
        None,
        2,
    ]


Shapes = dict[str, tuple[int, ...]]

# Names and shapes of the models of transformers, fused as vLLM does where it says so.
MODELS: dict[str, tuple[Shapes, dict[str, Partition]]] = {
    "Llama 3.1 8B, fused": (
        {
            "model.embed_tokens.weight": (128256, 4096),
            "model.layers.0.self_attn.qkv_proj.weight": (6144, 4096),
            "model.layers.0.self_attn.o_proj.weight": (4096, 4096),
            "model.layers.0.mlp.gate_up_proj.weight": (28672, 4096),
            "model.layers.0.mlp.down_proj.weight": (4096, 14336),
            "model.layers.0.input_layernorm.weight": (4096,),
            "lm_head.weight": (128256, 4096),
        },
        {
            "model.layers.0.self_attn.qkv_proj.weight": Partition((4096, 1024, 1024)),
            "model.layers.0.mlp.gate_up_proj.weight": Partition((14336, 14336)),
        },
    ),
    # The attention of 32 heads of 128 is wider than the model.
    "Qwen3 4B, fused": (
        {
            "model.layers.0.self_attn.qkv_proj.weight": (6144, 2560),
            "model.layers.0.self_attn.q_norm.weight": (128,),
            "model.layers.0.self_attn.o_proj.weight": (2560, 4096),
        },
        {"model.layers.0.self_attn.qkv_proj.weight": Partition((4096, 1024, 1024))},
    ),
    "Qwen2.5 7B": (
        {
            "model.layers.0.self_attn.q_proj.weight": (3584, 3584),
            "model.layers.0.self_attn.k_proj.weight": (512, 3584),
            "model.layers.0.self_attn.k_proj.bias": (512,),
            "model.layers.0.mlp.gate_proj.weight": (18944, 3584),
        },
        {},
    ),
    "GPT-NeoX 20B": (
        {
            "gpt_neox.embed_in.weight": (50432, 6144),
            "gpt_neox.layers.0.attention.query_key_value.weight": (18432, 6144),
            "gpt_neox.layers.0.attention.query_key_value.bias": (18432,),
            "gpt_neox.layers.0.attention.dense.weight": (6144, 6144),
            "gpt_neox.layers.0.mlp.dense_h_to_4h.weight": (24576, 6144),
            "embed_out.weight": (50432, 6144),
        },
        {
            "gpt_neox.layers.0.attention.query_key_value.weight": Partition(
                (6144, 6144, 6144), groups=64
            )
        },
    ),
    # 64 heads in groups of 8, each with one key and one value.
    "Megatron, Llama 3.1 70B": (
        {
            "decoder.layers.0.self_attention.linear_qkv.weight": (10240, 8192),
            "decoder.layers.0.self_attention.linear_proj.weight": (8192, 8192),
            "decoder.layers.0.mlp.linear_fc1.weight": (57344, 8192),
            "decoder.layers.0.mlp.linear_fc2.weight": (8192, 28672),
            "decoder.layers.1.mlp.experts.linear_fc1.weight7": (57344, 8192),
            "decoder.layers.1.mlp.experts.linear_fc2.weight7": (8192, 28672),
        },
        {
            "decoder.layers.1.mlp.experts.linear_fc1.weight7": Partition((28672, 28672)),
            "decoder.layers.0.self_attention.linear_qkv.weight": Partition(
                (8192, 1024, 1024), groups=8
            ),
            "decoder.layers.0.mlp.linear_fc1.weight": Partition((28672, 28672)),
        },
    ),
    "Megatron, an MLP without a gate": (
        {
            "decoder.layers.0.mlp.linear_fc1.weight": (16384, 4096),
            "decoder.layers.0.mlp.linear_fc2.weight": (4096, 16384),
        },
        {},
    ),
    "Mixtral 8x7B of transformers 5": (
        {
            "model.layers.0.mlp.gate.weight": (8, 4096),
            "model.layers.0.mlp.experts.gate_up_proj": (8, 28672, 4096),
            "model.layers.0.mlp.experts.down_proj": (8, 4096, 14336),
        },
        {"model.layers.0.mlp.experts.gate_up_proj": Partition((14336, 14336), 1)},
    ),
    "Mixtral 8x7B of transformers 4": (
        {
            "model.layers.0.block_sparse_moe.experts.0.w1.weight": (14336, 4096),
            "model.layers.0.block_sparse_moe.experts.0.w2.weight": (4096, 14336),
        },
        {},
    ),
    "Llama 4 Scout": (
        {
            "model.layers.0.feed_forward.experts.gate_up_proj": (16, 5120, 16384),
            "model.layers.0.feed_forward.experts.down_proj": (16, 8192, 5120),
        },
        {"model.layers.0.feed_forward.experts.gate_up_proj": Partition((8192, 8192), 2)},
    ),
    "gpt-oss 20B": (
        {
            "model.layers.0.mlp.experts.gate_up_proj": (32, 2880, 5760),
            "model.layers.0.mlp.experts.gate_up_proj_bias": (32, 5760),
            "model.layers.0.mlp.experts.down_proj": (32, 2880, 2880),
            "model.layers.0.mlp.experts.down_proj_bias": (32, 2880),
        },
        {"model.layers.0.mlp.experts.gate_up_proj": Partition((2880, 2880), 2, 2880)},
    ),
    "GPT-2": (
        {
            "transformer.wte.weight": (50257, 768),
            "transformer.wpe.weight": (1024, 768),
            "transformer.h.0.attn.c_attn.weight": (768, 2304),
            "transformer.h.0.attn.c_proj.weight": (768, 768),
            "transformer.h.0.mlp.c_fc.weight": (768, 3072),
            "transformer.h.0.ln_1.weight": (768,),
        },
        {"transformer.h.0.attn.c_attn.weight": Partition((768, 768, 768), 1)},
    ),
    "nanoGPT": (
        {
            "transformer.h.0.attn.c_attn.weight": (2304, 768),
            "transformer.h.0.attn.c_proj.weight": (768, 768),
        },
        {"transformer.h.0.attn.c_attn.weight": Partition((768, 768, 768))},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_fused_matrices_of_public_models_have_their_blocks(name: str) -> None:
    shapes, partitions = MODELS[name]
    others = ("embed", "lm_head", "wte", "wpe", "bias")
    pair = muon_and_adamw(shapes, heads=64)
    found: dict[str, Partition | None] = {}
    for group in pair.groups:
        assert group.rule is not None
        partition = group.rule.arguments["partitions"]
        found |= dict.fromkeys(group.params, partition)
        for param in group.params:  # the rule is for the shape, and its blocks are all of it
            assert list(group.rule.for_shape(shapes[param]).states) == ["momentum_buffer"]
    if not pair.groups:
        found = dict.fromkeys(shapes)
    hidden = {n for n, s in shapes.items() if len(s) > 1 and not any(o in n for o in others)}
    assert found == {key: partitions.get(key) for key in hidden}


def test_the_heads_are_those_of_the_config() -> None:
    class Model:
        config = type("Config", (), {"num_attention_heads": 4})()

        def named_parameters(self) -> list[tuple[str, torch.Tensor]]:
            shapes = {"query_key_value": (24, 8), "dense": (8, 8)}
            return [(f"h.0.{name}.weight", torch.empty(shape)) for name, shape in shapes.items()]

    pair = muon_and_adamw(Model())
    partitions = [group.rule.arguments["partitions"] for group in pair.groups if group.rule]
    assert partitions == [Partition((8, 8, 8), groups=4), None]
