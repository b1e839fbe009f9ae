"""Files that were tampered with, and an independent judge of whether their meaning changed.

One edit of a model at a time: a cast that is inserted, a constant, an operator, a comparison, two
operands, a node, or the name of an input. What the checker proves of the edited file is run in
onnxruntime beside the file as it was: at boundaries, at random, and beyond 2**24, 2**31 and 2**40.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform import optimizers, schedules, transforms
from closedform.compiler import compile_schedule
from closedform.effort import Effort
from closedform.errors import ClosedFormError
from closedform.exporters.onnx_files import schedule_model
from closedform.exporters.onnx_targets import OnnxFormat
from closedform.language import Schedule, UpdateRule
from closedform.options import GraphOptions, ModelSpec
from closedform.referee.own_files import judge_schedule, prove_file
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.rule_reading import Kinds
from closedform.verify.translation.rule_terms import Model
from tests.support.rules import compiled_models
from tests.test_library import POSITIVE

STEPS = sorted(
    {
        *range(25),
        *(mark + beside for mark in (100, 1000) for beside in (-1, 0, 1)),
        *(2**power + beside for power in (24, 31, 32, 40) for beside in (-1, 0, 1, 5)),
        2**50 - 1,
        2**50,
    }
)
STEPS_32 = [step for step in STEPS if step < 2**31]
STEPS_OF_RULES = (0, 1, 6, 19, 20, 21, 150, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 5, 2**40 + 3)
# Of the largest value: graphs of one function round differently; a phase in float64 at step t is
# off by t ulp, which a step beyond 2**20 allows for.
FINE, COARSE = 1e-9, 1e-3

LR = schedules.linear(0, 3e-3, 20).then(schedules.cosine(3e-3, 1e-4, 80))
SCHEDULES: Mapping[str, Callable[[], Schedule]] = {
    "linear": lambda: schedules.linear(0, 1, 20),
    "cosine": lambda: LR,
    "annealing": lambda: schedules.cosine_annealing(1, 0.1, 20),
    "steps": lambda: schedules.step_decay(1, 0.5, 10),
    "milestones": lambda: schedules.multi_step(1, 0.1, [5, 9, 100]),
    "cyclic": lambda: schedules.cyclic(0.1, 1, 7),
    "noam": lambda: schedules.noam(64, 100),
    "roots": lambda: schedules.inverse_square_root(1, 40),
    "exponential": lambda: schedules.exponential(1, 0.97),
    "repeated": lambda: schedules.linear(1, 0, 12).repeat(),
    "table": lambda: schedules.table([1, 0.5, 0.7, 0.2]),
}
OPTIONS: Mapping[str, dict[str, Any]] = {
    "": {},
    " in 32 bits": {"dtype": "f32", "scalar_dtype": "f32", "step_dtype": "i32"},
}
RULES: Mapping[str, Callable[[], UpdateRule]] = {
    "sgd": lambda: optimizers.sgd(LR, momentum=0.9),
    "adamw": lambda: optimizers.adamw(LR),
    "lion": lambda: optimizers.lion(LR),
    "adafactor": lambda: optimizers.adafactor(LR),
    "clipped": lambda: transforms.clip_by_global_norm(optimizers.sgd(LR), 0.5),
    "skipped": lambda: transforms.skip_nonfinite(optimizers.sgd(LR, momentum=0.9)),
    "muon": lambda: optimizers.muon(LR),
}
SHAPES = {"w": (3, 4), "v": (2, 5)}


@dataclass(eq=False)
class Subject:
    """A file of a schedule or rule, what checks files like it, and what they are run on."""

    name: str
    model: ModelProto
    check: Callable[[ModelProto], Verdict]
    inputs: Sequence[Mapping[str, Any]] = field(repr=False)
    has_nan: bool = False

    @cached_property
    def values(self) -> list[dict[str, Any]]:
        """The outputs of the file as it was."""
        return run(self.model, self.inputs)


def run(model: ModelProto, inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The outputs of a model in onnxruntime, without its optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    data = model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    needed = {value.name for value in session.get_inputs()}
    return [
        dict(
            zip(
                names, session.run(None, {k: v for k, v in one.items() if k in needed}), strict=True
            )
        )
        for one in inputs
    ]


def subject_of_schedule(name: str, options: str) -> Subject:
    """The file of a schedule."""
    source = SCHEDULES[name]()
    graph_options = GraphOptions(**OPTIONS[options])
    kind, steps = (np.int32, STEPS_32) if options else (np.int64, STEPS)
    return Subject(
        f"{name}{options}",
        schedule_model(source, compile_schedule(source, graph_options)),
        lambda model: judge_schedule(model, source, Effort.of(300_000)),
        [{"step": np.asarray(step, kind)} for step in steps],
    )


def subject_of_rule(name: str, *, is_flat: bool, dtype: str = "f64") -> Subject:
    """The file of a step, flat or with local functions."""
    rule = RULES[name]()
    options = GraphOptions(dtype=dtype)
    spec = ModelSpec(rule, SHAPES)
    models = compiled_models(spec, options, OnnxFormat(inline=is_flat))
    members = [(one.rule, one.params) for one in spec.assignments]
    kinds = Kinds(options.tensor_dtype, options.scalar_dtype)

    def check(model: ModelProto) -> Verdict:
        return prove_file("step", model, Model(members, kinds), Effort.of(500_000))[0]

    kind = " in 32 bits" if dtype == "f32" else " in one graph" if is_flat else ""
    inputs = list(_inputs_of_rule(models["step"]))
    return Subject(f"{name}{kind}", models["step"], check, inputs)


def _inputs_of_rule(model: ModelProto) -> Iterator[dict[str, Any]]:
    draw = np.random.default_rng(3)
    for place, step in enumerate(STEPS_OF_RULES):
        inputs: dict[str, Any] = {}
        for value in model.graph.input:
            tensor = value.type.tensor_type
            shape = [dim.dim_value for dim in tensor.shape.dim]
            kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if kind.kind == "i":
                inputs[value.name] = np.asarray(step if value.name == "step" else 3, kind)
                continue
            numbers = draw.normal(size=shape).astype(kind)
            is_positive = POSITIVE.search(value.name) or "shared" in value.name
            inputs[value.name] = np.abs(numbers) if is_positive else numbers
            if place == 1 and not is_positive:
                inputs[value.name] = np.zeros(shape, kind)
        yield inputs


# --- edits ---------------------------------------------------------------------------------------

KINDS = {"i": (TensorProto.INT64, TensorProto.INT32), "f": (TensorProto.DOUBLE, TensorProto.FLOAT)}
OTHERS: Mapping[str, tuple[str, ...]] = {
    "Add": ("Sub", "Mul", "Max"),
    "Sub": ("Add", "Mul", "Min"),
    "Mul": ("Add", "Div", "Min"),
    "Div": ("Mul", "Sub", "Max"),
    "Min": ("Max", "Add"),
    "Max": ("Min", "Mul"),
    "Less": ("LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    "LessOrEqual": ("Less", "Greater", "Equal"),
    "Greater": ("GreaterOrEqual", "Less"),
    "Equal": ("LessOrEqual", "GreaterOrEqual"),
    "And": ("Or",),
    "Or": ("And",),
    "Sin": ("Cos", "Neg"),
    "Cos": ("Sin", "Abs"),
    "Exp": ("Neg", "Abs"),
    "Sqrt": ("Abs", "Exp"),
    "Log": ("Sqrt", "Neg"),
    "Atan": ("Sin", "Neg"),
    "Neg": ("Abs", "Identity"),
    "Abs": ("Neg", "Identity"),
    "Floor": ("Neg", "Identity"),
    "Not": ("Identity",),
    "ReduceSum": ("ReduceMax",),
    "ReduceMax": ("ReduceSum",),
}


@dataclass
class Edited:
    """A copy of a model under one edit: the nodes of its graph or of one of its functions."""

    model: ModelProto
    nodes: Any
    draw: random.Random
    types: Mapping[str, int]
    is_loaded_anyhow: bool = False

    def node(self, *ops: str) -> NodeProto | None:
        """One of the nodes, of some operators if they are named."""
        nodes = [node for node in self.nodes if not ops or node.op_type in ops]
        return self.draw.choice(nodes) if nodes else None


def _inserted_cast(edited: Edited) -> str | None:
    """An operand goes to another dtype, or two, and comes back."""
    node = edited.node()
    if node is None or not node.input:
        return None
    place = edited.draw.randrange(len(node.input))
    name = node.input[place]
    kind_of_operand = edited.types.get(name)
    if kind_of_operand is None or kind_of_operand not in (*KINDS["i"], *KINDS["f"]):
        return None
    all_kinds = [*KINDS["i"], *KINDS["f"]]
    through = edited.draw.sample(
        [kind for kind in all_kinds if kind != kind_of_operand], edited.draw.choice((1, 1, 2))
    )
    position = list(edited.nodes).index(node)
    for count, kind in enumerate((*through, kind_of_operand)):
        output = f"tampered_{count}"
        edited.nodes.insert(position + count, helper.make_node("Cast", [name], [output], to=kind))
        name = output
    edited.nodes[position + len(through) + 1].input[place] = name
    return f"cast of operand {place} of {node.op_type} through {through}"


def _changed_cast(edited: Edited) -> str | None:
    """A cast goes through another dtype of its kind."""
    node = edited.node("Cast")
    if node is None:
        return None
    (to,) = (each.i for each in node.attribute if each.name == "to")
    if to not in (*KINDS["i"], *KINDS["f"]):
        return None
    through = edited.draw.choice([kind for kind in (*KINDS["i"], *KINDS["f"]) if kind != to])
    position = list(edited.nodes).index(node)
    first = helper.make_node("Cast", list(node.input), ["tampered"], to=through)
    node.input[0] = "tampered"
    edited.nodes.insert(position, first)
    return f"cast to {to} through {through}"


def _constants(edited: Edited) -> list[TensorProto]:
    inner = [
        attribute.t
        for node in edited.nodes
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    return [*edited.model.graph.initializer, *inner]


def _changed_constant(edited: Edited) -> str | None:
    constants = _constants(edited)
    if not constants:
        return None
    tensor = edited.draw.choice(constants)
    array = np.array(numpy_helper.to_array(tensor))
    if not array.size or array.dtype.kind not in "if":
        return None
    flat = array.reshape(-1)
    place = edited.draw.randrange(flat.size)
    old = flat[place]
    if array.dtype.kind == "i":
        flat[place] = edited.draw.choice([old + 1, old - 1, -old, 0, old * 2, old + 2**20])
    else:
        factor = edited.draw.choice([-1.0, 2.0, 0.0, 1.001, 1 + 1e-6, 0.5])
        flat[place] = old * factor + (1.0 if old == 0 else 0.0)
    tensor.CopyFrom(numpy_helper.from_array(flat.reshape(array.shape), tensor.name))
    return f"constant {tensor.name} from {old} to {flat[place]}"


def _other_operator(edited: Edited) -> str | None:
    node = edited.node(*OTHERS)
    if node is None:
        return None
    new_operator = edited.draw.choice(OTHERS[node.op_type])
    text = f"{node.op_type} is {new_operator}"
    node.op_type = new_operator
    return text


def _swapped_operands(edited: Edited) -> str | None:
    node = edited.node()
    if node is None or len(node.input) < 2:
        return None
    first, second = edited.draw.sample(range(len(node.input)), 2)
    node.input[first], node.input[second] = node.input[second], node.input[first]
    return f"operands {first} and {second} of {node.op_type} exchanged"


def _removed_node(edited: Edited) -> str | None:
    node = edited.node()
    if node is None or not node.input:
        return None
    text, operand = f"{node.op_type} removed", edited.draw.choice(list(node.input))
    node.op_type = "Identity"
    node.domain = ""
    del node.attribute[:]
    node.input[:] = [operand]
    return text


def _other_operand(edited: Edited) -> str | None:
    """An operand is another value of its dtype that is computed before."""
    node = edited.node()
    if node is None or not node.input:
        return None
    place = edited.draw.randrange(len(node.input))
    kind_of_operand = edited.types.get(node.input[place])
    position = list(edited.nodes).index(node)
    later = {name for each in list(edited.nodes)[position:] for name in each.output}
    fitting = [
        name
        for name, kind in edited.types.items()
        if kind == kind_of_operand and name not in later and name != node.input[place]
    ]
    if kind_of_operand is None or not fitting:
        return None
    old, node.input[place] = node.input[place], edited.draw.choice(fitting)
    return f"operand {place} of {node.op_type} is {node.input[place]}, not {old}"


def _drawn_number(edited: Edited) -> tuple[NodeProto, int, str] | None:
    """A drawn node with the place and the name of one of its operands; None if not a number."""
    node = edited.node()
    if node is None or not node.input:
        return None
    place = edited.draw.randrange(len(node.input))
    name = node.input[place]
    if edited.types.get(name) not in (*KINDS["i"], *KINDS["f"]):
        return None
    return node, place, name


def _inserted_operator(edited: Edited) -> str | None:
    operand = _drawn_number(edited)
    if operand is None:
        return None
    node, place, name = operand
    op = edited.draw.choice(("Abs", "Neg", "Floor", "Sqrt", "Exp", "Sign"))
    position = list(edited.nodes).index(node)
    node.input[place] = "tampered"
    edited.nodes.insert(position, helper.make_node(op, [name], ["tampered"]))
    return f"{op} before operand {place} of {node.op_type}"


def _renamed_inputs(edited: Edited) -> str | None:
    """Two inputs of one type exchange their names, in the declarations alone."""
    inputs = list(edited.model.graph.input)
    pairs = [
        (first, second)
        for place, first in enumerate(inputs)
        for second in inputs[place + 1 :]
        if first.type == second.type
    ]
    if not pairs:
        return None
    first, second = edited.draw.choice(pairs)
    first.name, second.name = second.name, first.name
    exchanged = {first.name: second.name, second.name: first.name}
    for node in edited.model.graph.node:
        node.input[:] = [exchanged.get(name, name) for name in node.input]
    return f"inputs {first.name} and {second.name} exchanged"


def _renamed_outputs(edited: Edited) -> str | None:
    outputs = list(edited.model.graph.output)
    pairs = [
        (first, second)
        for place, first in enumerate(outputs)
        for second in outputs[place + 1 :]
        if first.type == second.type
    ]
    if not pairs:
        return None
    first, second = edited.draw.choice(pairs)
    exchanged = {first.name: second.name, second.name: first.name}
    for node in edited.model.graph.node:
        node.output[:] = [exchanged.get(name, name) for name in node.output]
        node.input[:] = [exchanged.get(name, name) for name in node.input]
    return f"outputs {first.name} and {second.name} exchanged"


# --- files that an engine reads in another way ---------------------------------------------------

DOMAINS = (
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "ai.onnx.training",
    "ai.onnx.preview.training",
    "com.microsoft",
    "com.microsoft.nchwc",
    "com.microsoft.experimental",
    "com.ms.internal.nhwc",
    "org.pytorch.aten",
    "local",
    "pkg.onnxscript.torch_lib",
)


def _shadowing_function(edited: Edited) -> str | None:
    """An operator after an operand, and a local function of its name that changes nothing."""
    operand = _drawn_number(edited)
    if operand is None:
        return None
    node, place, name = operand
    op, domain = (
        edited.draw.choice(("Neg", "Abs", "Relu", "Gelu", "Div")),
        edited.draw.choice(DOMAINS),
    )
    operands = [name, name] if op == "Div" else [name]
    formal = ["a", "b"][: len(operands)]
    versions = {entry.domain: entry.version for entry in edited.model.opset_import}
    imports = [helper.make_opsetid("", versions[""])]
    body = [helper.make_node("Identity", ["a"], ["c"])]
    edited.model.functions.append(helper.make_function(domain, op, formal, ["c"], body, imports))
    for owner in (edited.model, *edited.model.functions):
        if domain not in {entry.domain for entry in owner.opset_import}:
            owner.opset_import.append(helper.make_opsetid(domain, 1))
    node.input[place] = "tampered"
    position = list(edited.nodes).index(node)
    call = helper.make_node(op, operands, ["tampered"], domain=domain)
    edited.nodes.insert(position, call)
    edited.is_loaded_anyhow = True
    return f"{domain or 'no domain'}.{op} before operand {place} of {node.op_type}, and a function"


def _second_constant(edited: Edited) -> str | None:
    """A constant is defined again, with another value."""
    constants = list(edited.model.graph.initializer)
    numbers = [each for each in constants if each.data_type in (*KINDS["i"], *KINDS["f"])]
    if not numbers:
        return None
    tensor = edited.draw.choice(numbers)
    array = np.array(numpy_helper.to_array(tensor))
    changed = numpy_helper.from_array(array + array.dtype.type(1), tensor.name)
    place = edited.draw.choice((0, len(constants)))
    edited.model.graph.initializer.insert(place, changed)
    edited.is_loaded_anyhow = True
    return f"constant {tensor.name} again, {'after' if place else 'before'} the others"


def _optional_input(edited: Edited) -> str | None:
    """A constant is the default of an input, with the same value or another one."""
    body = edited.model.graph
    names = {value.name for value in body.input}
    constants = [each for each in body.initializer if each.name not in names]
    if not constants:
        return None
    tensor = edited.draw.choice(constants)
    kind = edited.draw.choice((tensor.data_type, tensor.data_type, TensorProto.FLOAT))
    body.input.append(helper.make_tensor_value_info(tensor.name, kind, tensor.dims))
    edited.model.ir_version = edited.draw.choice((3, edited.model.ir_version))
    array = np.array(numpy_helper.to_array(tensor))
    is_changed = edited.draw.random() < 0.5 and array.dtype.kind in "if"
    if is_changed:
        tensor.CopyFrom(numpy_helper.from_array(array + array.dtype.type(1), tensor.name))
    edited.is_loaded_anyhow = True
    return f"constant {tensor.name} is the default of an input, {'changed' if is_changed else ''}"


def _lost_infinity(edited: Edited) -> str | None:
    """An operand has 0 / x added, or x / x as a factor: no number where x is 0."""
    floats = [name for name, kind in edited.types.items() if kind in KINDS["f"]]
    node = edited.node()
    if node is None or not node.input:
        return None
    place = edited.draw.randrange(len(node.input))
    name = node.input[place]
    kind = edited.types.get(name)
    position = list(edited.nodes).index(node)
    later = {made for each in list(edited.nodes)[position:] for made in each.output}
    same = [other for other in floats if edited.types[other] == kind and other not in later]
    if kind not in KINDS["f"] or not same:
        return None
    other = edited.draw.choice(same)
    first = ["Sub", "Div"][edited.draw.random() < 0.5]
    nodes = [
        helper.make_node(first, [other, other], ["tampered_0"]),
        *(
            [helper.make_node("Div", ["tampered_0", other], ["tampered_1"])]
            if first == "Sub"
            else [helper.make_node("Identity", ["tampered_0"], ["tampered_1"])]
        ),
        helper.make_node("Add" if first == "Sub" else "Mul", [name, "tampered_1"], ["tampered"]),
    ]
    for count, made in enumerate(nodes):
        edited.nodes.insert(position + count, made)
    node.input[place] = "tampered"
    return f"{other} / {other} at operand {place} of {node.op_type}"


def _invalid_file(edited: Edited) -> str | None:
    """Sizes, versions and outputs that no file has."""
    model, body = edited.model, edited.model.graph
    kind = edited.draw.choice(("size", "opset", "format", "output", "domain", "declared"))
    match kind:
        case "size" if body.initializer:
            edited.draw.choice(list(body.initializer)).dims.append(-1)
        case "opset":
            model.opset_import[0].version = edited.draw.choice((0, 1, 6, 27, 99))
        case "format":
            model.ir_version = edited.draw.choice((0, 1, 2, 99))
        case "output":
            target = edited.draw.choice(list(body.output)).name
            body.node.append(helper.make_node("Neg", [body.node[-1].output[0]], [target]))
        case "domain":
            model.opset_import.append(helper.make_opsetid("ai.onnx", 13))
        case _:
            value = edited.draw.choice(list(body.output))
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    edited.is_loaded_anyhow = True
    return f"an invalid {kind}"


Edit = Callable[[Edited], str | None]
BORDERS: tuple[Edit, ...] = (
    _shadowing_function,
    _shadowing_function,
    _second_constant,
    _optional_input,
    _lost_infinity,
    _invalid_file,
)
"""Edits of which onnxruntime and a reader may make two things, or one of them nothing."""

EDITS: tuple[Edit, ...] = (
    _inserted_cast,
    _inserted_cast,
    _inserted_cast,
    _changed_cast,
    _changed_constant,
    _changed_constant,
    _other_operator,
    _other_operator,
    _swapped_operands,
    _removed_node,
    _other_operand,
    _other_operand,
    _inserted_operator,
    _renamed_inputs,
    _renamed_outputs,
)


def tampered(
    subject: Subject, draw: random.Random, edits: Sequence[Edit] = EDITS
) -> tuple[str, ModelProto] | None:
    """One edit, and the model that it makes; None where onnx would not check it.

    The edits of ``BORDERS`` make files that onnx refuses, too.
    """
    model = ModelProto()
    model.CopyFrom(subject.model)
    bodies = [model.graph, *model.functions]
    body = draw.choice(bodies)
    edited = Edited(model, body.node, draw, _types(model, body))
    made = draw.choice(edits)(edited)
    if made is None:
        return None
    if edited.is_loaded_anyhow:
        return made, model
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return made, model


def _types(model: ModelProto, body: Any) -> dict[str, int]:
    """The element types of the values of a graph; of a function by the dtype of its body."""
    if isinstance(body, onnx.GraphProto):
        inferred = onnx.shape_inference.infer_shapes(model).graph
        values = [*inferred.input, *inferred.value_info, *inferred.output]
        types = {value.name: value.type.tensor_type.elem_type for value in values}
        return {**{tensor.name: tensor.data_type for tensor in body.initializer}, **types}
    floats = {name for node in body.node for name in (*node.input, *node.output)}
    return dict.fromkeys(floats, TensorProto.DOUBLE)


# --- the judge -----------------------------------------------------------------------------------


def is_changed(subject: Subject, model: ModelProto) -> str | None:
    """Where a file has another value than it had, beyond rounding; None where it has not."""
    is_coarse = has_float32(model) or has_float32(subject.model)
    try:
        found = run(model, subject.inputs)
    except Exception as error:  # onnxruntime's own errors
        return f"it does not run: {str(error)[:80]}"
    for inputs, before, after in zip(subject.inputs, subject.values, found, strict=True):
        step = int(inputs["step"])
        tolerance = COARSE if is_coarse else FINE * max(1, step >> 20)
        for name, value in before.items():
            wanted = np.asarray(value, np.float64)
            if name not in after or np.shape(after[name]) != wanted.shape:
                return f"{name} is not there"
            got = np.asarray(after[name], np.float64)
            finite = wanted[np.isfinite(wanted)]
            scale = max(1e-300, float(np.max(np.abs(finite), initial=0.0)))
            with np.errstate(all="ignore"):
                same = np.abs(got - wanted) <= tolerance * scale
            is_number = np.isfinite(wanted)
            if not np.all(same | ~is_number):
                return f"{name} at step {step} is {got.ravel()[:3]}, and was {wanted.ravel()[:3]}"
    return None


def has_float32(model: ModelProto) -> bool:
    """Whether anything in a model is a float32."""
    casts = (
        attribute.i
        for body in (model.graph, *model.functions)
        for node in body.node
        for attribute in node.attribute
        if attribute.name == "to"
    )
    tensors = (tensor.data_type for tensor in model.graph.initializer)
    inputs = (value.type.tensor_type.elem_type for value in model.graph.input)
    return TensorProto.FLOAT in {*casts, *tensors, *inputs}


@dataclass
class Count:
    """The outcome of some files."""

    files: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def sweep(subject: Subject, count: int, seed: int, edits: Sequence[Edit] = EDITS) -> Count:
    """So many files, each made by one edit of a file; those that are wrongly proved."""
    draw = random.Random(f"{subject.name} {seed}")
    found = Count()
    attempts = 0
    while found.files < count and attempts < 20 * count:
        attempts += 1
        made = tampered(subject, draw, edits)
        if made is None:
            continue
        what, model = made
        found.files += 1
        try:
            verdict = subject.check(model)
        except ClosedFormError:
            verdict = Verdict(Status.UNKNOWN, reason="refused")
        status = verdict.reason if verdict.reason == "refused" else str(verdict.status)
        found.by_status[status] = found.by_status.get(status, 0) + 1
        if verdict.status is Status.PROVED:
            changed = is_changed(subject, model)
            if changed is not None:
                found.wrong.append(f"{subject.name}: {what}: PROVED, and {changed}")
        if is_wrongly_undefined(subject, model, verdict):
            found.wrong.append(f"{subject.name}: {what}: {verdict}, and it has the same value")
    return found


def is_wrongly_undefined(subject: Subject, model: ModelProto, verdict: Verdict) -> bool:
    """Whether a schedule is refuted for having no value at a step at which it has its value."""
    point = verdict.counterexample or {}
    if not verdict.refuted or set(point) != {"t"} or "undefined" not in verdict.reason:
        return False
    kind = subject.inputs[0]["step"].dtype
    inputs = [{"step": np.asarray(int(point["t"]), kind)}]
    try:
        (after,) = run(model, inputs)
    except Exception:  # onnxruntime's own errors
        return False
    (before,) = run(subject.model, inputs)
    return all(
        name in after and np.array_equal(after[name], value) for name, value in before.items()
    )


def subjects() -> dict[str, Callable[[], Subject]]:
    """How each subject is made, by its name."""
    found: dict[str, Callable[[], Subject]] = {}
    for name in SCHEDULES:
        for options in OPTIONS:
            found[f"{name}{options}"] = lambda n=name, o=options: subject_of_schedule(n, o)  # type: ignore[misc]
    for name in RULES:
        for is_flat in (False, True):
            label = f"{name} in one graph" if is_flat else name
            found[label] = lambda n=name, f=is_flat: subject_of_rule(n, is_flat=f)  # type: ignore[misc]
    return found
