from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from workbench.capture.arrays import dtype_by_name, dtype_name, to_numpy
from workbench.errors import UsageError


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, ml_dtypes.bfloat16),
        (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
        (torch.float8_e5m2, ml_dtypes.float8_e5m2),
        (torch.float32, np.float32),
        (torch.int32, np.int32),
    ],
)
def test_values_arrive_bit_for_bit(dtype: torch.dtype, expected: np.dtype) -> None:
    tensor = torch.tensor([[1.5, -0.0], [3.0, 448.0]]).to(dtype)
    array = to_numpy(tensor)
    assert array.dtype == expected
    assert array.tobytes() == tensor.view(torch.uint8).numpy().tobytes()
    assert dtype_name(dtype) == array.dtype.name


def test_nothing_is_copied_where_nothing_has_to_be() -> None:
    tensor = torch.zeros(3, dtype=torch.bfloat16)
    array = to_numpy(tensor)
    tensor[0] = 1.0
    assert float(array[0]) == 1.0


def test_an_unknown_type_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="bfloat16"):
        dtype_by_name("bfloat17")
