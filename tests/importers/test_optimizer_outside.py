"""A step that changes something outside of its optimizer: refused by name and line, and undone.

Each kind of variable is changed at the first step only, at every step, and at the fourth one, where
the plain steps end.
"""

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.torch_optimizer.subject import Subject
from closedform.language.symbols import GRAD, PARAM, hyper

TEMPLATE = """
import torch
import types
from collections import Counter, OrderedDict, defaultdict, deque
import outside_config

{outer}

def make():
    CELL = 0

    class Stepping(torch.optim.Optimizer):
        limit = 2

        def __init__(self, params):
            super().__init__(params, {{"lr": 0.5, "count": 0}})
            self.helper = {stored}

        @torch.no_grad()
        def step(self, closure=None):
            {scope}
            for group in self.param_groups:
                if group["count"] {when}:
                    {change}
                for p in group["params"]:
                    p.sub_(p.grad, alpha=group["lr"] * ({factor}))
                group["count"] += 1

    def cell():
        return CELL

    return Stepping, cell

Stepping, cell = make()
"""


@dataclass(frozen=True)
class Variable:
    """A variable outside of an optimizer.

    Attributes:
        change: The statement that changes it.
        value: The expression whose value is changed.
        message: A part of the error.
        outer: The statements that make it.
        scope: The declaration in the step.
        stored: What the optimizer stores.
        factor: What the step multiplies the learning rate with.
    """

    change: str
    value: str
    message: str
    outer: str = ""
    scope: str = ""
    stored: str = "None"
    factor: str = "1.0"


TRACKER = """
class Tracker:
    total = 0
    def __init__(self):
        self.n = 0
        self.log = []
        self.other = self
TRACKER = Tracker()
"""
LOCKED = """
import threading
class Locked:
    def __init__(self):
        self.n = 0
        self.lock = threading.Lock()
LOCKED = Locked()
"""
NOTING = """
def note(value, log=[]):
    log.append(value)
def count(value):
    count.calls += value
count.calls = 0
"""
VARIABLES = {
    "global": Variable("COUNT += 1", "COUNT", "assigns 'COUNT'", "COUNT = 0", "global COUNT"),
    "deleted global": Variable(
        "del COUNT", "COUNT", "assigns 'COUNT'", "COUNT = 0", "global COUNT"
    ),
    "list": Variable("LOG.append(1)", "LOG", "changes a list", "LOG = []"),
    "dict": Variable("TABLE['n'] = 1", "TABLE", "changes a dict", "TABLE = {}"),
    "set": Variable("SEEN.add(1)", "SEEN", "changes a set", "SEEN = set()"),
    "deque": Variable("QUEUE.append(1)", "QUEUE", "changes a deque", "QUEUE = deque(maxlen=3)"),
    "defaultdict": Variable("MISSES['n']", "MISSES", "changes a dict", "MISSES = defaultdict(int)"),
    "ordered dict": Variable(
        "ORDER.move_to_end('a')",
        "ORDER",
        "changes a dict",
        "ORDER = OrderedDict(a=1, b=2)",
    ),
    "counter": Variable("BINS['n'] += 1", "BINS", "changes a dict", "BINS = Counter()"),
    "nested list": Variable(
        "DEEP['a'][0].append(1)", "DEEP", "changes a list", "DEEP = {'a': [[]]}"
    ),
    "cell": Variable("CELL += 1", "cell()", "assigns 'CELL'", scope="nonlocal CELL"),
    "class attribute": Variable(
        "Stepping.limit += 1", "Stepping.limit", "the attribute 'limit' of the class 'Stepping'"
    ),
    "attribute of its class": Variable(
        "type(self).limit += 1", "Stepping.limit", "the attribute 'limit' of the class 'Stepping'"
    ),
    "new class attribute": Variable(
        "Stepping.calls = 1",
        "vars(Stepping).keys()",
        "the attribute 'calls' of the class 'Stepping'",
    ),
    "deleted class attribute": Variable(
        "del Stepping.limit", "Stepping.limit", "the attribute 'limit' of the class 'Stepping'"
    ),
    "class attribute by name": Variable(
        "setattr(Stepping, 'limit', 3)",
        "Stepping.limit",
        "the attribute 'limit' of the class 'Stepping'",
    ),
    "class attribute deleted by name": Variable(
        "delattr(Stepping, 'limit')",
        "Stepping.limit",
        "the attribute 'limit' of the class 'Stepping'",
    ),
    "attribute of two underscores": Variable(
        "Stepping.__calls__ = 1",
        "vars(Stepping).keys()",
        "the attribute '__calls__' of the class 'Stepping'",
    ),
    "class of a helper": Variable(
        "Tracker.total += 1",
        "Tracker.total",
        "the attribute 'total' of the class 'Tracker'",
        TRACKER,
    ),
    "class of torch": Variable(
        "torch.optim.Optimizer.calls = 1",
        "vars(torch.optim.Optimizer).keys()",
        "the attribute 'calls' of the class 'Optimizer'",
    ),
    "method": Variable(
        "Tracker.reset = None", "vars(Tracker).keys()", "the attribute 'reset' of", TRACKER
    ),
    "object": Variable(
        "TRACKER.n += 1",
        "TRACKER.n",
        "the attribute 'n' of an object of the class 'Tracker'",
        TRACKER,
    ),
    "object in itself": Variable(
        "TRACKER.other.n += 1", "TRACKER.n", "the attribute 'n' of", TRACKER
    ),
    "list of an object": Variable(
        "TRACKER.log.append(1)", "TRACKER.log", "changes a list", TRACKER
    ),
    "object without a copy": Variable(
        "self.helper.n += 1", "LOCKED.n", "", LOCKED, stored="LOCKED"
    ),
    "function": Variable(
        "count(1)", "count.calls", "the attribute 'calls' of the function 'count'", NOTING
    ),
    "default": Variable("note(1)", "note.__defaults__", "changes a list", NOTING),
    "module": Variable(
        "outside_config.calls = 1",
        "vars(outside_config).keys()",
        "assigns 'calls' of outside_config",
    ),
    "standard module": Variable(
        "types.calls = 1", "vars(types).keys()", "assigns 'calls' of types"
    ),
    "tensor": Variable("BUFFER.add_(1)", "BUFFER", "changes a tensor", "BUFFER = torch.zeros(2)"),
    "view of a tensor": Variable(
        "BUFFER[0] = 1", "BUFFER", "changes a tensor", "BUFFER = torch.zeros(2)"
    ),
}
VARIABLES |= {
    "metaclass": Variable(
        "type(Kind).count += 1",
        "Meta.count",
        "the attribute 'count' of the class 'Meta'",
        "class Meta(type):\n    count = 0\nclass Kind(metaclass=Meta):\n    pass",
    ),
    "exception": Variable(
        "Failure.count += 1",
        "Failure.count",
        "the attribute 'count' of the class 'Failure'",
        "class Failure(Exception):\n    count = 0",
    ),
    "defaults": Variable(
        "note.__defaults__ = (3,)", "note.__defaults__", "the code or a default of", NOTING
    ),
    "class of an object": Variable(
        "TRACKER.__class__ = Second",
        "type(TRACKER)",
        "the class of an object of 'Tracker'",
        f"{TRACKER}\nclass Second(Tracker):\n    pass",
    ),
    "data of a tensor": Variable(
        "BUFFER.data.add_(1)", "BUFFER", "changes a tensor", "BUFFER = torch.zeros(2)"
    ),
    "gradient of a tensor": Variable(
        "BUFFER.grad = BUFFER.clone()", "BUFFER.grad", "changes a tensor", "BUFFER = torch.zeros(2)"
    ),
    "attribute of a tensor": Variable(
        "BUFFER.mask = 1",
        "vars(BUFFER)",
        "the attribute 'mask' of a tensor",
        "BUFFER = torch.zeros(2)\nBUFFER.scale = torch.ones(2)",
    ),
    "deleted module attribute": Variable(
        "del outside_config.size", "outside_config.size", "deletes 'size' of outside_config"
    ),
}
ONCE = {
    "global once": Variable(
        "if FIRST: FIRST = False", "FIRST", "assigns 'FIRST'", "FIRST = True", "global FIRST"
    ),
    "cell once": Variable(
        "if not CELL: CELL = 1", "cell()", "assigns 'CELL'", scope="nonlocal CELL"
    ),
    "list once": Variable("if not LOG: LOG.append(1)", "LOG", "changes a list", "LOG = []"),
    "class once": Variable(
        "if Stepping.limit < 3: Stepping.limit = 3",
        "Stepping.limit",
        "the attribute 'limit' of the class",
    ),
    "object once": Variable(
        "if not TRACKER.n: TRACKER.n = 1", "TRACKER.n", "the attribute 'n' of", TRACKER
    ),
    "tensor once": Variable(
        "if BUFFER[0] == 0: BUFFER[0] = 1", "BUFFER", "changes a tensor", "BUFFER = torch.zeros(2)"
    ),
}
"""Changes that plain steps without the sandbox would hide from the trace of later ones."""
VARIABLES |= ONCE
STEPS = {"first": "== 0", "each": ">= 0", "fourth": "== 3"}
STEP = "@torch.no_grad()"
AT_ANOTHER_LINE = {
    "function": "count.calls += value",
    "default": "log.append(value)",
    **dict.fromkeys(("defaults", "class of an object", "data of a tensor"), STEP),
    "gradient of a tensor": STEP,
}
"""Those that are found when the step is over are named by its first line."""


@pytest.fixture
def config() -> Iterator[None]:
    module = sys.modules["outside_config"] = types.ModuleType("outside_config")
    vars(module)["size"] = 1
    yield
    del sys.modules["outside_config"]


def module_of(variable: Variable, when: str) -> tuple[dict[str, Any], list[str]]:
    text = TEMPLATE.format(
        outer=variable.outer,
        stored=variable.stored,
        scope=variable.scope or "pass",
        factor=variable.factor,
        when=when,
        change=variable.change,
    )
    namespace: dict[str, Any] = {"__name__": "outside_of_the_step"}
    exec(compile(text, "outside.py", "exec"), namespace)
    return namespace, text.splitlines()


def trace(namespace: dict[str, Any]) -> Any:
    param = torch.nn.Parameter(torch.zeros(2, 3))
    return cf.from_torch(namespace["Stepping"]([param]))


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("when", STEPS)
@pytest.mark.parametrize("name", VARIABLES)
def test_a_change_outside_is_refused_at_its_line_and_undone(name: str, when: str) -> None:
    variable = VARIABLES[name]
    namespace, lines = module_of(variable, STEPS[when])
    before = repr(eval(variable.value, namespace))
    if not variable.message:  # a state of the optimizer, since its copy is another object
        trace(namespace)
    else:
        with pytest.raises(TraceError) as caught:
            trace(namespace)
        assert variable.message in str(caught.value)
        source = AT_ANOTHER_LINE.get(name, variable.change)
        line = next(n for n, text in enumerate(lines, 1) if text.strip() == source)
        assert f"outside.py:{line}" in str(caught.value)
        assert "keep states in self.state[p] or in the param group" in str(caught.value)
    assert repr(eval(variable.value, namespace)) == before


READINGS = {
    "deque": ("sum(QUEUE) + QUEUE[-1] + len(QUEUE)", "QUEUE = deque([1.0, 2.0], maxlen=3)", 7),
    "defaultdict": ("BINS['a'] + BINS.get('b', 1.0)", "BINS = defaultdict(float, a=2.0)", 3),
    "ordered dict": ("sum(v for v in ORDER.values())", "ORDER = OrderedDict(a=1.0, b=2.0)", 3),
    "counter": ("(BINS['a'] + BINS['b'])", "BINS = Counter(a=2)", 2),
    "subclass": (
        "BINS['b']",
        "class Bins(dict):\n    __missing__ = lambda s, k: 3.0\nBINS = Bins()",
        3,
    ),
    "object": ("(TRACKER.n + 2 + len(TRACKER.other.log))", TRACKER, 2),
    "object as a key": (
        "{TRACKER: 2.0}[TRACKER] * TABLE[TRACKER]",
        f"{TRACKER}\nTABLE = {{TRACKER: 3.0}}",
        6,
    ),
    "function of an object": (
        "TRACKER.f(4.0)",
        f"{TRACKER}\nimport math\nTRACKER.f = math.sqrt",
        2,
    ),
    "tensor": ("float(BUFFER.sum())", "BUFFER = torch.full((2,), 3.0)", 6),
    "class attribute": ("Stepping.limit", "", 2),
}


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("name", READINGS)
def test_a_variable_outside_is_read(name: str) -> None:
    factor, outer, expected = READINGS[name]
    variable = Variable("pass", "0", "", outer, factor=factor)
    rule = trace(module_of(variable, ">= 0")[0])
    assert sp.expand(rule.param - PARAM + expected * hyper("lr") * GRAD) == 0


REFUSED = {
    "random numbers of an object": (
        "TRACKER.rng.random()",
        f"{TRACKER}\nimport random\nTRACKER.rng = random.Random(1)",
        "the step uses an object of the type random.Random",
    ),
    "clock of an object": (
        "(1.0 if TRACKER.clock() else 2.0)",
        f"{TRACKER}\nimport time\nTRACKER.clock = time.time",
        "the step uses time.time",
    ),
    "a setting of torch": (
        "(torch.use_deterministic_algorithms(True) or 1.0)",
        "",
        "the step uses torch.use_deterministic_algorithms",
    ),
    "another setting of torch": (
        "(torch.set_float32_matmul_precision('high') or 1.0)",
        "",
        "the step uses torch.set_float32_matmul_precision",
    ),
    "a mode of torch": (
        "(torch.autograd.set_detect_anomaly(True) and 1.0)",
        "",
        "the step uses torch.autograd.anomaly_mode.set_detect_anomaly",
    ),
    "a missing key": ("(BINS['a'] + 1.0)", "BINS = defaultdict(float)", "changes a dict that"),
}


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_variable_outside_holds_is_refused(name: str) -> None:
    factor, outer, message = REFUSED[name]
    with pytest.raises(TraceError) as caught:
        trace(module_of(Variable("pass", "0", "", outer, factor=factor), ">= 0")[0])
    assert message in str(caught.value)
    assert "outside.py" in str(caught.value)


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("when", STEPS)
def test_a_step_that_changes_a_variable_and_raises_is_refused(when: str) -> None:
    variable = Variable("COUNT += 1; 1 / 0", "COUNT", "", "COUNT = 0", "global COUNT")
    namespace, _ = module_of(variable, STEPS[when])
    with pytest.raises(TraceError, match="the step assigns 'COUNT', a variable outside"):
        trace(namespace)
    assert namespace["COUNT"] == 0


MAKES_STATES = """
import torch

FIRST = True

class Accumulating(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.5})
        for p in self.param_groups[0]["params"]:
            self.state[p]["sum"] = torch.full_like(p, 0.5)

    @torch.no_grad()
    def step(self, closure=None):
        global FIRST
        FIRST = False
        for p in self.param_groups[0]["params"]:
            self.state[p]["sum"] += p.grad
            p -= self.state[p]["sum"]
"""


def test_a_step_that_states_are_checked_with_changes_nothing() -> None:
    namespace: dict[str, Any] = {"__name__": "outside_of_the_step"}
    exec(compile(MAKES_STATES, "outside.py", "exec"), namespace)
    with pytest.raises(TraceError, match="the step assigns 'FIRST', a variable outside"):
        cf.from_torch(namespace["Accumulating"]([torch.nn.Parameter(torch.zeros(2, 3))]))
    assert namespace["FIRST"] is True


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("name", ONCE)
def test_a_plain_step_without_the_sandbox_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plainly(subject: Subject, grads: Any, seed: int) -> None:
        subject.step(grads)

    module = sys.modules["closedform.importers.torch_optimizer.trace"]
    monkeypatch.setattr(module, "take_step", plainly)
    namespace, _ = module_of(ONCE[name], STEPS["each"])
    before = repr(eval(ONCE[name].value, namespace))
    trace(namespace)
    assert repr(eval(ONCE[name].value, namespace)) != before
