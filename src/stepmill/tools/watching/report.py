"""What the page is told, as JSON."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepmill.hosts.observing import Interval, Snapshot, WatchedPool
from stepmill.tools.watching.looks import MOST_SHOWN
from stepmill.tools.watching.observer import Observer

_CELL_REWARDS = 60
_PICKED_REWARDS = 300


@dataclass(frozen=True)
class Question:
    """What a browser asks."""

    viewer: str  # a name that the browser has given itself
    first: int = 0  # env that it shows
    count: int = 16
    picked: int | None = None  # by its user
    since: int = 0  # the number of the last picture that it has
    top: int | None = None  # the first env that is in sight; None: it wants no pictures
    bottom: int | None = None  # the last one


class Reporter:
    """Answers browsers. Called in the threads of the server."""

    def __init__(self, observer: Observer, pool: WatchedPool) -> None:
        self._observer = observer
        self._name, self._num_envs, self._facts = pool.name, pool.num_envs, pool.facts
        self._start = time.time()

    def answer(self, question: Question) -> bytes:
        """The state of the pool, for one browser."""
        now = time.perf_counter()
        until = self._observer.looks.count  # before they are read: what comes meanwhile may be sent twice, not lost
        first = min(max(question.first, 0), self._num_envs - 1)
        envs = list(range(first, min(first + min(max(question.count, 1), MOST_SHOWN), self._num_envs)))
        picked = question.picked if question.picked is not None and 0 <= question.picked < self._num_envs else None
        in_sight: list[int] = []
        if question.top is not None and question.bottom is not None:
            in_sight = [env for env in envs if question.top <= env <= question.bottom]
            self._observer.looks.look(question.viewer[:64], in_sight, picked, now)
        control = self._observer.control
        if control is not None and control.paused:
            control.nudge()
        snapshot, lately = self._observer.book.look(now)
        document = {
            "name": self._name,
            "facts": self._facts,
            "seconds": time.time() - self._start,
            "num_envs": self._num_envs,
            "first": first,
            "until": until,
            "control": None if control is None else {"paused": control.paused, "speed": control.speed},
            "totals": self._totals(snapshot, lately),
            "history": self._observer.book.history.columns(),
            "workers": _workers(snapshot, lately),
            "pictures": self._pictures(in_sight, picked, now),
            "errors": [{"at": at, "text": text[:4000]} for at, text in list(self._observer.errors)],
            "envs": self._envs(envs, question.since, now),
            "picked": None if picked is None else self._picked(picked, question.since, now),
        }
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()

    def command(self, name: str, speed: float | None) -> bool:
        """Does what the user clicked; false if it is not possible here."""
        control = self._observer.control
        return control is not None and control.turn(name, speed)

    # ---- parts -------------------------------------------------------------------------------

    def _totals(self, now: Snapshot, lately: Interval) -> dict[str, Any]:
        recent = self._observer.book.recent_episodes()
        returns, lengths = [one for one, _ in recent], [one for _, one in recent]
        return {
            "steps": now.steps,
            "episodes": now.episodes,
            "steps_per_second": lately.per_second("steps"),
            "return": _finite(sum(returns) / len(returns)) if returns else None,
            "best_return": _finite(max(returns)) if returns else None,
            "length": sum(lengths) / len(lengths) if lengths else None,
            "recent": len(recent),
            "restarts": now.restarts,
        }

    def _pictures(self, envs: Sequence[int], picked: int | None, now: float) -> dict[str, Any]:
        observer = self._observer
        return {
            "any": observer.pictures.any,
            "note": observer.pictures.note,
            "share": observer.share(now),
            "limit": observer.limit,
            "every": observer.looks.seconds_between(envs, now),
            "picked_every": None if picked is None else observer.looks.seconds_between([picked], now),
        }

    def _envs(self, envs: Sequence[int], since: int, now: float) -> list[dict[str, Any]]:
        rewards = self._observer.book.rewards(envs, _CELL_REWARDS)
        return [{**self._env(env, since, now), "rewards": rewards[env][0]} for env in envs]

    def _env(self, env: int, since: int, now: float) -> dict[str, Any]:
        return {"id": env, **self._observer.book.numbers(env), "picture": self._picture(env, since, now)}

    def _picture(self, env: int, since: int, now: float) -> dict[str, Any] | None:
        shown = self._observer.looks.shown(env)
        if shown is None:
            return None
        out: dict[str, Any] = {"number": shown.number, "age": max(0.0, now - shown.at)}  # it may have just come
        if shown.number > since:
            start = time.thread_time()
            png, is_new = shown.png()
            if is_new:
                self._observer.spend_beside(time.thread_time() - start)
            out["text"], out["failure"] = shown.text, shown.failure
            out["episode"], out["step"] = (None, None) if shown.stamp is None else shown.stamp
            out["png"] = None if png is None else base64.b64encode(png).decode()
        return out

    def _picked(self, env: int, since: int, now: float) -> dict[str, Any]:
        rewards, ends = self._observer.book.rewards([env], _PICKED_REWARDS)[env]
        details = self._observer.details.get(env, {"observation": [], "info": []})
        return {**self._env(env, since, now), "rewards": rewards, "ends": ends, **details}


def _workers(now: Snapshot, lately: Interval) -> list[dict[str, Any]]:
    """How busy each worker process is, or all threads together."""
    work = lately.workers()
    if now.has_processes:
        return [
            {"name": f"worker {number}", "use": its.use, "pid": one.pid, "alive": one.pid is not None}
            for number, (one, its) in enumerate(zip(now.workers, work, strict=True))
        ]
    threads = [its.use for one, its in zip(now.workers, work, strict=True) if one.actions or one.inside]
    hands = len(threads) + 1  # the caller helps
    name = "the calling thread" if hands == 1 else f"{hands} threads, the calling one included"
    return [{"name": name, "use": (lately.time()["envs"] + sum(threads)) / hands, "alive": True}]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
