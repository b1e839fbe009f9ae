"""Every rule of the library: eager == compile == onnxruntime after 100 steps, on every shape.

Not collected with the tests, since inductor compiles each rule for minutes: ``make compare``.
"""

import pytest

from tests.torch.engines import LIBRARY, distance
from tests.torch.training import COMPILING


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.parametrize("backend", ["onnxruntime", "compile"])
@pytest.mark.parametrize("name", LIBRARY)
def test_backend_is_eager(name: str, backend: str) -> None:
    rule = LIBRARY[name]()
    found, bound = distance(rule, name, backend, 100)
    print(f"{name} {backend}: {found:.2e}, bound {bound:.2e}")
    assert found <= bound
