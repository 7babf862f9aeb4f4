"""What goes with actions and resets to envs of another process, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepmill.errors import ActionError, ResetOptionError
from stepmill.hosts.host import Preparation
from stepmill.hosts.process.pickling import Destination, dumps_argument
from stepmill.hosts.rows import object_parts
from stepmill.values.spaces import FlatSpace


class PickledMail:
    """The part of a ``PythonHost`` that packs (options, objects, preparation), one of them at a time."""

    action: FlatSpace
    _destination: Destination

    def pack_actions(self, action: Any, env_ids: Sequence[int]) -> dict[int, bytes]:
        """The object parts, pickled."""
        parts = object_parts(self.action, action, env_ids)
        return {env_id: self.pack_objects(objects) for env_id, objects in parts.items()}

    def pack_objects(self, objects: list[Any]) -> bytes:
        """The parts of one env, pickled."""
        return dumps_argument("action", (None, objects, None), ActionError, self._destination)

    def pack_options(self, options: dict[str, Any] | None, preparation: Preparation | None) -> bytes | None:
        """The options of one env, with what happens to it before its reset."""
        if options is None and preparation is None:
            return None
        return dumps_argument("reset options", (options, None, preparation), ResetOptionError, self._destination)

    def prepare(self, preparation: Preparation, env_ids: Sequence[int]) -> None:
        """Does nothing: the preparation was sent with the options, and happens where the envs live."""
