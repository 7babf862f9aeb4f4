"""How a death is reported: written by the process that forked the worker, read by the caller."""

from __future__ import annotations

import struct

# What the pool is told about a death: worker id, incarnation, and the exit code or minus the signal. It is written at
# once, so it never arrives in part. A worker id of -1 means the template itself, with its pid as the incarnation.
OBITUARY = struct.Struct("<iii")
