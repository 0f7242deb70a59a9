"""A comm that keeps what is sent, in the place of a kernel's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ipywidgets.comm
import pytest
from comm.base_comm import BaseComm

from workbench.widgets.divergence import Divergence


@dataclass
class Sent:
    """One message to the front end."""

    kind: str
    data: dict[str, Any]
    buffers: list[bytes]

    @property
    def size(self) -> int:
        """Bytes of its JSON, which has to be JSON without NaN."""
        return len(json.dumps(self.data, allow_nan=False).encode())


@dataclass
class Wire:
    """Everything sent since the last `clear`, and a way to speak as the front end does."""

    sent: list[Sent] = field(default_factory=list)

    def clear(self) -> None:
        """Forgets what was sent."""
        self.sent.clear()

    @property
    def answers(self) -> list[tuple[dict[str, Any], list[bytes]]]:
        """Custom messages: content and buffers."""
        return [
            (message.data["content"], message.buffers)
            for message in self.sent
            if message.data.get("method") == "custom"
        ]

    @property
    def updates(self) -> list[Sent]:
        """Messages with values of traits; echoes of the front end's own are left out."""
        return [message for message in self.sent if message.data.get("method") == "update"]

    def ask(self, widget: Divergence, **request: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Sends a request and gives its one answer."""
        self.clear()
        self.tell(widget, **request)
        (found,) = self.answers
        return found

    def tell(self, widget: Divergence, **request: Any) -> None:
        """Sends a request that nobody has to answer."""
        data = {"method": "custom", "content": request}
        widget._handle_msg({"content": {"data": data}, "buffers": []})

    def write(self, widget: Divergence, **state: Any) -> None:
        """Writes traits as the front end does."""
        data = {"method": "update", "state": state, "buffer_paths": []}
        widget._handle_msg({"content": {"data": data}, "buffers": []})


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Widgets made under this fixture speak to it."""
    found = Wire()
    monkeypatch.setattr(ipywidgets.comm, "create_comm", _comm_for(found))
    return found


def _comm_for(wire: Wire) -> Callable[..., BaseComm]:
    class KeptComm(BaseComm):
        def publish_msg(
            self,
            msg_type: str,
            data: Any = None,
            metadata: Any = None,
            buffers: Any = None,
            **keys: Any,
        ) -> None:
            wire.sent.append(Sent(msg_type, data or {}, [bytes(b) for b in buffers or ()]))

    return KeptComm
