"""Random sequences of calls of a manager against a plain model of it, with envs that fail, die, end and wait.

Every env does what its actions say, so the model knows what comes of each action; gates hold some of them back until
the test lets them through. Which of those that are through come first is open; everything else is settled. Before a
call that would wait for an env at the gate, that env is let through: whatever the manager waits for then, can come.
"""

from __future__ import annotations

import collections
import copy
import itertools
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from stepmill import EnvError, errors
from stepmill.envs.base_env import EpisodeSeeds
from stepmill.managers import EnvState
from stepmill.managers.standings import Standings
from support.envs.faulty import outcome
from support.envs.managed import DIE, END, FAIL, GATED, KINDS, ODD, ON, Puppet
from support.manager_cases import DONE, ERROR, NEED_RESET, RESET, RUN, VOID
from support.waiting import Gate, no_hang

pytestmark = pytest.mark.usefixtures("server")

N = 3
LAUNCHES = 4


# ---- the model -----------------------------------------------------------------------------------


@dataclass
class Order:
    """The parameters of a reset."""

    order: int = 0
    fail: tuple[int, ...] = ()
    slow: tuple[int, ...] = ()


@dataclass
class Seeds:
    """What is known of the seeds of one env."""

    given: int | None = None
    dynamic: bool | None = None
    waits: bool = False  # goes with the next reset that is asked for
    is_open: bool = False  # whether the next reset has the new seed depends on when it was sent
    source: EpisodeSeeds | None = None  # None: nobody can tell

    def next(self, is_automatic: bool) -> int | None:
        """The seed of a reset, None where nobody can tell."""
        if self.given is not None and (self.dynamic is False or (self.waits and not is_automatic)):
            self.source = EpisodeSeeds(self.given, self.dynamic is not False)
        if not is_automatic:
            self.waits = False
        if self.is_open:
            self.is_open, self.source = False, None
        return None if self.source is None else self.source.next()


@dataclass
class ModelEnv:
    """One env: an action that nobody has the result of, or a state."""

    state: EnvState = VOID
    action: int | None = None  # in flight
    is_held: bool = False  # at the gate
    is_doomed: bool = False  # its reset has failed too often
    is_automatic: bool = False  # nobody asked for its reset
    elapsed: int = 0
    seed: int | None = None  # of this episode, where it is known
    episodes: int = 0
    tries: int = 0
    is_lost: bool = False  # its worker died
    order: Order = field(default_factory=Order)
    resets: collections.Counter[int] = field(default_factory=collections.Counter)
    seeds: Seeds = field(default_factory=Seeds)

    @property
    def what(self) -> int | None:
        return None if self.action is None else self.action % GATED

    @property
    def is_ready(self) -> bool:
        return self.state is RUN and self.action is None

    @property
    def is_through(self) -> bool:
        """Its action is not held back."""
        return self.action is not None and not self.is_held

    def send(self, action: int) -> None:
        self.action, self.is_held = action, action >= GATED

    def begin_reset(self, max_retry: int, is_automatic: bool) -> None:
        """Tries until it is good, waits at the gate, or has failed too often."""
        self.state, self.action, self.is_automatic, self.is_lost = RESET, None, is_automatic, False
        while True:
            self.resets[self.order.order] += 1
            number = self.resets[self.order.order]
            if number not in self.order.fail:
                self.is_held = number in self.order.slow
                return
            self.tries += 1
            if self.tries > max_retry:
                self.is_doomed = True
                return

    def end_reset(self) -> None:
        seed = self.seeds.next(self.is_automatic)
        self.seed = None if seed is None else seed % 1000
        self.state, self.elapsed, self.tries = RUN, 0, 0

    def die(self) -> None:
        self.is_lost = True
        self.resets.clear()
        self.seeds.source = None


@dataclass
class Model:
    """A manager, as the contract describes it."""

    envs: list[ModelEnv]
    auto_reset: bool
    episode_num: float
    wait_num: float
    max_retry: int
    closed: bool = True

    def in_flight(self) -> list[int]:
        return [i for i, env in enumerate(self.envs) if env.action is not None]

    def through(self) -> list[int]:
        return [i for i, env in enumerate(self.envs) if env.is_through]

    def enough(self) -> int:
        return int(min(self.wait_num, len(self.in_flight())))

    def step_returns(self) -> bool:
        """Whether a step has what it needs in those that are not held back."""
        through = self.through()
        useful = any(self.envs[i].what != END for i in through) or len(through) == len(self.in_flight())
        return useful and len(through) >= self.enough()

    def take(self, env_id: int) -> None:
        """The result of an action was handed out."""
        env = self.envs[env_id]
        what, env.action = env.what, None
        if what in (FAIL, DIE):
            env.state = ERROR
            if what == DIE:
                env.die()
            return
        env.elapsed += 1
        if what == ODD:
            env.state = ERROR
        elif what == END:
            env.episodes += 1
            if env.episodes >= self.episode_num:
                env.state = DONE
            elif not self.auto_reset:
                env.state = NEED_RESET
            else:
                env.begin_reset(self.max_retry, is_automatic=True)

    def may_be_doomed(self) -> bool:
        """Whether a reset has failed too often, or that of an end that nobody has seen may have."""
        return any(env.is_doomed or self._reset_follows_and_fails(env) for env in self.envs)

    def _reset_follows_and_fails(self, env: ModelEnv) -> bool:
        if not (env.is_through and env.what == END and self.auto_reset and env.episodes + 1 < self.episode_num):
            return False
        next_ones = itertools.count(env.resets[env.order.order] + 1)
        fails = len(list(itertools.takewhile(lambda number: number in env.order.fail, next_ones)))
        return fails > self.max_retry

    def possible_states(self, env: ModelEnv) -> set[EnvState]:
        if env.is_through:
            if env.what == END and env.episodes + 1 >= self.episode_num:
                return {RUN, DONE}
            if env.what == END:
                return {RUN, RESET} if self.auto_reset else {RUN, NEED_RESET}
            return {RUN} if env.what == ON else {RUN, ERROR}
        if env.state is RESET and not env.is_held and not env.is_doomed:
            return {RESET, RUN}
        return {env.state}

    def possible_counts(self, env: ModelEnv) -> set[int]:
        return {env.episodes, env.episodes + (env.is_through and env.what == END)}


# ---- what is put against it ----------------------------------------------------------------------

each = {"min_size": N, "max_size": N}
masks = st.lists(st.booleans(), **each)
numbers = st.lists(st.integers(1, 5), max_size=2)
# A good step most of the time.
deeds = st.sampled_from([ON, ON, ON, ON, END, END, END, ODD, FAIL, DIE])


class ManagerMachine(RuleBasedStateMachine):
    """Does the same to the manager and to the model, and compares."""

    kind: str

    @initialize(
        auto_reset=st.sampled_from([True, True, False]),
        episode_num=st.sampled_from([1, 2, 3, "inf"]),
        wait_num=st.sampled_from([1, 2, 3]),
        timeout=st.sampled_from([None, 0, 0.001]),
        max_retry=st.integers(0, 1),
    )
    def begin(self, auto_reset: bool, episode_num: Any, wait_num: int, timeout: float | None, max_retry: int) -> None:
        self.limit = no_hang()
        self.limit.__enter__()
        self.folder = tempfile.TemporaryDirectory()
        self.gate = Gate(Path(self.folder.name), N * LAUNCHES)
        self.launches = 0
        self.orders = itertools.count(1)
        self.saved: dict[int, tuple[Any, ModelEnv]] = {}
        given: dict[str, Any] = {"auto_reset": auto_reset, "max_retry": max_retry, "retry_waiting_time": 0}
        if self.kind == "async":
            given |= {"wait_num": wait_num, "timeout": timeout}
        if self.kind != "serial":
            given["num_workers"] = N
        cfgs = [{"folder": self.folder.name}] * N
        self.manager: Any = KINDS[self.kind](Puppet, cfgs, N, episode_num, **given)
        self.model = Model(
            [ModelEnv() for _ in range(N)],
            auto_reset,
            math.inf if episode_num == "inf" else episode_num,
            wait_num if self.kind == "async" else math.inf,
            max_retry,
        )

    def teardown(self) -> None:
        self.gate.close()
        self.manager.close()
        self.folder.cleanup()
        self.limit.__exit__(None, None, None)

    @property
    def has_gates(self) -> bool:
        return self.kind != "serial"

    def possible(self, what: int, gated: bool) -> int:
        """An env in this process can neither be held back nor die alone."""
        if self.kind == "serial":
            return FAIL if what == DIE else what
        return what + GATED * gated

    # ---- life ----

    @rule(seeded=st.booleans())
    def launch(self, seeded: bool) -> None:
        model = self.model
        if not model.closed:
            with pytest.raises(errors.UsageError, match="launched already"):
                self.manager.launch()
            return
        if self.launches == LAUNCHES:
            return
        if seeded:
            self.seed([True] * N, 5, True)
        self.launches += 1
        self.saved.clear()  # they have places at the gate of the last launch
        model.envs = [ModelEnv(seeds=env.seeds) for env in model.envs]
        for env in model.envs:
            env.seeds = Seeds(env.seeds.given, env.seeds.dynamic, waits=env.seeds.given is not None)
            env.begin_reset(model.max_retry, is_automatic=False)
            env.end_reset()
        model.closed = False
        self.manager.launch([self.params(env_id) for env_id in range(N)])

    def params(self, env_id: int) -> dict[str, Any]:
        """As the model has them. Each launch has its own places at the gate: who was killed may have left some open."""
        order = self.model.envs[env_id].order
        place = env_id + N * (self.launches - 1)
        return {"order": order.order, "fail": list(order.fail), "slow": list(order.slow), "place": place}

    @rule(really=st.integers(0, 9))
    def close(self, really: int) -> None:
        if really == 0:  # seldom: little can be learnt afterwards
            self.manager.close()
            self.is_closed()

    def is_closed(self) -> None:
        self.model.closed = True
        for env in self.model.envs:
            env.state, env.action, env.is_held, env.is_doomed = VOID, None, False, False

    # ---- step ----

    @rule(asked=masks, what=st.lists(deeds, **each), gated=masks)
    def step(self, asked: list[bool], what: list[int], gated: list[bool]) -> None:
        """Of envs that are ready."""
        if not self.model.closed:
            ready = self.ready()
            actions = {i: self.possible(what[i], gated[i]) for i in ready if asked[i]}
            self.do_step(actions)
        else:
            with pytest.raises(errors.ClosedError):
                self.manager.step({0: 0})

    @rule(turns=st.integers(1, 6), ends=masks)
    def play(self, turns: int, ends: list[bool]) -> None:
        """Several good turns in a row, so that episodes reach their end in spite of all the failures."""
        if self.model.closed:
            self.launch(False)
        for turn in range(turns):
            if not self.model.closed:
                ready = self.ready()
                self.do_step({i: END if ends[i] and turn % 2 else ON for i in ready})

    @rule()
    def gather(self) -> None:
        self.do_step({})

    def do_step(self, actions: dict[int, int]) -> None:
        model = self.model
        if model.closed:
            return
        for env_id, action in actions.items():
            model.envs[env_id].send(action)
        for env_id in model.in_flight():
            if not model.step_returns():
                self.let_through(env_id)
        in_flight, through, enough = model.in_flight(), model.through(), model.enough()
        result = self.attempt(lambda: self.manager.step(actions))
        if result is None:
            return
        timesteps, failures = result
        came = {*timesteps, *(one.env_id for one in failures)}
        assert len(came) == len(timesteps) + len(failures), "an action has one result"
        assert came <= set(through)
        assert len(came) >= enough
        only_ends = not failures and all(one.done for one in timesteps.values())
        assert not only_ends or came == set(in_flight), "only ended envs, and others run"
        for one in failures:
            died = model.envs[one.env_id].what == DIE
            assert died or model.envs[one.env_id].what == FAIL
            assert isinstance(one, errors.WorkerDiedError) == died
        for env_id, timestep in timesteps.items():
            env = model.envs[env_id]
            assert env.what in (ON, END, ODD)
            assert (timestep.reward.tolist(), timestep.done) == ([env.action], env.what == END)
            assert timestep.info.get("abnormal", False) == (env.what == ODD)
            self.same_observation(env_id, timestep.obs, env.elapsed + 1)
        for env_id in came:
            model.take(env_id)
        if self.kind == "serial":  # it has done all resets
            assert not any(env.is_doomed for env in model.envs), "the manager should be closed"
            for env in model.envs:
                if env.state is RESET:
                    env.end_reset()

    @rule(env_id=st.integers(0, N - 1), other=st.integers(0, N - 1))
    def step_of_who_cannot(self, env_id: int, other: int) -> None:
        env = self.model.envs[env_id]
        if self.model.closed or env.is_ready or (env.state is RESET and not env.is_held):
            return
        with pytest.raises(errors.InFlightError, match=rf"\b{env_id}: '"):
            self.manager.step({env_id: ON, other: ON})

    # ---- ready_obs ----

    @rule()
    def look(self) -> None:
        if self.model.closed:
            with pytest.raises(errors.ClosedError):
                self.manager.ready_obs  # noqa: B018
        for _ in range(50):  # long enough for envs to end meanwhile, and to be reset
            if not self.model.closed:
                self.ready()

    def ready(self) -> list[int]:
        """What ``ready_obs`` shows, compared with what it may."""
        model = self.model
        resetting = [i for i, env in enumerate(model.envs) if env.state is RESET]
        sure = [i for i, env in enumerate(model.envs) if env.is_ready]
        can_come = model.through() or [i for i in resetting if not model.envs[i].is_held]
        if not sure and not can_come and resetting:
            self.let_through(resetting[0])
        result = self.attempt(lambda: self.manager.ready_obs)
        if result is None:
            return []
        shown = result[0]
        possible = {i for i in resetting if not model.envs[i].is_held and not model.envs[i].is_doomed}
        assert set(sure) <= set(shown) <= {*sure, *possible}
        if not shown:
            assert not sure
            assert not resetting or model.in_flight(), "there was something to wait for"
        for env_id, seen in shown.items():
            env = model.envs[env_id]
            if env.state is RESET:
                env.end_reset()
            self.same_observation(env_id, seen, env.elapsed)
        assert self.manager.ready_env == sorted(shown)
        return sorted(shown)

    # ---- reset ----

    @rule(
        asked=masks,
        anew=masks,
        fail=st.lists(numbers, **each),
        slow=st.lists(numbers, **each),
        everybody=st.integers(0, 4),
    )
    def reset(
        self, asked: list[bool], anew: list[bool], fail: list[list[int]], slow: list[list[int]], everybody: int
    ) -> None:
        model = self.model
        if model.closed:
            with pytest.raises(errors.ClosedError):
                self.manager.reset()
            return
        chosen = [i for i in range(N) if (asked[i] or everybody == 0) and not self.ends_into_trouble(model.envs[i])]
        given: dict[int, Any] = {}
        for env_id in chosen:
            self.settle(env_id)
            given[env_id] = None
            if anew[env_id]:
                waits = tuple(set(slow[env_id]) - set(fail[env_id])) if self.has_gates else ()
                model.envs[env_id].order = Order(next(self.orders), tuple(fail[env_id]), waits)
                given[env_id] = self.params(env_id)
        was_doomed = model.may_be_doomed()
        for env_id in chosen:
            model.envs[env_id].tries = 0
            model.envs[env_id].begin_reset(model.max_retry, is_automatic=False)
            if model.envs[env_id].is_held:
                self.let_through(env_id)
        if any(model.envs[i].is_doomed for i in chosen) or (was_doomed and self.kind == "serial"):
            with pytest.raises(EnvError, match="failed in reset"):
                self.manager.reset(given)
            self.is_closed()
            return
        if self.attempt(lambda: self.manager.reset(given)) is not None:
            for env_id in chosen:
                model.envs[env_id].end_reset()

    def ends_into_trouble(self, env: ModelEnv) -> bool:
        """Its action ends the episode, and the reset that may follow before ours is not a plain one."""
        number = env.resets[env.order.order] + 1
        return env.what == END and (number in env.order.fail or number in env.order.slow)

    def settle(self, env_id: int) -> None:
        """What an env has under way is over before its reset begins, and comes to nothing."""
        env = self.model.envs[env_id]
        self.let_through(env_id)
        if env.what == DIE:
            env.die()
        elif env.what == END:  # whether a reset ran in between is not told
            env.seeds.source = None
            env.order = Order(next(self.orders))
        if env.state is RESET and not env.is_doomed:
            env.end_reset()
        env.action = None

    # ---- seed ----

    @rule(asked=masks, first=st.integers(0, 50), dynamic=st.sampled_from([None, True, False]))
    def seed(self, asked: list[bool], first: int, dynamic: bool | None) -> None:
        given = {env_id: first + env_id for env_id in range(N) if asked[env_id]}
        if not given:
            return
        for env_id, seed in given.items():
            env = self.model.envs[env_id]
            old = env.seeds.dynamic
            new = old if dynamic is None else dynamic
            # Static seeds go with automatic resets, too, and that one may have been sent, or not.
            is_open = False in (old, new) and (env.what == END or env.state is RESET)
            env.seeds = Seeds(seed, new, True, is_open or env.seeds.is_open, env.seeds.source)
        self.manager.seed(given, dynamic_seed=dynamic)

    # ---- saved states ----

    def at_rest(self, asked: list[bool]) -> list[int]:
        """Envs that can be saved at once."""
        envs = enumerate([] if self.model.closed else self.model.envs)
        return [i for i, env in envs if asked[i] and env.action is None and env.state is not RESET and not env.is_lost]

    @rule(asked=masks)
    def save(self, asked: list[bool]) -> None:
        if chosen := self.at_rest(asked):
            for env_id, state in zip(chosen, self.manager.save(chosen), strict=True):
                self.saved[env_id] = state, copy.deepcopy(self.model.envs[env_id])

    @rule(asked=masks)
    def restore(self, asked: list[bool]) -> None:
        chosen = [i for i in self.at_rest(asked) if i in self.saved]
        states = [self.saved[i][0] for i in chosen]
        if chosen and self.attempt(lambda: self.manager.restore(states, chosen)) is not None:
            for env_id in chosen:
                self.model.envs[env_id] = copy.deepcopy(self.saved[env_id][1])

    # ---- gates ----

    @rule(then_look=st.booleans())
    def let_all_through(self, then_look: bool) -> None:
        for env_id in range(N):
            self.let_through(env_id)
        if then_look:
            self.look()

    @rule(env_id=st.integers(0, N - 1))
    def let_through(self, env_id: int) -> None:
        if self.model.envs[env_id].is_held:
            self.model.envs[env_id].is_held = False
            self.gate.open(env_id + N * (self.launches - 1))

    # ---- comparing ----

    def attempt(self, call: Callable[[], Any]) -> tuple[Any, list[EnvError]] | None:
        """What a call gave, and the failures that it told; None where a reset failed too often, which closes all."""
        could_close = self.model.may_be_doomed()
        batch, error = outcome(call)
        if not self.manager.closed:
            return batch, error.errors if error else []
        assert could_close, error
        assert "failed in reset" in str(error)
        self.is_closed()
        return None

    def same_observation(self, env_id: int, seen: np.ndarray, elapsed: int) -> None:
        env = self.model.envs[env_id]
        assert (seen[0], seen[2]) == (env_id, elapsed)
        assert env.seed is None or seen[1] == env.seed

    @invariant()
    def states_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        manager, model = self.manager, self.model
        manager._scheduler.check()
        assert manager.closed == model.closed
        found = manager.env_state
        for env_id, env in enumerate(model.envs):
            assert found[env_id] in model.possible_states(env)
            assert model.closed or manager.episode_count[env_id] in model.possible_counts(env)
        assert manager.active_env == [i for i in range(N) if found[i] is RUN]
        assert manager.env_done == [i for i in range(N) if found[i] is DONE]
        assert manager.done == manager.all_done == all(state is DONE for state in found.values())
        assert set(manager.ready_env) <= {i for i, env in enumerate(model.envs) if env.action is None}


@pytest.fixture
def checked_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """An env stands in exactly one place, and so on, after every move."""

    def checked(move: Callable[..., None]) -> Callable[..., None]:
        def make(self: Standings, *args: Any) -> None:
            move(self, *args)
            self.check()

        return make

    for name in ("drop", "note_sent", "note_arrival", "hand_over"):
        monkeypatch.setattr(Standings, name, checked(getattr(Standings, name)))


@pytest.mark.usefixtures("impatient", "checked_moves")
@pytest.mark.parametrize(("kind", "examples"), [("serial", 60), ("sync", 15), ("async", 30)])
def test_a_manager_does_what_the_model_does(kind: str, examples: int) -> None:
    run_state_machine_as_test(
        type("Machine", (ManagerMachine,), {"kind": kind}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # a failure that hangs on who comes first is not to be made smaller
            suppress_health_check=list(HealthCheck),
        ),
    )
