"""How a death is reported: written by the process that forked the worker, read by the caller."""

from __future__ import annotations

import struct

__all__ = ["OBITUARY"]

# What the pool is told of a death: worker id, incarnation, exit code or minus the signal. In one write, so never in
# part. A worker id of -1 is the template itself; its pid stands in place of the incarnation.
OBITUARY = struct.Struct("<iii")
