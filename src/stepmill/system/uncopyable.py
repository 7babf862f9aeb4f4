"""The base of objects that exist once, because they own threads, processes or envs."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from stepmill.errors import CopyError


class Uncopyable:
    """Refuses ``copy``, ``deepcopy`` and ``pickle``: a copy would share, and close, what the original owns."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise CopyError(
            f"a {type(self).__name__} cannot be copied or pickled: its threads, processes and envs exist once. "
            "Make another one"
        )
