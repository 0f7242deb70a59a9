"""Facts of both sides for `comparison.json`: where they lie, what made them, what they cover."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from workbench.comparison.newer import newer_side
from workbench.names import DIRECTION, LOGPROB_CONVENTION, SAMPLING_SIDE, SITES, layer_site
from workbench.store import Capture
from workbench.store.manifest import MANIFEST_NAME

_SHOWN_DAMAGE: Final = 8


def side_facts(capture: Capture, out: Path) -> dict[str, Any]:
    """Facts of one side, and where it lies."""
    manifest = capture.manifest
    model = manifest.model
    return {
        "directory": str(capture.directory.resolve()),
        "directory_relative": os.path.relpath(capture.directory.resolve(), out.resolve()),
        "manifest_crc": zlib.crc32((capture.directory / MANIFEST_NAME).read_bytes()),
        "path": manifest.path,
        "engine": manifest.engine,
        "version": manifest.versions.get(manifest.engine, ""),
        "versions": dict(manifest.versions),
        "device": manifest.device,
        "dtype": manifest.dtype,
        "knobs": dict(manifest.knobs),
        "model": {
            "id": model.id,
            "architecture": model.architecture,
            "config_hash": model.config_hash,
            "num_layers": model.num_layers,
            "num_experts": model.num_experts,
            "top_k": model.top_k,
            "hidden_size": model.hidden_size,
            "vocab_size": model.vocab_size,
            "layer_kinds": list(model.layer_kinds),
        },
        "rows": capture.num_rows,
        "complete": capture.complete,
        "damaged": [str(error) for error in capture.damaged[:_SHOWN_DAMAGE]],
        "num_damaged": len(capture.damaged),
        "missing": dict(manifest.missing),
        **newer_side(manifest),
    }


def incompleteness(a: Capture, b: Capture) -> str:
    """Why a capture is not whole, or ""."""
    reasons = []
    for side, capture in (("A", a), ("B", b)):
        if capture.damaged:
            total = len(capture.manifest.chunks)
            reasons.append(f"{side} has {len(capture.damaged)} of {total} chunks damaged")
        elif not capture.manifest.complete:
            reasons.append(f"the recording of {side} did not end in order")
    return f"incomplete: {'; '.join(reasons)}" if reasons else ""


FIXED: Final = {
    "direction": DIRECTION,
    "sampling_side": SAMPLING_SIDE,
    "convention": LOGPROB_CONVENTION,
}


def coverage(
    a: Capture, b: Capture, counted: Mapping[str, int], *, num_layers: int, num_rows: int
) -> dict[str, Any]:
    """Per site: rows compared of rows expected, summed over layers, and what a side lacks."""
    found: dict[str, Any] = {}
    for site in SITES:
        names = (
            [layer_site(i, site.name) for i in range(num_layers)] if site.per_layer else [site.name]
        )
        on_a = [name for name in names if name in a.manifest.sites]
        on_b = [name for name in names if name in b.manifest.sites]
        expected = set(on_a) | set(on_b)
        if not expected:
            continue
        found[site.name] = {
            "compared": sum(counted.get(name, 0) for name in expected),
            "expected": num_rows * len(expected),
            "only_a": len(set(on_a) - set(on_b)),
            "only_b": len(set(on_b) - set(on_a)),
            "reason": next(
                (m for c in (a, b) for n in expected if (m := c.manifest.missing.get(n))), ""
            ),
        }
    return found
