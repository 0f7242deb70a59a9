"""The manifest of a capture: what was recorded, by what, how. Owns its schema and checks it.

Every value read from a manifest is checked before use; file names must be exactly those a writer
makes, so a manifest cannot point outside its directory. Stdlib only, apart from element type names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, get_args

from workbench import names
from workbench.errors import CaptureError
from workbench.names import split_site
from workbench.store.dtypes import DTYPE_NAMES
from workbench.store.newer import is_version, unreadable_newer, unwritable_newer

FORMAT_NAME: Final = "kldive-capture"
FORMAT_VERSION: Final = 1
MANIFEST_NAME: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
MAX_NUMBER: Final = 2**63
MAX_DIMENSIONS: Final = 8

_ARRAYS_NAME = re.compile(r"chunk-\d{6,9}\.safetensors")
_TOKENS_NAME = re.compile(r"tokens-\d{6,9}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the model is, as far as both paths must agree on it.

    Attributes:
        id: Name or directory the model was loaded from.
        architecture: Class name from its configuration.
        config_hash: sha256 of the canonical configuration, the same on both paths.
        layer_kinds: `moe` or `dense` per layer.
    """

    id: str = ""
    architecture: str = ""
    config_hash: str = ""
    num_layers: int = 0
    num_experts: int = 0
    top_k: int = 0
    hidden_size: int = 0
    vocab_size: int = 0
    layer_kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInfo:
    """Element type and per-row shape of a site; `derived` when computed from other sites."""

    dtype: str
    shape: tuple[int, ...]
    derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSum:
    """Order-independent sum of the float32 bit patterns of a canonical parameter, modulo 2**64."""

    sum: int
    numel: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEntry:
    """One finished chunk: its two files, their sizes and CRC-32, token lines and array rows."""

    arrays: str
    tokens: str
    rows: int
    array_rows: int
    arrays_bytes: int
    tokens_bytes: int
    arrays_crc: int
    tokens_crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about a capture but its rows.

    Attributes:
        path: `rollout` or `trainer`.
        engine: Name of the engine, for example `vllm`.
        versions: Package versions that matter.
        device: For example `cpu` or the accelerator's name.
        dtype: Element type the model ran in.
        knobs: Settings that affect numerics or scheduling, flat, JSON values.
        contracts: Where this path places the mathematics (routed scaling, renormalisation, ...).
        sites: Recorded sites by full name.
        missing: Sites this path cannot give, with the reason.
        weights: Fingerprint by canonical parameter; empty when it could not be taken.
        router_pair_norm: Per MoE layer, the largest L2 norm of the difference of two router weight
            rows: how far the gap of two scores can move per unit of input difference.
        counts: Rows recomputed, dropped and so on, by name.
        chunks: Finished chunks in order.
        complete: Whether the recording ended in order.
        newer_version: Format version of a file that is newer than `FORMAT_VERSION`, else None.
        unknown_sites: Names of recorded sites that a newer file has and that are not known here.
    """

    path: names.Path
    engine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    dtype: str = ""
    model: ModelFacts = field(default_factory=ModelFacts)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    contracts: Mapping[str, Any] = field(default_factory=dict)
    sites: Mapping[str, SiteInfo] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, ParameterSum] = field(default_factory=dict)
    router_pair_norm: Mapping[int, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    convention: str = names.LOGPROB_CONVENTION
    chunks: tuple[ChunkEntry, ...] = ()
    complete: bool = False
    newer_version: int | None = None
    unknown_sites: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        """Token lines over all chunks."""
        return sum(chunk.rows for chunk in self.chunks)

    def to_json(self) -> str:
        """The text of `manifest.json`.

        Raises:
            CaptureError: It was read from a newer file: what was left out would be lost.
        """
        if self.newer_version is not None:
            raise unwritable_newer(
                Path(MANIFEST_NAME),
                self.newer_version,
                reads=FORMAT_VERSION,
                do="update kldive",
            )
        body = asdict(self)
        for read_only in ("newer_version", "unknown_sites"):
            del body[read_only]
        # 64-bit sums as text: many JSON readers keep only 53 bits of a number.
        body["weights"] = {
            name: {"sum": f"{p.sum:016x}", "numel": p.numel, "dtype": p.dtype}
            for name, p in sorted(self.weights.items())
        }
        head = {"format": FORMAT_NAME, "version": FORMAT_VERSION, "rows": self.num_rows}
        return json.dumps({**head, **body}, indent=1) + "\n"


def parse_manifest(text: str, where: Path) -> Manifest:
    """Reads and checks the text of a manifest.

    Of a newer version everything that is known must be there; what is not known is left out.

    Raises:
        CaptureError: Not JSON, not a capture, a field of the wrong kind, or, in a newer version,
            one that is missing.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(where, "JSON", str(error)) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT_NAME:
        got = body.get("format") if isinstance(body, dict) else type(body).__name__
        raise _broken(where, f'format "{FORMAT_NAME}"', repr(got)[:80])
    version = body.get("version")
    if not is_version(version):
        raise _broken(where, "a whole number as version", repr(version)[:80])
    if version <= FORMAT_VERSION:
        return _Fields(body, where).manifest()
    try:
        return _Fields(body, where, newer_version=version).manifest()
    except CaptureError as error:
        raise unreadable_newer(
            "this capture", version, reads=FORMAT_VERSION, error=error
        ) from error


def read_manifest(directory: Path) -> Manifest:
    """The checked manifest of a capture directory.

    Raises:
        CaptureError: No such directory or manifest, or the manifest is not sound.
    """
    path = directory / MANIFEST_NAME
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise _broken(path, f"at most {MAX_MANIFEST_BYTES} bytes", f"{path.stat().st_size}")
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise CaptureError(
            "not a capture",
            where=directory,
            expected=f"a directory with {MANIFEST_NAME}",
            got="no such directory" if not directory.exists() else f"no {MANIFEST_NAME} in it",
            do="give the directory that `kldive capture` wrote",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(path, "a readable text file", str(error)) from error
    return parse_manifest(text, path)


class _Fields:
    """Typed access to the parsed JSON of one manifest; every failure names the field."""

    def __init__(
        self, body: dict[str, Any], where: Path, *, newer_version: int | None = None
    ) -> None:
        self.body = body
        self.where = where
        self.newer_version = newer_version
        self.unknown_sites: list[str] = []

    def get(self, name: str, kind: type, default: Any, body: Any = None) -> Any:
        source = self.body if body is None else body
        if not isinstance(source, dict):
            raise _broken(self.where, f"an object that holds {name}", type(source).__name__)
        if self.newer_version is not None and name not in source:
            # A default would hide that a newer format calls it something else.
            raise _broken(self.where, f"a field {name}", "none")
        value = source.get(name, default)
        # bool is an int to isinstance, and never meant here.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _broken(self.where, f"{name} as {kind.__name__}", repr(value)[:80])
        if isinstance(value, int) and not 0 <= value <= MAX_NUMBER:
            raise _broken(self.where, f"{name} between 0 and 2**63", repr(value)[:80])
        return value

    def manifest(self) -> Manifest:
        path = self.get("path", str, "")
        if path not in get_args(names.Path):
            raise _broken(self.where, "path rollout or trainer", repr(path)[:80])
        sites = self._sites()
        return Manifest(
            path=path,
            engine=self.get("engine", str, ""),
            versions=self._texts("versions"),
            device=self.get("device", str, ""),
            dtype=self.get("dtype", str, ""),
            model=self._model(),
            knobs=self.get("knobs", dict, {}),
            contracts=self.get("contracts", dict, {}),
            sites=sites,
            missing=self._texts("missing"),
            weights=self._weights(),
            router_pair_norm=self._norms(),
            counts={
                k: self.get(k, int, 0, self.body["counts"]) for k in self.get("counts", dict, {})
            },
            convention=self.get("convention", str, ""),
            chunks=tuple(self._chunk(entry) for entry in self.get("chunks", list, [])),
            complete=self.get("complete", bool, False),
            newer_version=self.newer_version,
            unknown_sites=tuple(self.unknown_sites),
        )

    def _texts(self, name: str) -> dict[str, str]:
        table = self.get(name, dict, {})
        return {key: self.get(key, str, "", table) for key in table}

    def _model(self) -> ModelFacts:
        model = self.get("model", dict, {})
        kinds = self.get("layer_kinds", list, [], model)
        texts: dict[str, str] = {
            n: self.get(n, str, "", model) for n in ("id", "architecture", "config_hash")
        }
        numbers: dict[str, int] = {
            n: self.get(n, int, 0, model)
            for n in ("num_layers", "num_experts", "top_k", "hidden_size", "vocab_size")
        }
        if numbers["num_layers"] > 100_000:
            raise _broken(self.where, "num_layers of at most 100000", str(numbers["num_layers"]))
        return ModelFacts(
            id=texts["id"],
            architecture=texts["architecture"],
            config_hash=texts["config_hash"],
            layer_kinds=tuple(str(kind) for kind in kinds),
            **numbers,
        )

    def _sites(self) -> dict[str, SiteInfo]:
        sites: dict[str, SiteInfo] = {}
        for name, entry in self.get("sites", dict, {}).items():
            try:
                split_site(name)
            except ValueError as error:
                if self.newer_version is not None:
                    self.unknown_sites.append(name)
                    continue
                raise _broken(self.where, "canonical site names", str(error)) from error
            dtype = self.get("dtype", str, "", entry)
            if dtype not in DTYPE_NAMES:
                raise _broken(self.where, f"a known element type for {name}", repr(dtype)[:80])
            shape = self.get("shape", list, [], entry)
            fits = all(type(dim) is int and 0 <= dim < 2**40 for dim in shape)
            if not fits or len(shape) > MAX_DIMENSIONS:
                raise _broken(self.where, f"whole numbers as shape of {name}", repr(shape)[:80])
            derived = self.get("derived", bool, False, entry)
            sites[name] = SiteInfo(dtype=dtype, shape=tuple(shape), derived=derived)
        return sites

    def _weights(self) -> dict[str, ParameterSum]:
        weights: dict[str, ParameterSum] = {}
        for name, entry in self.get("weights", dict, {}).items():
            text = self.get("sum", str, "", entry)
            if re.fullmatch(r"[0-9a-f]{1,16}", text) is None:
                raise _broken(self.where, f"a hexadecimal sum for {name}", repr(text)[:80])
            numel = self.get("numel", int, 0, entry)
            dtype = self.get("dtype", str, "", entry)
            weights[name] = ParameterSum(sum=int(text, 16), numel=numel, dtype=dtype)
        return weights

    def _norms(self) -> dict[int, float]:
        norms: dict[int, float] = {}
        for layer, norm in self.get("router_pair_norm", dict, {}).items():
            number = type(norm) is float or (type(norm) is int and norm <= MAX_NUMBER)
            if not layer.isdecimal() or len(layer) > 6 or not number:
                raise _broken(self.where, "a number per layer in router_pair_norm", repr(norm)[:80])
            norms[int(layer)] = float(norm)
        return norms

    def _chunk(self, entry: Any) -> ChunkEntry:
        arrays, tokens = self.get("arrays", str, "", entry), self.get("tokens", str, "", entry)
        if not _ARRAYS_NAME.fullmatch(arrays) or not _TOKENS_NAME.fullmatch(tokens):
            raise _broken(
                self.where,
                "chunk files named chunk-000000.safetensors and tokens-000000.parquet",
                f"{arrays[:80]!r}, {tokens[:80]!r}",
            )
        numbers: dict[str, int] = {
            n: self.get(n, int, 0, entry)
            for n in (
                "rows",
                "array_rows",
                "arrays_bytes",
                "tokens_bytes",
                "arrays_crc",
                "tokens_crc",
            )
        }
        return ChunkEntry(arrays=arrays, tokens=tokens, **numbers)


def with_changes(manifest: Manifest, changes: Mapping[str, Any]) -> Manifest:
    """A copy of a manifest with some fields replaced."""
    return replace(manifest, **changes)


def _broken(where: Path, expected: str, got: str) -> CaptureError:
    return CaptureError(
        "cannot read the manifest of a capture",
        where=where,
        expected=expected,
        got=got,
        do="record this capture again",
    )
