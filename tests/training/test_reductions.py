"""Sums and means over several axes: as exact as torch's, and never over axes around another."""

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import closedform as cf
from closedform import training
from closedform.training.to_onnx.reductions import reduction_stages


@pytest.mark.parametrize("rank", range(1, 6))
def test_stages_are_the_axes_from_the_last(rank: int) -> None:
    for count in range(rank + 1):
        for axes in itertools.combinations(range(-rank, 0), count):
            stages = reduction_stages(rank, axes)
            reduced = [axis for stage in stages[::-1] for axis in stage]
            assert reduced == [axis + rank for axis in axes or range(-rank, 0)]
            # Runs without a gap: no axis that is kept lies between axes of a stage.
            assert all(stage == list(range(stage[0], stage[-1] + 1)) for stage in stages)


class Scaled(nn.Module):
    """Images with a factor for each channel, of which the gradient is a sum around channels."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.tensor([1.0, 0.5, 2.0]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * self.factors.reshape(1, 3, 1, 1)


def test_the_mean_of_a_large_tensor_is_nearly_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = torch.rand(8, 3, 256, 256) ** 4  # a few entries are most of the sum
    training.export(
        Scaled(), "mse", (images, torch.zeros_like(images)), cf.optimizers.sgd(lr=1.0), tmp_path
    )
    session = training.TrainSession(tmp_path)
    result = session.step((images.numpy(), np.zeros(images.shape, np.float32)))
    squares = images.double().numpy() ** 2
    factors = np.array([1.0, 0.5, 2.0])
    per_channel = squares.mean((0, 2, 3)) / 3
    # One sum of all 1.6 million squares is off by 1.3e-4 in onnxruntime 1.31.
    assert result.loss == pytest.approx((per_channel * factors**2).sum(), rel=2e-6)
    gradients = factors - session.params["factors"]
    # The sum of a plane of 65,536 products is one reduction.
    np.testing.assert_allclose(gradients, 2 * factors * per_channel, rtol=1e-5)
    graph = onnx.load(tmp_path / "train.onnx").graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    reductions = [node for node in graph.node if node.op_type in ("ReduceSum", "ReduceMean")]
    assert reductions
    for node in reductions:
        axes = constants[node.input[1]].tolist()
        assert axes == list(range(axes[0], axes[-1] + 1))
