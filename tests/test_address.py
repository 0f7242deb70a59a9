"""Addresses, as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.address import Address, parse_address
from workbench.errors import UsageError
from workbench.names import SITE_BY_NAME

addresses = st.builds(
    Address,
    layer=st.none() | st.integers(0, 999_999),
    row=st.none() | st.integers(0, 10**12 - 1),
    site=st.none() | st.sampled_from(sorted(SITE_BY_NAME)),
).filter(lambda address: str(address) != "")


@given(addresses, st.sampled_from([" ", ".", ", ", "   "]))
def test_an_address_reads_back_however_it_is_spaced(address: Address, between: str) -> None:
    assert parse_address(str(address).replace(" ", between)) == address


def test_parts_may_come_in_any_order_and_case() -> None:
    assert parse_address("topk_ids T5 l3") == Address(layer=3, row=5, site="topk_ids")


def test_an_empty_address_prints_nothing() -> None:
    assert str(Address()) == ""


@pytest.mark.parametrize(
    "text", ["", "  ", "L", "L-1", "L1 L2", "t1 t1", "x1", "L1 t2 !", "L1234567"]
)
def test_what_is_not_an_address_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address") as caught:
        parse_address(text)
    assert "L12 t4096 topk_ids" in str(caught.value.expected)


def test_an_unknown_site_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean mlp_out") as caught:
        parse_address("L1 mlp_uot")
    assert caught.value.exit_code == 2
