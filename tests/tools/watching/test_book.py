"""The past of a run in few points."""

from __future__ import annotations

import json

from stepmill.tools.watching.observer import History


def test_a_week_has_few_points_from_its_beginning_to_its_end() -> None:
    history, added = History(0.0), 0
    for second in range(7 * 24 * 3600):
        if history.wants(float(second)):
            history.add(float(second), 100.0, float(second) if second % 2 else None)
            added += 1
    columns = history.columns()
    assert added > 200
    assert len(columns["seconds"]) == len(columns["rate"]) == len(columns["returns"]) <= 241
    assert columns["seconds"] == sorted(columns["seconds"])  # type: ignore[type-var]
    assert (columns["seconds"][-1] or 0) > 6.5 * 24 * 3600
    assert set(columns["rate"]) == {100.0}
    assert len(json.dumps(columns)) < 20_000


def test_points_without_episodes_have_no_return() -> None:
    history = History(0.0)
    history.add(1.0, 5.0, None)
    history.add(2.0, 5.0, 3.0)
    assert history.columns()["returns"] == [None, 3.0]
