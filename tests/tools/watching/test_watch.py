"""``pool.watch()``: what it shows of a pool, on every backend, and that the pool does not notice."""

from __future__ import annotations

import base64
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager
from stepmill.tools.watching.watch import Watch
from support.envs import OddEnv
from support.envs.command import Painted
from support.processes import child, went_well
from support.waiting import eventually
from support.watching import Client

pytestmark = pytest.mark.usefixtures("deadline")

BACKENDS = ["inline", "process"]
Make = Callable[..., Any]


def watch(pool: Any) -> Client:
    return Client(pool.watch(open_browser=False))


def play(pool: Any, steps: int) -> None:
    for _ in range(steps):
        pool.step(np.zeros(pool.num_envs, np.int64))


def state_with_pictures(pool: Any, client: Client, envs: int, **question: Any) -> Any:
    """Plays until there is a picture of each of the first envs."""
    state: Any = {}

    def all_there() -> bool:
        nonlocal state
        state = client.state(**question)
        play(pool, 1)
        return all(one["picture"] is not None for one in state["envs"][:envs])

    assert eventually(all_there)
    return state


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env_type", ["gymnasium", "gym", "dm"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_returns_and_rewards_of_every_env(make: Make, backend: str, env_type: str, autoreset: str) -> None:
    pool = make(Painted, env_type, num_envs=2, backend=backend, autoreset=autoreset)
    client = watch(pool)
    pool.reset()
    play(pool, 4)
    first = client.state()["envs"][1]
    assert (first["return"], first["step"], first["episodes"], first["last_return"]) == (10, 4, 0, None)
    play(pool, 1)
    ended = client.state()["envs"][1]
    assert (ended["episodes"], ended["last_return"]) == (1, 15)
    assert (ended["return"], ended["step"]) == ((0, 0) if autoreset == "same_step" else (15, 5))
    play(pool, 2)
    state = client.state(picked=1)
    assert state["envs"][0]["return"] == (3 if autoreset == "same_step" else 1)
    assert state["picked"]["rewards"] == [1, 2, 3, 4, 5, 1, *([2] if autoreset == "same_step" else [])]
    assert state["picked"]["ends"] == [4]
    assert (state["totals"]["episodes"], state["totals"]["return"], state["totals"]["length"]) == (2, 15, 5)
    assert state["totals"]["steps"] == 16


def test_a_run_that_is_under_way_shows_what_is_known(make: Make) -> None:
    pool = make(Painted, num_envs=1, backend="inline")
    pool.reset()
    play(pool, 2)
    client = watch(pool)
    play(pool, 2)
    assert client.state()["envs"][0]["return"] is None  # nobody saw how the episode began
    assert client.state(picked=0)["picked"]["rewards"] == [3, 4]
    play(pool, 3)
    assert client.state()["envs"][0]["return"] == 1


def test_an_async_pool(make: Make) -> None:
    pool = make(Painted, num_envs=4, batch_size=2, backend="process")
    client = watch(pool)
    pool.async_reset()
    for _ in range(40):
        info = pool.recv()[-1]
        pool.send(np.zeros(2, np.int64), info["env_id"])
    rewards = [client.state(picked=env)["picked"]["rewards"] for env in range(4)]
    for one in rewards:
        assert one == [1 + i % 5 for i in range(len(one))]
    assert client.state()["totals"]["steps"] == 80


def test_rewards_that_are_no_numbers(make: Make) -> None:
    pool = make(lambda: OddEnv(lambda obs, *_: (obs, float("nan"), True, False, {})), num_envs=1, backend="inline")
    client = watch(pool)
    pool.reset()
    play(pool, 4)
    state = client.state(picked=0)
    assert state["picked"]["rewards"] == [None, None]
    assert state["totals"]["return"] is None


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_the_rewards_of_players_are_summed_up(make: Make, backend: str) -> None:
    pool = make("Template-v0", num_envs=2, max_num_players=3, backend=backend)
    client = watch(pool)
    pool.reset()
    total = 0.0
    for _ in range(3):
        _, reward, _, _, info = pool.step(pool.action_space.sample())
        total += reward[info["players"]["env_id"] == 1].sum()
    shown = client.state(picked=1)
    assert shown["envs"][1]["return"] == pytest.approx(total, abs=1e-5)
    assert sum(shown["picked"]["rewards"]) == pytest.approx(total, abs=1e-5)


def test_a_page_of_many_envs(make: Make) -> None:
    pool = make("CartPole-v1", num_envs=4096)
    client = watch(pool)
    pool.reset()
    play(pool, 3)
    state = client.state(first=4000, count=1000)
    assert [one["id"] for one in state["envs"]] == list(range(4000, 4064))
    assert {len(one["rewards"]) for one in state["envs"]} == {3}
    assert [one["id"] for one in client.state(first=4090, count=16)["envs"]] == list(range(4090, 4096))
    assert client.state(picked=4095)["picked"]["return"] == 3


@pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])
def test_a_manager(manager: Any) -> None:
    with manager(lambda cfg: Painted(**cfg), [{"render_mode": "rgb_array"}] * 2, 2) as envs:
        with pytest.raises(errors.UsageError):
            envs.watch()
        envs.launch()
        page = envs.watch(open_browser=False)
        client = Client(page)

        def play_one() -> None:
            envs.step(dict.fromkeys(envs.ready_obs, np.zeros(1, np.int64)))

        assert eventually(lambda: play_one() is None and client.state()["envs"][1]["episodes"] > 1)
        picked = client.state(picked=1)["picked"]
        assert picked["rewards"] == [1 + i % 5 for i in range(len(picked["rewards"]))]
        assert picked["last_return"] == 15
        assert eventually(lambda: play_one() is None and client.state()["envs"][1]["picture"] is not None)
    assert page.closed


# ---- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_pictures_come_while_the_pool_runs(make: Make, backend: str) -> None:
    pool = make(
        Painted, num_envs=4, num_workers=2 if backend == "process" else None, backend=backend, render_mode="rgb_array"
    )
    client = watch(pool)
    pool.reset()
    state = state_with_pictures(pool, client, 4, picked=2)
    picture = base64.b64decode(state["envs"][1]["picture"]["png"])
    assert picture.startswith(b"\x89PNG")
    number = state["envs"][1]["picture"]["number"]
    assert "png" not in client.state(since=10**6)["envs"][1]["picture"]  # the browser has it
    assert eventually(lambda: play(pool, 1) is None and client.state()["envs"][1]["picture"]["number"] > number)
    assert 0 <= client.state()["pictures"]["share"] <= 1


def test_the_age_of_a_picture_is_never_negative(make: Make) -> None:
    pool = make(Painted, num_envs=1, backend="inline", render_mode="rgb_array")
    client = watch(pool)
    pool.reset()
    state_with_pictures(pool, client, 1)
    shown = pool.watch()._observer.looks.shown(0)
    shown.at += 3600
    assert client.state()["envs"][0]["picture"]["age"] == 0


def test_pictures_of_native_envs(make: Make) -> None:
    pytest.importorskip("pygame")
    pool = make("CartPole-v1", num_envs=2, render_mode="rgb_array")
    client = watch(pool)
    pool.reset()
    assert state_with_pictures(pool, client, 2)["envs"][0]["picture"]["png"]


def test_texts_are_shown_too(make: Make) -> None:
    pool = make(Painted, num_envs=1, backend="inline", render_mode="ansi")
    client = watch(pool)
    pool.reset()
    assert state_with_pictures(pool, client, 1)["envs"][0]["picture"]["text"].startswith("step ")


class Seeing(Painted):
    """Observes a picture."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Dict({"eye": gymnasium.spaces.Box(0, 255, (3, 20, 30), np.uint8)})

    def _obs(self) -> Any:
        return {"eye": np.full((3, 20, 30), self.steps, np.uint8)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_observations_are_shown_where_there_is_nothing_else(make: Make, backend: str) -> None:
    pool = make(Seeing, num_envs=2, backend=backend)
    client = watch(pool)
    pool.reset()
    state = state_with_pictures(pool, client, 2)
    assert state["envs"][0]["picture"]["png"]
    assert "These are the observations" in state["pictures"]["note"]


def test_without_pictures_the_page_says_how_to_get_them(make: Make) -> None:
    pool = make(Painted, num_envs=1, backend="inline")
    client = watch(pool)
    state = client.state()
    assert not state["pictures"]["any"]
    assert 'render_mode="rgb_array"' in state["pictures"]["note"]


def test_only_what_is_in_sight_is_drawn(make: Make) -> None:
    pool = make(Painted, num_envs=8, backend="inline", render_mode="rgb_array")
    client = watch(pool)
    pool.reset()

    def drawn() -> list[int]:
        play(pool, 1)
        envs = client.state(top=3, bottom=4, picked=6)["envs"]
        return [one["id"] for one in envs if one["picture"] is not None]

    assert eventually(lambda: drawn() == [3, 4, 6])
    play(pool, 50)
    assert drawn() == [3, 4, 6]


def test_without_a_browser_nothing_is_drawn(make: Make) -> None:
    drawn = []

    class Telling(Painted):
        def render(self) -> Any:
            drawn.append(self.steps)
            return super().render()

    pool = make(lambda **config: Telling(**config), num_envs=1, backend="inline", render_mode="rgb_array")
    client = watch(pool)
    pool.reset()
    play(pool, 200)
    assert drawn == []
    client.state(top=None)  # pictures are paused
    play(pool, 200)
    assert drawn == []
    state_with_pictures(pool, client, 1)
    assert drawn != []


class Slow(Painted):
    """Takes long to be drawn."""

    drawn = 0.0

    def render(self) -> Any:
        clock.now += 0.2
        Slow.drawn += 0.2
        return super().render()

    def step(self, action: Any) -> Any:
        clock.now += 0.001
        return super().step(action)


class Clock:
    now = 0.0


clock = Clock()


def test_slow_pictures_take_at_most_their_share(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the envs turn: a step takes 1 ms, a picture 200."""
    monkeypatch.setattr("stepmill.tools.watching.observer.time.perf_counter", lambda: clock.now)
    monkeypatch.setattr("stepmill.tools.watching.report.time.perf_counter", lambda: clock.now)
    Slow.drawn = 0.0
    pool = make(Slow, num_envs=4, backend="inline", render_mode="rgb_array")
    client = watch(pool)
    pool.watch()._observer.book.native.look_every(0.0)
    monkeypatch.setattr("stepmill.tools.watching.observer._LOOK_S", 0.0)
    pool.reset()
    start = clock.now
    first = None
    while clock.now - start < 60:
        client.state() if int(clock.now * 1000) % 400 < 4 else None
        play(pool, 1)
        if first is None and Slow.drawn:
            first = Slow.drawn  # loads what draws
    assert first is not None
    counted = Slow.drawn - first
    assert 0.5 < counted <= 0.05 * (clock.now - start) + 0.2
    assert client.state()["pictures"]["share"] <= 0.06


def test_the_users_own_calls_go_on_while_envs_are_drawn(make: Make) -> None:
    pool = make(Painted, num_envs=4, num_workers=2, backend="process", render_mode="rgb_array")
    client = watch(pool)
    pool.reset()
    for count in range(30):
        client.state(picked=2)
        play(pool, 1)
        pictures = pool.render()
        assert [int(one[0, 0, 0]) // 10 for one in pictures] == list(pool.get_attr("steps")), count
    pool.send(np.zeros(2, np.int64), [0, 3])
    assert pool.recv()[-1]["env_id"].tolist() == [0, 3]
    pool.reset(seed=1)


# ---- failures ------------------------------------------------------------------------------------


class Unpaintable(Painted):
    def render(self) -> Any:
        raise RuntimeError("<b>no paint</b>")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_that_cannot_be_drawn_goes_on(make: Make, backend: str) -> None:
    pool = make(Unpaintable, num_envs=1, backend=backend, render_mode="rgb_array")
    client = watch(pool)
    pool.reset()
    state = state_with_pictures(pool, client, 1)
    assert "<b>no paint</b>" in state["envs"][0]["picture"]["failure"]
    play(pool, 20)


class Mortal(Painted):
    """Ends its process while it is drawn, once it has taken three steps."""

    def render(self) -> Any:
        if self.steps >= 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().render()


def test_a_worker_that_dies_while_it_draws_is_replaced(make: Make) -> None:
    pool = make(
        Mortal,
        num_envs=2,
        num_workers=2,
        backend="process",
        render_mode="rgb_array",
        on_error="restart",
        max_restarts=1000,
    )
    client = watch(pool)
    pool.reset()

    def has_failed() -> bool:
        play(pool, 1)
        return any(one["failures"] for one in client.state()["envs"])

    assert eventually(has_failed)
    assert eventually(lambda: play(pool, 1) is None and client.state()["totals"]["restarts"] > 0)


class Failing(Painted):
    def step(self, action: Any) -> Any:
        if self.steps == 2:
            raise RuntimeError("<script>alert(1)</script>")
        return super().step(action)


def test_failures_are_shown_with_their_text(make: Make) -> None:
    pool = make(Failing, num_envs=1, backend="inline")
    client = watch(pool)
    pool.reset()
    with pytest.raises(errors.EnvError):
        play(pool, 10)
    state = client.state()
    assert state["envs"][0]["failures"] == 1
    assert "<script>alert(1)</script>" in state["errors"][0]["text"]


def test_what_goes_wrong_in_the_page_does_not_harm_the_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make(Painted, num_envs=1, backend="inline")
    client = watch(pool)
    pool.reset()
    monkeypatch.setattr(pool.watch()._observer.looks, "watched", lambda now: 1 / 0)
    monkeypatch.setattr("stepmill.tools.watching.observer._UNSEEN_S", 0.0)
    pool.watch()._observer.book.native.look_every(0.0)
    play(pool, 5)
    assert "cannot follow the pool any more: ZeroDivisionError" in client.state()["errors"][0]["text"]
    play(pool, 5)


# ---- the picked env ------------------------------------------------------------------------------


def test_observation_and_infos_of_the_picked_env(make: Make) -> None:
    pool = make(Painted, num_envs=2, backend="inline", told="<i>told</i>")
    client = watch(pool)
    client.state(picked=1)
    pool.reset()
    play(pool, 3)
    assert eventually(lambda: play(pool, 1) is None and client.state(picked=1)["picked"]["info"] != [])
    picked = client.state(picked=1)["picked"]
    assert ["note", "<i>told</i>"] in picked["info"]
    assert len(picked["observation"]) == 1


# ---- beginning and end ---------------------------------------------------------------------------


def test_it_can_be_started_while_another_thread_uses_the_pool(make: Make) -> None:
    pool = make(Painted, num_envs=2, backend="process", render_mode="rgb_array")
    pool.reset()
    ended = threading.Event()

    def train() -> None:
        while not ended.is_set():
            play(pool, 1)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        client = watch(pool)
        assert eventually(lambda: client.state()["envs"][0]["picture"] is not None)
        assert eventually(lambda: client.state()["totals"]["steps_per_second"] > 0)
    finally:
        ended.set()
        thread.join()


def test_called_again_it_is_the_same_page(pool: Any, page: Watch) -> None:
    assert pool.watch(open_browser=False) is page
    page.close()
    page.close()
    assert page.closed
    assert repr(page) == "Watch(closed)"
    other = pool.watch(open_browser=False)
    assert other is not page
    assert not other.closed


def test_it_ends_with_the_pool(pool: Any, page: Watch) -> None:
    pool.close()
    assert page.closed
    assert not page.file.exists()
    with pytest.raises(errors.ClosedError):
        pool.watch()


def test_it_ends_when_the_pool_is_forgotten() -> None:
    pool = stepmill.make(Painted, backend="inline")
    page = pool.watch(open_browser=False)
    gone = weakref.ref(pool._engine)
    pool.reset()
    del pool
    gc.collect()
    assert gone() is None
    assert page.closed


def test_a_forked_child_leaves_it_alone(pool: Any, page: Watch) -> None:
    def body() -> None:
        page.close()
        with pytest.raises(errors.ForkedError):
            pool.watch()

    assert went_well(child(body))
    assert page.file.exists()
    assert Client(page).state()["num_envs"] == 3


def test_a_program_that_ends_leaves_nothing_behind() -> None:
    code = (
        "import stepmill; pool = stepmill.make('CartPole-v1', num_envs=2); page = pool.watch(open_browser=False); "
        "pool.reset(); print(page.file)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stderr == ""
    assert not os.path.exists(done.stdout.strip())


def test_results_are_the_same_whether_it_is_watched_or_not(make: Make) -> None:
    pools = [make("CartPole-v1", num_envs=8, batch_size=8, render_mode="rgb_array") for _ in range(2)]
    client = watch(pools[0])
    for pool in pools:
        pool.reset(seed=3)
    for _ in range(100):
        client.state(picked=1)
        ours, theirs = (pool.step(np.ones(8, np.int64)) for pool in pools)
        for mine, other in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.fixture
def alarm() -> Iterator[list[int]]:
    rung: list[int] = []

    def ring(*_: object) -> None:
        rung.append(1)
        raise TimeoutError("alarm")

    old = signal.signal(signal.SIGUSR1, ring)
    yield rung
    signal.signal(signal.SIGUSR1, old)


def test_what_a_signal_handler_raises_reaches_the_caller_and_no_result_is_lost(
    make: Make, monkeypatch: pytest.MonkeyPatch, alarm: list[int]
) -> None:
    pool = make(Painted, num_envs=1, backend="inline")
    client = watch(pool)
    pool.reset()
    observer = pool.watch()._observer
    look = observer._look

    def interrupted(*arguments: Any) -> None:
        if not alarm:
            signal.raise_signal(signal.SIGUSR1)
        look(*arguments)

    monkeypatch.setattr(observer, "_look", interrupted)
    observer.book.native.look_every(0.0)
    with pytest.raises(TimeoutError, match="alarm"):
        play(pool, 50_000)
    _, reward, *_ = pool.recv()
    assert client.state(picked=0)["picked"]["rewards"][-1] == reward[0]
    assert client.state()["errors"] == []
