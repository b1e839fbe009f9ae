"""Runs of onnxruntime on memory of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import TensorProto

from closedform.ir.types import DType
from closedform.runtime.buffers import Array
from closedform.runtime.onnx_session import OnnxSession

_ELEMENTS = {DType.BF16.numpy: TensorProto.BFLOAT16}
"""What onnxruntime calls a dtype, where it does not know that of NumPy."""


class Binding:
    """A session with the memory that its runs read and write, bound once.

    Args:
        session: The model.
        fixed: What every run reads where it lies now, by input name.
        results: What every run writes, by output name.

    onnxruntime keeps addresses and no arrays, and so does this; they must live while runs do.
    """

    def __init__(
        self, session: OnnxSession, fixed: Mapping[str, Array], results: Mapping[str, Array]
    ) -> None:
        self._raw = session.raw
        self._fixed, self._results = fixed, results
        self._bind()

    def _bind(self) -> None:
        self._binding = self._raw.io_binding()
        for name, array in self._fixed.items():
            _bind_array(self._binding.bind_input, name, array)
        for name, array in self._results.items():
            _bind_array(self._binding.bind_output, name, array)
        # Where each other input lay, and its shape; what lies there again need not be bound again,
        # since an input has one dtype.
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}

    def run(self, given: Mapping[str, Array]) -> None:
        """Runs the model.

        Args:
            given: All other inputs by name, contiguous; those with a default may be left out.
        """
        if not self._places.keys() <= given.keys():
            self._bind()
        for name, array in given.items():
            place = array.ctypes.data, array.shape
            if self._places.get(name) != place:
                _bind_array(self._binding.bind_input, name, array)
                self._places[name] = place
        self._raw.run_with_iobinding(self._binding)


def run_into(
    session: OnnxSession, given: Mapping[str, Array], results: Mapping[str, Array]
) -> None:
    """Runs a model on contiguous arrays by input name; outputs are written to those by their name.

    Unlike onnxruntime's own ``run`` it takes bfloat16.
    """
    Binding(session, given, results).run({})


def run_on(session: OnnxSession, given: Mapping[str, Array]) -> list[Array]:
    """Returns the outputs of a model, whose sizes may be free, for arrays as in ``run_into``."""
    binding = session.raw.io_binding()
    for name, array in given.items():
        _bind_array(binding.bind_input, name, array)
    for name in session.outputs:
        binding.bind_output(name, "cpu")
    session.raw.run_with_iobinding(binding)
    outputs: list[Array] = binding.copy_outputs_to_cpu()
    return outputs


def _bind_array(bind: Callable[..., None], name: str, array: Array) -> None:
    element = _ELEMENTS.get(array.dtype, array.dtype)
    bind(name, "cpu", 0, element, array.shape, array.ctypes.data)
