"""Functions of vectors of any length, compiled by inductor without ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

CompiledFunction = Callable[[list[Tensor]], Sequence[Tensor]]
"""A compiled function of a list of tensors, which it empties."""

PARALLEL = 2**15
"""Vectors from this length on are stepped by all threads of torch."""


def compiled_function(
    function: Callable[..., list[Tensor]],
    inputs: Sequence[Tensor],
    vectors: Sequence[int],
    threads: int,
) -> CompiledFunction:
    """Returns a compiled function; nothing is checked when it is called.

    It does not count versions: ``torch.autograd.graph.increment_version`` must be called for what
    it writes.

    Args:
        function: A function of tensors, which may write to them.
        inputs: Tensors with the layouts of all later calls.
        vectors: The indices of those that are vectors of one length, which may be any.
        threads: The threads by which a vector is stepped.
    """
    # The import of inductor takes two seconds.
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    size = PARALLEL if threads > 1 else 16  # inductor has a loop run in parallel if it is long
    # Duck sizing gives equal sizes one symbol: all vectors have one length.
    context: StatelessSymbolicContext[..., Any] = StatelessSymbolicContext([DimDynamic.DUCK])
    mode = FakeTensorMode(shape_env=ShapeEnv())
    examples = [
        mode.from_tensor(tensor.new_empty(size), symbolic_context=context)
        if index in vectors
        else mode.from_tensor(tensor.new_empty(tensor.shape), static_shapes=True)
        for index, tensor in enumerate(inputs)
    ]
    # torch 2.14 binds the symbol of a size to an input of the graph, or where sizes are asserted.
    sizes = [examples[index].shape[0] for index in vectors[:1]]

    def of_sizes(*arguments: Any) -> list[Tensor]:
        return function(*arguments[len(sizes) :])

    with torch.no_grad(), mode, V.set_fake_mode(mode):
        graph_module = make_fx(of_sizes, decomposition_table=select_decomp_table())(
            *sizes, *examples
        )
        with config.patch({"size_asserts": False, "cpp.threads": threads}):
            compiled_graph = compile_fx_inner(graph_module, [*sizes, *examples])

    def call(tensors: list[Tensor]) -> Sequence[Tensor]:
        arguments: list[Any] = [*[tensors[index].numel() for index in vectors[:1]], *tensors]
        tensors.clear()  # the compiled function frees an argument where it is last read
        outputs: Sequence[Tensor] = compiled_graph(arguments)
        return outputs

    return call
