"""Our docstrings as the site shows them: examples and drawings as blocks, return types as callers see them.

mkdocstrings reads sections such as "Args:", and takes the rest for Markdown. mkdocs.yml names this file.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# A paragraph that begins with a prompt; and what follows a line with two colons, as long as it is indented.
PROMPT = re.compile(r"^([ ]*)(>>> .*(?:\n\1\S.*)*)", re.MULTILINE)
DRAWING = re.compile(r"^::\n\n((?:(?:    .*)?\n)+)", re.MULTILINE)


class Blocks(griffe.Extension):
    """griffe, which reads the sources, calls these for each object that it has read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self.on_object(obj=pkg)  # griffe does not count it among the objects

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """``@direct`` methods are annotated with ``Call[X]``; a caller gets X."""
        returns = func.returns
        if isinstance(returns, griffe.ExprSubscript) and str(returns.left) == "Call":
            func.returns = returns.slice


def fenced(text: str) -> str:
    text = DRAWING.sub(lambda match: f"```text\n{_dedent(match[1])}\n```\n\n", text)
    return PROMPT.sub(lambda match: f"{match[1]}```pycon\n{match[1]}{match[2]}\n{match[1]}```", text)


def _dedent(block: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in block.rstrip().splitlines())
