"""Names of requests in the capture, from the ids that engine and server make of them."""

from __future__ import annotations

import pytest

from workbench.capture.vllm.recorder import client_name


@pytest.mark.parametrize(
    ("request_id", "name"),
    [
        ("c00-0123abcd", "c00"),
        ("my-request-0123abcd", "my-request"),
        ("c00", "c00"),
        ("cmpl-c00-0-0123abcd", "c00"),
        ("cmpl-c00-1-0123abcd", "c00-1"),
        ("chatcmpl-c00-0123abcd", "c00"),
    ],
)
def test_what_engine_and_server_add_is_taken_off(request_id: str, name: str) -> None:
    assert client_name(request_id, {}) == name


def test_a_given_name_wins() -> None:
    assert client_name("c00-0123abcd", {"c00": "first"}) == "first"
