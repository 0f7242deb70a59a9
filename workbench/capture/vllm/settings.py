"""What a recording is asked to do, as plain values that cross the engine's process boundary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from workbench.capture.vllm.buffer import DEFAULT_CHUNK_BYTES
from workbench.errors import UsageError, did_you_mean
from workbench.names import SITE_BY_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """Settings of one recording.

    Attributes:
        out: Capture directory; new or empty; on the worker's machine.
        sites: Short names of the sites to record; all but `logits` when empty.
        logits: Whether to record the logits too, where the engine computes them.
        chunk_bytes: Bytes of arrays per chunk.
        names: Name in the capture by the request id that the client chose.
        prompt_lengths: By name, where the prompt ends, for requests whose prompt carries a given
            continuation (scoring in prefill).
        knobs: Further settings of the run to note in the manifest.
    """

    out: str
    sites: tuple[str, ...] = ()
    logits: bool = False
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    names: Mapping[str, str] = field(default_factory=dict)
    prompt_lengths: Mapping[str, int] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def wants(self, site: str) -> bool:
        """Whether a site, by short name, is to be recorded."""
        if site == "logits":
            return self.logits
        return not self.sites or site in self.sites

    def to_json(self) -> str:
        """The text that `settings_from` reads back."""
        return json.dumps(asdict(self))


def settings_from(given: str | Mapping[str, Any]) -> RecordSettings:
    """Settings from a mapping or its JSON text.

    Raises:
        UsageError: Not an object, an unknown key or site, or no `out`.
    """
    try:
        values = json.loads(given) if isinstance(given, str) else dict(given)
    except ValueError as error:
        raise UsageError("recording settings are not JSON", got=str(error)) from error
    if not isinstance(values, dict):
        raise UsageError("recording settings are not an object", got=type(values).__name__)
    known = [f.name for f in fields(RecordSettings)]
    for key in values:
        if key not in known:
            raise UsageError(f"unknown recording setting {key!r}", do=did_you_mean(key, known))
    if not values.get("out"):
        raise UsageError("recording settings lack a directory", expected="out")
    values["sites"] = tuple(values.get("sites", ()))
    for site in values["sites"]:
        if site not in SITE_BY_NAME:
            raise UsageError(f"unknown site {site!r}", do=did_you_mean(site, SITE_BY_NAME))
    return RecordSettings(**values)
