"""Captures on disk: manifest, arrays, tokens, writer, reader. No torch."""

from workbench.store.capture import Capture, Chunk, open_capture
from workbench.store.manifest import Manifest, ModelFacts, ParameterSum, SiteInfo, read_manifest
from workbench.store.writer import CaptureWriter

__all__ = [
    "Capture",
    "CaptureWriter",
    "Chunk",
    "Manifest",
    "ModelFacts",
    "ParameterSum",
    "SiteInfo",
    "open_capture",
    "read_manifest",
]
