"""Some operators of torch's table: make compare takes all, in compare_op_samples.py."""

import json
import re

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession
from torch import nn

from closedform.training.tables import union
from closedform.training.to_onnx.trace import trace
from tests.support.sampling import marking_slow
from tests.training.op_samples import Result, operators, outcome, samples, variants
from tools import build_training_operators as build

REFUSED = {
    "linalg.svd": r"the operator aten._linalg_svd.default of torch.linalg.svd has no ONNX form, "
    r"in the model itself \(Sample\)",
    "linalg.eigh": r"the operator aten._linalg_eigh.default of torch.linalg.eigh has no ONNX form",
    "to_sparse": "sparse tensors are not supported, in Tensor.to_sparse in the model itself",
    "linalg.lstsq": "the sizes of the results of aten.linalg_lstsq.default depend on data, in",
}
MATCHED = [
    "amax",
    "lgamma",
    "cummax",
    "nn.functional.bilinear",
    "diagonal",
    "nn.functional.gaussian_nll_loss",
    "hypot",
    "erfinv",
    "digamma",
    "median",
    "kthvalue",
    "take",
    "put",
    "fmin",
    "copysign",
    "cummin",
    "polygamma.polygamma_n_2",
    "squeeze.multiple",
    "diagonal_scatter",
    "sgn",
    "cdist",
    "nn.functional.pdist",
    "nn.functional.soft_margin_loss",
    "sort",
    "index_reduce.mean",
    "grid_sampler_3d",
    "masked_scatter",
    "special.log_ndtr",
    "linalg.slogdet",
    "linalg.qr",
    "ormqr",
    "fft.fft2",
    "fft.hfft",
    "fft.ihfft2",
    "fft.irfft2",
    "fft.rfftn",
    "stft",
    "polar",
]


@pytest.mark.sample(every=13)
@pytest.mark.parametrize("name", MATCHED)
def test_loss_and_gradients_are_those_of_torch(name: str) -> None:
    op = operators()[name]
    for sample in samples(op):
        found = outcome(op, sample)
        assert found.result is Result.MATCHED, found


DTYPES = torch.float32, torch.float16, torch.bfloat16


# Some operators here, each of them with `--exhaustive`, and again in compare_op_samples.py.
@pytest.mark.sample(every=300)
@pytest.mark.filterwarnings("ignore")  # samples of torch use what torch deprecates
@pytest.mark.parametrize("name", marking_slow(operators(), ("polygamma.polygamma_n_0",)))  # 9 s
def test_variants_of_an_operator_match_or_are_refused_in_each_dtype(name: str) -> None:
    for dtype in DTYPES:
        op = operators(dtype).get(name)
        found = {} if op is None else variants(op, dtype)
        for kind, sample in found.items():
            result = outcome(op, sample)
            assert result.result in (Result.MATCHED, Result.REFUSED), (result, kind, dtype)


def test_a_sum_of_no_products_keeps_its_factor() -> None:
    """Gemm of onnxruntime 1.31 returns C, not β·C, where the matrices share an axis of size 0."""
    op = operators()["addmm"]
    sample = variants(op, torch.float32)["empty"]
    assert sample.kwargs["beta"] == 0.2
    assert outcome(op, sample).result is Result.MATCHED


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_threshold_is_that_of_torch(dtype: torch.dtype) -> None:
    """A rule for float64 had hidden torch's decomposition for float32."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Threshold(0.1, 0.3)).to(dtype)
    x = torch.randn(4, 5, dtype=dtype)
    step = trace(model, lambda y: y.mean(), (x,), dynamic_axes={}).step
    feeds = {f"param.{n}": p.detach().numpy() for n, p in model.named_parameters()}
    loss, *gradients = InferenceSession(step.SerializeToString()).run(
        None, {**feeds, "batch.input": x.numpy()}
    )
    expected = torch.mean(model(x))
    expected.backward()
    roundings = 8 * torch.finfo(dtype).eps
    np.testing.assert_allclose(loss, expected.detach(), rtol=roundings)
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(gradient, parameter.grad, rtol=roundings, atol=roundings)


def test_the_parts_of_a_complex_number_are_broadcast() -> None:
    op = operators()["complex"]
    assert outcome(op, variants(op, torch.float32)["broadcast"]).result is Result.MATCHED


def test_tables_have_one_entry_for_a_key() -> None:
    assert union({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="two tables have an entry for b"):
        union({"a": 1, "b": 2}, {"b": 3})


@pytest.mark.sample(every=7)
@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_operator_and_module(name: str) -> None:
    op = operators()[name]
    found = outcome(op, samples(op)[0])
    assert found.result is Result.REFUSED
    assert re.search(REFUSED[name], found.text), found.text


def test_page_is_written_from_the_results() -> None:
    assert build.PAGE.read_text(encoding="utf-8") == build.page(), "run `make operators`"


def test_most_operators_match() -> None:
    stored = json.loads(build.RESULTS.read_text(encoding="utf-8"))
    results = [result for result, _ in stored["entries"].values()]
    assert set(results) == {"matched", "refused"}
    assert results.count("matched") >= 500
