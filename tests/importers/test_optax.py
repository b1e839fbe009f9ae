"""Schedules and rules of optax: what from_optax returns, beside the originals, and its errors.

jax is not a development dependency: these tests run where it is installed, as in the environment
of `make compare`, which runs tests/importers/compare_optax.py as well.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.errors import ArgumentError, ClosedFormError, ExportError, TraceError
from closedform.language import GRAD, PARAM, GlobalSum, hyper, state, t
from closedform.language.literals import literal
from tests.support.literals import drawn_floats


def test_the_error_where_jax_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ExportError, match=r'jax is not installed.*pip install "closedform\[jax\]"'):
        cf.from_optax(lambda count: count)


def test_an_object_that_is_neither() -> None:
    with pytest.raises(ArgumentError, match="takes a schedule or a transformation, got int"):
        cf.from_optax(3)  # type: ignore[call-overload]


class TestWithJax:
    """Tests of transformations and schedules of optax."""

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        self.jax: Any = importlib.import_module("jax")
        self.optax: Any = importlib.import_module("optax")
        self.jnp: Any = self.jax.numpy

    def test_schedules_are_exact(self) -> None:
        optax = self.optax
        warmup = cf.from_optax(optax.warmup_cosine_decay_schedule(0.0, 0.1, 30, 300, 0.01))
        library = cf.schedules.linear(0, 0.1, 30).then(cf.schedules.cosine(0.1, 0.01, 270))
        assert cf.claims.equal(warmup, library).verify().proved

    def test_lax_compares_the_count_with_integers_of_python(self) -> None:
        lax, where = self.jax.lax, self.jnp.where
        functions: tuple[Callable[[Any], Any], ...] = (
            lambda s: where(lax.le(100, s), 0.5, 1.0),
            lambda s: where(lax.lt(s, 100), 0.5, 1.0),
            lambda s: 1.0 / lax.max(s, 1),
            lambda s: lax.min(s, 100) / 100,
            lambda s: lax.clamp(0, s, 100) / 100,
            lambda s: 1.0 * lax.div(s, 7),
            lambda s: 1.0 * lax.rem(s, 7),
            lambda s: lax.select(lax.ge(s, 5), 1.0, 0.5),
            lambda s: lax.cond(lax.gt(s, 9), lambda: 0.1, lambda: 0.2),
        )
        for place, function in enumerate(functions):
            schedule = cf.from_optax(function)
            for step in (0, 1, 4, 5, 6, 7, 9, 10, 99, 100, 101, 5000):
                value = float(function(self.jnp.int32(step)))
                # float32 in JAX: a few roundings of 6e-8
                assert abs(float(schedule.exact(step)) - value) <= 5e-7 * abs(value), place

    def test_operands_of_lax_in_float32(self) -> None:
        lax, jnp = self.jax.lax, self.jnp
        ends = jnp.array([100, 200], jnp.int32)
        functions: tuple[Callable[[Any], Any], ...] = (
            lambda s: lax.min(1.0, lax.div(s.astype(jnp.float32), 100.0)),
            lambda s: jnp.where(lax.lt(s, ends)[0], 0.5, 1.0) * lax.max(s, 1),
            lambda s: lax.mul(s.astype(jnp.float32), 1 / 3),
        )
        for function, values in zip(functions, ((1, 1), (0.5, 100), (1 / 3, 33)), strict=True):
            schedule = cf.from_optax(function)
            assert float(schedule.exact(1)) == min(values[0], float(schedule.exact(1)))
            for step in (0, 1, 99, 100, 101, 5000):
                value = float(function(jnp.int32(step)))
                assert abs(float(schedule.exact(step)) - value) <= 5e-7 * abs(value)

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("kind", ["interp", "searchsorted", "digitize", "select", "piecewise"])
    def test_tables_have_the_values_of_jax(self, kind: str, seed: int) -> None:
        random, jnp = np.random.default_rng(seed), self.jnp
        ends = np.sort(random.choice(900, size=2 + 3 * seed, replace=False) + 1)
        rates = np.round(random.random(len(ends) + 1), 3)
        side, scale = ("left", "right")[seed % 2], (1, 8)[seed // 2]
        knots = jnp.array(ends / scale if scale > 1 else ends)

        def conditions(s: Any) -> list[Any]:
            return [s < end for end in ends.tolist()]

        functions: dict[str, Callable[[Any], Any]] = {
            "interp": lambda s: jnp.interp(s / scale, knots, jnp.array(rates[1:])),
            "searchsorted": lambda s: jnp.array(rates)[
                jnp.searchsorted(knots, s / scale, side=side)
            ],
            "digitize": lambda s: 0.9 ** jnp.digitize(s / scale, knots, right=side == "left"),
            "select": lambda s: jnp.select(conditions(s), rates[1:].tolist(), s * rates[0]),
            "piecewise": lambda s: jnp.piecewise(
                s * 1.0, conditions(s)[::-1], [*rates[1:].tolist(), lambda x: x / 100]
            ),
        }
        function = functions[kind]
        schedule = cf.from_optax(function)
        steps = sorted({0, 5000, *(end + k for end in ends.tolist() for k in (-1, 0, 1))})
        for step in steps:
            value = float(function(jnp.int32(step)))
            # float32 in JAX: a few roundings of 6e-8 of numbers up to 1, and of the step
            bound = 2e-6 * max(1, abs(value))
            assert abs(float(schedule.exact(step)) - value) <= bound, (seed, step)

    def test_a_table_is_one_choice_of_lines(self) -> None:
        table = self.jnp.array([0, 100, 500]), self.jnp.array([0.0, 1.0, 0.1])
        schedule = cf.from_optax(lambda step: self.jnp.interp(step, *table))
        tail = sp.Rational(49, 40) - 9 * t / 4000
        assert schedule.expr == sp.Piecewise(
            (t / 100, t < 100), (tail, t < 501), (sp.Rational(1, 10), True)
        )

    def test_tables_take_time_in_proportion_to_their_branches(self) -> None:
        """Calls of functions, by the profiler: 4 times as many for 4 times the branches."""
        tables = importlib.import_module("closedform.importers.optax.tables")

        def count_calls(branches: int) -> int:
            ends = [(sp.Integer(end % 7), t < end) for end in range(1, branches)]
            choice = sp.Piecewise(*ends, (9, True), evaluate=False)
            calls: list[str] = []
            sys.setprofile(lambda _frame, event, _argument: calls.append(event))
            try:
                tables.on_tables(lambda x, y: x + y, [choice, sp.S.One], lambda holds: holds)
            finally:
                sys.setprofile(None)
            return len(calls)

        count_calls(200)  # SymPy keeps what it has computed
        assert count_calls(200) < 5 * count_calls(50)

    def test_conditions_of_a_table(self) -> None:
        tables = importlib.import_module("closedform.importers.optax.tables")
        inner = sp.Contains(t, sp.FiniteSet(4), evaluate=False)
        for condition in (sp.Xor(t < 3, t < 7), sp.ITE(t < 3, sp.false, t < 7), (t < 7) & (t >= 3)):
            table = tables.table_of(sp.Piecewise((1, condition), (2, True)))
            assert dict(table) == {0: 2, 3: 1, 4: 1, 7: 2, 8: 2}, condition
        for condition in (inner, sp.Or(t < 3, inner), sp.Lt(t, sp.sqrt(2)), sp.Lt(t**2, 9)):
            assert tables.table_of(sp.Piecewise((1, condition), (2, True))) is None, condition

    def test_an_order_that_depends_on_the_step_is_refused(self) -> None:
        jnp = self.jnp
        with pytest.raises(TraceError, match=r"the order of the elements depends on data"):
            cf.from_optax(lambda step: jnp.sort(jnp.array([1.0, 3.0]) * step)[0])

    def test_literals_are_the_numbers_that_they_were_written_as(self) -> None:
        """10,000 float32 literals: 500 in equations, the others in tables of 100."""
        jnp = self.jnp
        numbers = drawn_floats("float32", 10_200, seed=11)
        for number in numbers[:500]:
            schedule = cf.from_optax(lambda count, n=number: count * 0 + n)
            assert schedule.exact(0) == literal(float(number), "float32"), number
        for first in range(500, len(numbers) - 99, 100):
            table = np.array(numbers[first : first + 100])
            looked_up = cf.from_optax(lambda count, rows=table: jnp.asarray(rows)[count])
            for place in range(100):
                assert looked_up.exact(place) == literal(float(table[place]), "float32")

    @pytest.mark.parametrize("steps", [3, 1000, 1_234_567, 7_654_321, 2**24])
    def test_ends_are_exact(self, steps: int) -> None:
        assert cf.from_optax(self.optax.linear_schedule(1e-3, 0, steps)).exact(steps) == 0

    def test_literals_of_other_dtypes(self) -> None:
        jnp = self.jnp
        for number, dtype in ((0.1, jnp.bfloat16), (0.1, jnp.float16), (1e-3, jnp.float64)):
            schedule = cf.from_optax(lambda c, n=number, d=dtype: jnp.where(c < 5, d(n), d(1)))
            assert schedule.exact(0) == sp.Rational(repr(number))
        for whole in (2**31 - 1, 2**40 + 1, -(2**62)):
            schedule = cf.from_optax(lambda c, n=whole: jnp.where(c < 5, jnp.int64(n), 0))
            assert schedule.exact(0) == whole

    @pytest.mark.parametrize(
        ("function", "first"),
        [
            (lambda jnp, c: jnp.minimum(1.0 / c, 0.5), sp.Rational(1, 2)),
            (lambda jnp, c: jnp.minimum(c**-0.5, c / 400), 0),
            (lambda jnp, c: jnp.maximum(-1.0 / c, -3.0), -3),
            (lambda jnp, c: jnp.maximum(jnp.log(c), -2.0), -2),
            (lambda jnp, c: jnp.exp(-2 / c), 0),
            (lambda jnp, c: 1 / (1 + 1.0 / c), 0),
            (lambda jnp, c: jnp.where(c < 1, 2.0, 1.0 / c), 2),
            (lambda jnp, c: jnp.minimum(1.0, 1.0 / jnp.where(c < 3, 0.0, 2.0)), 1),
            (lambda jnp, c: jnp.maximum(-1.0, -1.0 / jnp.where(c < 3, 0.0, 2.0)), -1),
            (lambda jnp, c: jnp.minimum(3.0, -jnp.log(jnp.where(c == 0, 0.0, 2.0))), 3),
            (lambda jnp, c: jnp.minimum(1.0, jnp.where(c < 3, 0.0, 2.0) ** -0.5), 1),
            (lambda jnp, c: jnp.exp(-1.0 / jnp.where(c < 3, 0.0, 2.0)), 0),
        ],
    )
    def test_values_of_infinities(self, function: Any, first: sp.Expr) -> None:
        jnp = self.jnp
        schedule = cf.from_optax(lambda count: function(jnp, count))
        assert schedule.exact(0) == first
        assert float(function(jnp, jnp.int32(0))) == float(first)
        for step in (1, 2, 7, 1000):
            expected = float(function(jnp, jnp.int32(step)))
            assert float(schedule.exact(step)) == pytest.approx(expected, rel=1e-6)  # float32

    def test_infinities_without_a_sign_are_refused(self) -> None:
        jnp = self.jnp
        with pytest.raises(TraceError, match=r"divides by 0 at step 5 and returns .*0\.5"):
            cf.from_optax(lambda count: jnp.minimum(1.0 / (count - 5), 0.5))

    @pytest.mark.parametrize(
        ("function", "error"),
        [
            (lambda jnp, x: jnp.minimum(1, 1 / jnp.where(x == 1000, -0.0, 0.5)), "step 1000 .*inf"),
            (lambda jnp, x: jnp.minimum(1, 1 / -jnp.where(x == 1000, 0.0, -1)), "step 1000 .*inf"),
            (
                lambda jnp, x: jnp.minimum(1, jnp.where(x == 1000, 1 / (x * -0.0), 2)),
                "step 1000 .*inf",
            ),
            (lambda jnp, x: jnp.minimum(1, 0 / jnp.where(x < 3, 0.0, 2.0)), "not a number.*nan"),
            (lambda jnp, x: 1 / jnp.where(x < 3, 0.0, 2.0), "must be finite and real"),
        ],
    )
    def test_infinities_of_tables_are_refused(self, function: Any, error: str) -> None:
        with pytest.raises(ClosedFormError, match=error):
            cf.from_optax(lambda count: function(self.jnp, count))

    def test_an_infinite_value_is_none(self) -> None:
        schedule = cf.from_optax(lambda count: 1.0 / count)
        assert schedule.exact(4) == sp.Rational(1, 4)
        with pytest.raises(ClosedFormError, match="not a finite real number"):
            schedule.exact(0)

    def test_what_depends_on_the_number_of_parameters_or_their_order(self) -> None:
        """Eight updates; with the parameters given each is that of the transformation."""
        leaves, tree_map = self.jax.tree.leaves, self.jax.tree.map

        def by_place(function: Any) -> Any:
            def update(u: Any) -> Any:
                structure = self.jax.tree.structure(u)
                parts = [function(place, g) for place, g in enumerate(leaves(u))]
                return self.jax.tree.unflatten(structure, parts)

            return update

        cases = {
            "number": lambda u: tree_map(lambda g: -0.1 * g / len(leaves(u)), u),
            "parity": lambda u: tree_map(lambda g: -0.1 * g * (1 + len(leaves(u)) % 2), u),
            "mean": lambda u: tree_map(
                lambda g: -0.1 * g / (sum(map(self.jnp.linalg.norm, leaves(u))) / len(leaves(u))),
                u,
            ),
            "third": by_place(lambda place, g: -0.1 * g * (0.1 if place >= 2 else 1)),
            "powers": by_place(lambda place, g: -0.1 * g * 0.5 ** (place // 2)),
            "exponents": by_place(lambda place, g: -0.1 * g ** (3 if place == 2 else 1)),
            "operands": by_place(lambda place, g: (0.1 - g) if place == 2 else (g - 0.1)),
            "fifth": by_place(lambda place, g: -g if place == 4 else g),
        }
        params = {
            name: self.jnp.ones(shape, self.jnp.float32)
            for name, shape in {"a": (4, 6), "b": (6,), "c": (3, 5), "d": (7,), "e": (2, 9)}.items()
        }
        for name, updates in cases.items():
            transformation = self.optax.GradientTransformation(
                lambda _: self.optax.EmptyState(), lambda u, s, _=None, f=updates: (f(u), s)
            )
            with pytest.raises(TraceError, match=r"number or the order|different rules"):
                cf.from_optax(transformation)
            traced = cf.from_optax(transformation, params)
            assert self._gap(traced, transformation, params) < 1e-5, name  # float32

    def _gap(self, traced: Any, transformation: Any, params: Any) -> float:
        """How far a step of a rule in float32 is from that of the transformation."""
        groups = traced if isinstance(traced, list) else []
        rule = groups[0].rule if groups else traced
        start = {name: np.array(value) for name, value in params.items()}
        session = cf.OptimizerSession(rule, params=start, groups=groups[1:])
        rng = np.random.default_rng(0)
        gradients = {k: rng.normal(size=v.shape).astype(np.float32) for k, v in start.items()}
        updates, _ = transformation.update(
            self.jax.tree.map(self.jnp.asarray, gradients), transformation.init(params), params
        )
        expected = self.optax.apply_updates(params, updates)
        session.step(gradients)
        return max(
            float(np.abs(session.params[name] - np.asarray(expected[name])).max())
            for name in params
        )

    def test_what_depends_on_the_dtype(self) -> None:
        jnp, tree_map = self.jnp, self.jax.tree.map
        params = {"a": jnp.ones((4, 6), jnp.float32), "b": jnp.ones(6, jnp.float32)}
        for scale in (
            lambda g: 1 / (jnp.abs(g) + 1e7 * jnp.finfo(g.dtype).eps),
            lambda g: 1.0 if g.dtype == jnp.float32 else 0.5,
            lambda g: 2.0 if g.dtype.itemsize == 8 else jnp.tanh(g),
        ):
            transformation = self.optax.GradientTransformation(
                lambda _: self.optax.EmptyState(),
                lambda u, s, _=None, f=scale: (tree_map(lambda g: -0.1 * g * f(g), u), s),
            )
            with pytest.raises(TraceError, match="another one for float32 than for float64"):
                cf.from_optax(transformation)
            traced = cf.from_optax(transformation, params)
            assert self._gap(traced, transformation, params) < 1e-5  # float32

    def test_gradients_that_are_not_finite(self) -> None:
        optax = self.optax
        makers = (optax.lion, optax.adam, optax.sgd, optax.sign_sgd, optax.rmsprop, optax.rprop)
        for make in makers:
            transformation = make(0.1)
            params = {"w": self.jnp.ones((4,), self.jnp.float32)}
            session = cf.OptimizerSession(
                cf.from_optax(transformation), params={"w": np.ones(4, np.float32)}
            )
            state = transformation.init(params)
            for gradient in ([1.0, -2.0, 0.5, 0.0], [np.nan, np.inf, -np.inf, 0.0]):
                array = np.array(gradient, np.float32)
                updates, state = transformation.update(
                    {"w": self.jnp.asarray(array)}, state, params
                )
                params = optax.apply_updates(params, updates)
                session.step({"w": array})
            is_finite = np.isfinite(np.asarray(params["w"]))
            assert (np.isfinite(session.params["w"]) == is_finite).all(), make

    def test_control_flow_of_schedules(self) -> None:
        jax, jnp = self.jax, self.jnp

        def switched(count: Any) -> Any:
            return jax.lax.switch(count // 10, [lambda: 0.5, lambda: 0.25, lambda: 0.125])

        def looked_up(count: Any) -> Any:
            return jnp.array([0.5, 0.25, 0.125])[jnp.minimum(count // 10, 2)]

        def conditional(count: Any) -> Any:
            return jax.lax.cond(
                count < 10,
                lambda n: 0.5,
                lambda n: jax.lax.cond(n < 20, lambda m: 0.25, lambda m: 0.125, n),
                count,
            )

        for function in (switched, looked_up, conditional):
            schedule = cf.from_optax(function)
            found = [schedule.exact(step) for step in (0, 9, 10, 19, 20, 1000)]
            half, quarter, eighth = (sp.Rational(1, n) for n in (2, 4, 8))
            assert found == [half, half, quarter, quarter, eighth, eighth], function

    def test_loops_with_a_known_number_of_rounds_are_unrolled(self) -> None:
        def cubed(count: Any) -> Any:
            return self.jax.lax.fori_loop(0, 3, lambda _, value: value * count, 1.0)

        assert cf.from_optax(cubed).expr == t**3

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (
                lambda jax, jnp: lambda n: jax.random.uniform(jax.random.PRNGKey(n)),
                r"random numbers have no expression \(random_\w+ in .*test_optax.py:\d+\)",
            ),
            (
                lambda jax, jnp: lambda n: 0.1 if n > 3 else 0.2,
                r"Python's control flow depends on a traced value.*test_optax.py:\d+\)",
            ),
            (
                lambda jax, jnp: lambda n: jnp.sort(jnp.arange(3) * n)[0],
                r"the order of the elements depends on data, and has no expression "
                r"\(sort in .*test_optax.py:\d+\): compare with a threshold",
            ),
            (
                lambda jax, jnp: lambda n: jax.lax.erf_inv(n / 2.0),
                r"the operation has no expression in the language \(erf_inv in .*\): write it with",
            ),
            (lambda jax, jnp: lambda n: jnp.zeros(3) * n, "a schedule returns one number"),
            (
                lambda jax, jnp: (
                    lambda n: jax.lax.while_loop(lambda x: x > 1, lambda x: x / 2, n * 1.0)
                ),
                "the number of rounds of a loop depends on the step or on data",
            ),
        ],
    )
    def test_schedules_that_are_refused(self, function: Any, message: str) -> None:
        with pytest.raises(TraceError, match=message):
            cf.from_optax(function(self.jax, self.jnp))

    def test_hyperparameters_are_those_of_closures_and_steps_are_t(self) -> None:
        rule = cf.from_optax(self.optax.adam(0.01, b1=0.5, b2=0.75, eps=0.25), name="adam")
        assert isinstance(rule, cf.UpdateRule)
        assert rule.name == "adam"
        assert rule.hyperparameters == {
            "b1": sp.Rational(1, 2),
            "b2": sp.Rational(3, 4),
            "eps": sp.Rational(1, 4),
            "eps_root": 0,
            "learning_rate": sp.Rational(1, 100),
        }
        assert list(rule.states) == ["mu", "nu"]
        assert any(expr.has(hyper("b2") ** (t + 1)) for expr in rule.definitions.values())
        mean = hyper("b1") * state("mu") + (1 - hyper("b1")) * GRAD
        assert sp.expand(rule.definitions["add_2"] - mean) == 0

    def test_a_rule_of_optax_is_that_of_the_library(self) -> None:
        rule = cf.from_optax(self.optax.sgd(0.1))
        assert isinstance(rule, cf.UpdateRule)
        assert rule.param == PARAM - hyper("learning_rate") * GRAD

    def test_the_transformation_is_not_changed(self) -> None:
        transformation = self.optax.novograd(0.1)
        params = {"w": self.jnp.ones((3, 2))}
        state = transformation.init(params)
        before, _ = transformation.update(params, state, params)
        cf.from_optax(transformation)
        after, _ = transformation.update(params, state, params)
        np.testing.assert_array_equal(before["w"], after["w"])

    def test_injected_schedules_are_hyperparameters(self) -> None:
        optax = self.optax
        inner = optax.inject_hyperparams(optax.adamw)(
            optax.linear_schedule(0.5, 0.0, 10), weight_decay=0.25
        )
        rule = cf.from_optax(inner)
        assert isinstance(rule, cf.UpdateRule)
        assert isinstance(rule.hyperparameters["learning_rate"], cf.Schedule)
        assert rule.hyperparameters["learning_rate"].exact(5) == sp.Rational(1, 4)
        assert rule.hyperparameters["weight_decay"] == sp.Rational(1, 4)

    def test_norms_over_all_parameters_are_global_sums(self) -> None:
        optax = self.optax
        rule = cf.from_optax(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)))
        assert isinstance(rule, cf.UpdateRule)
        assert any(expr.has(GlobalSum) for expr in rule.all_expressions())
        assert rule.requires == sp.true

    def test_means_divide_by_sizes_and_not_by_numbers(self) -> None:
        optax = self.optax
        rule = cf.from_optax(optax.chain(optax.clip_by_block_rms(0.5), optax.sgd(0.1)))
        assert isinstance(rule, cf.UpdateRule)
        assert rule.requires == sp.true
        first, second = (rule.for_shape(shape).definitions for shape in ((3, 5), (3, 7)))
        assert first != second

    def test_masks_are_conditions_on_the_shape_or_groups(self) -> None:
        optax, jax, jnp = self.optax, self.jax, self.jnp
        params = {"layer": {"kernel": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}}
        matrices = jax.tree.map(lambda param: param.ndim > 1, params)
        decay = optax.adamw(0.1, weight_decay=0.5, mask=matrices)
        rule = cf.from_optax(decay, params)
        assert isinstance(rule, cf.UpdateRule)
        assert hyper("weight_decay") not in rule.for_shape((3,)).param.free_symbols
        params["layer"]["scale"] = jnp.zeros(3)
        labels = {"layer": {"kernel": "slow", "bias": "fast", "scale": "slow"}}
        groups = cf.from_optax(
            optax.multi_transform({"slow": optax.sgd(0.1), "fast": optax.adam(0.1)}, labels), params
        )
        assert isinstance(groups, list)
        assert {group.params: sorted(group.rule.states) for group in groups if group.rule} == {
            ("layer.bias",): ["mu", "nu"],
            ("layer.kernel", "layer.scale"): [],
        }

    def test_the_elements_of_a_small_array_of_the_model_are_states(self) -> None:
        rule = cf.from_optax(self.optax.contrib.mechanize(self.optax.sgd(0.1), num_betas=2))
        assert isinstance(rule, cf.UpdateRule)
        assert {"s_element_1", "s_element_2", "m_element_2"} <= set(rule.shared)
        assert rule.shared["s_element_1"].initial == sp.Rational(1, 10**6)
        # The inner product of all gradients and steps holds the norm of all gradients.
        sums = [part for expr in rule.all_expressions() for part in expr.atoms(GlobalSum)]
        assert sums

    @pytest.mark.parametrize("count", [64, 65])
    def test_an_array_of_the_model_has_few_elements(self, count: int) -> None:
        jnp, optax = self.jnp, self.optax

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            return updates, state + 1.0

        transformation = optax.GradientTransformation(lambda params: jnp.zeros(count), update)
        if count <= 64:
            assert isinstance(cf.from_optax(transformation), cf.UpdateRule)
            return
        with pytest.raises(TraceError, match=r"of shape \[65\] belongs to no parameter"):
            cf.from_optax(transformation)

    def test_accumulation_has_shared_counters(self) -> None:
        rule = cf.from_optax(self.optax.MultiSteps(self.optax.sgd(0.1), 3))
        assert isinstance(rule, cf.UpdateRule)
        assert {name: one.is_counter for name, one in rule.shared.items()} == {
            "mini_step": True,
            "gradient_step": True,
        }

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda optax: optax.polyak_sgd(), "missing 1 required keyword-only argument: 'value'"),
            (
                lambda optax: optax.noisy_sgd(0.1, key=0),
                "random numbers have no expression",
            ),
            (
                lambda optax: optax.adafactor(0.1),
                r"another one for matrices of sizes .*from_optax\(transformation, params\)",
            ),
            (
                lambda optax: optax.flatten(optax.sgd(0.1)),
                r"^tensors are concatenated, and a rule has an expression for each parameter "
                r"\(concatenate in .*\): .* of optax\.flatten\(inner\), pass inner, whose steps",
            ),
            (
                lambda optax: optax.scale_by_lbfgs(),
                r"^rows of a tensor are replaced at an index, and a rule has an expression for a "
                r"whole tensor \(scatter in .*transform.py:\d+\): make each row of a history",
            ),
        ],
    )
    def test_transformations_that_are_refused(self, make: Any, message: str) -> None:
        with pytest.raises(TraceError, match=message):
            cf.from_optax(make(self.optax))

    def test_the_transformation_inside_flatten_has_the_same_steps(self) -> None:
        optax = self.optax
        inner = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
        params = {"w": self.jnp.ones((3, 2)), "b": self.jnp.ones(4)}
        rule = cf.from_optax(inner, params)
        assert self._gap(rule, optax.flatten(inner), params) < 1e-6  # float32

    @pytest.mark.parametrize("is_scattered", [True, False])
    def test_a_history_is_a_tuple_of_states(self, is_scattered: bool) -> None:
        """The mean of the last three gradients: its rows in one array, and in a tuple of trees."""
        jax, jnp = self.jax, self.jnp

        def init(params: Any) -> Any:
            rows = jax.tree.map(lambda p: jnp.zeros((3, *p.shape)), params)
            if not is_scattered:
                rows = tuple(jax.tree.map(jnp.zeros_like, params) for _ in range(3))
            return jnp.zeros((), jnp.int32), rows

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            count, rows = state
            if is_scattered:
                rows = jax.tree.map(lambda h, g: h.at[count % 3].set(g), rows, updates)
                steps = jax.tree.map(lambda h: -0.1 * h.sum(0), rows)
            else:
                rows = tuple(
                    jax.tree.map(lambda h, g, n=n: jnp.where(count % 3 == n, g, h), row, updates)
                    for n, row in enumerate(rows)
                )
                steps = jax.tree.map(lambda *parts: -0.1 * sum(parts), *rows)
            return steps, (count + 1, rows)

        transformation = self.optax.GradientTransformation(init, update)
        if is_scattered:
            with pytest.raises(TraceError, match=r"jnp\.where\(count % rows == row"):
                cf.from_optax(transformation)
            return
        params = {"w": self.jnp.ones((3, 2)), "b": self.jnp.ones(4)}
        assert self._gap(cf.from_optax(transformation, params), transformation, params) < 1e-6

    def test_a_difference_is_an_error(self) -> None:
        jax, optax = self.jax, self.optax

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            # The sizes of the trace are primes.
            return jax.tree.map(lambda u: -u / (2 if 4 in u.shape else 1), updates), state

        hidden = optax.GradientTransformation(lambda params: (), update)
        with pytest.raises(TraceError, match="the traced rule differs from the transformation by"):
            cf.from_optax(hidden)

    def test_params_need_keys(self) -> None:
        with pytest.raises(ArgumentError, match=r"params must be a dict .* at the root"):
            cf.from_optax(self.optax.sgd(0.1), self.jnp.zeros(3))
