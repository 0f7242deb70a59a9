"""The list of engine internals that recording relies on."""

from __future__ import annotations

import pytest

from workbench.capture.vllm import doctor

pytestmark = pytest.mark.slow


def test_the_installed_engine_has_everything() -> None:
    checks = doctor.check_internals()
    assert len(checks) > 20
    assert [check for check in checks if not check.ok] == []


def test_a_lost_internal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = doctor._Expected("router", f"{doctor._RUNNER}.no_such_method", ())
    other = doctor._Expected("forward", f"{doctor._RUNNER}._model_forward", ("no_such_input",))
    monkeypatch.setattr(doctor, "_EXPECTED", (lost, other))
    failed = {check.name: check.detail for check in doctor.check_internals() if not check.ok}
    assert "no_such_method" in failed["router"]
    assert "lost no_such_input" in failed["forward"]


def test_an_engine_of_another_minor_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", lambda _package: "0.99.1")
    assert not doctor.check_internals()[0].ok
