"""DI-engine finds our managers, and its configurations are made of what they say of themselves."""

import subprocess
import sys
from math import inf

import pytest
from ding.config import compile_config
from ding.envs import create_env_manager, get_env_manager_cls
from ding.utils import ENV_MANAGER_REGISTRY
from ding_envs import Count
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config
from easydict import EasyDict

from stepmill.errors import ConfigError
from stepmill.interop.ding import MANAGERS, replace_managers

NAMES = [f"stepmill_{name}" for name in MANAGERS]


def run(code):
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()


def test_a_configuration_finds_them_by_itself():
    code = """
from ding.envs import get_env_manager_cls
from easydict import EasyDict
print(get_env_manager_cls(EasyDict(type="stepmill_subprocess_v2", import_names=["stepmill.interop.ding"])).__name__)
"""
    assert run(code)[-1] == "DingSubprocessEnvManagerV2"


def test_nothing_of_ding_is_imported_before():
    code = """
import sys, stepmill, stepmill.managers, stepmill.envs.adapters.ding, stepmill.interop
print(any(name in sys.modules for name in ("ding", "gym", "treetensor", "torch")))
"""
    assert run(code)[-1] == "False"


def test_workers_do_without_ding():
    code = """
import sys, gymnasium
import stepmill.interop.ding as interop

class Watch(gymnasium.Wrapper):
    @property
    def has_ding(self):
        return "ding" in sys.modules

manager = interop.DingSubprocessEnvManager([lambda: Watch(gymnasium.make("CartPole-v1"))])
manager.launch()
print(manager.has_ding)
manager.close()
"""
    assert run(code)[-1] == "[False]"


@pytest.mark.parametrize("name", NAMES)
def test_defaults_can_be_written_as_python(name):
    defaults = get_env_manager_cls(EasyDict(type=name)).default_config()
    assert isinstance(defaults, EasyDict)
    assert eval(str(dict(defaults)), {"inf": inf}) == dict(defaults)
    assert defaults.auto_reset is True
    assert defaults.cfg_type == type(create_env_manager(EasyDict(type=name), [Count])).__name__ + "Dict"


def test_defaults_are_the_callers_own():
    cls = MANAGERS["base"]
    cls.default_config().max_retry = 7
    assert cls.default_config().max_retry == 1


def test_compile_config_merges_and_saves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main, create = EasyDict(main_config), EasyDict(create_config)
    main.exp_name = "run"
    main.env.manager = {"max_retry": 3}
    create.env_manager = {"type": "stepmill_subprocess", "import_names": ["stepmill.interop.ding"]}
    cfg = compile_config(main, seed=0, create_cfg=create, auto=True, save_cfg=True)
    assert cfg.env.manager.max_retry == 3
    assert cfg.env.manager.wait_num == inf
    assert "DingSubprocessEnvManagerDict" in (tmp_path / "run" / "total_config.py").read_text()
    with create_env_manager(cfg.env.manager, [Count] * 2) as manager:
        assert manager._settings.max_retry == 3


def test_keys_of_other_managers_are_passed_over(recwarn):
    create_env_manager(EasyDict(type="stepmill_base", shared_memory=False, connect_timeout=5), [Count])
    assert not [one for one in recwarn if "stepmill" in str(one.filename)]


def test_a_key_that_no_manager_has_is_warned_of():
    with pytest.warns(UserWarning, match="max_retries.*have no effect"):
        create_env_manager(EasyDict(type="stepmill_base", max_retries=5), [Count])


@pytest.mark.parametrize("name", ["stepmill_base", "stepmill_base_v2"])
@pytest.mark.parametrize("key", ["step_timeout", "reset_timeout"])
def test_a_deadline_that_nobody_can_keep_is_warned_of(name, key):
    with pytest.warns(UserWarning, match=f"{key} has no effect.*stepmill_subprocess"):
        manager = create_env_manager(EasyDict(type=name, **{key: 5}), [Count])
    manager.launch()
    assert manager.closed is False
    manager.close()


def test_what_is_wrong_with_a_configuration_is_shown():
    with pytest.raises(ConfigError, match=r"retry_type.*reset.*renew.*again"):
        create_env_manager(EasyDict(type="stepmill_base", retry_type="again"), [Count])
    with pytest.raises(ConfigError, match="env_fn"):
        create_env_manager(EasyDict(type="stepmill_base"), [])


def test_they_can_take_the_place_of_dings_own():
    before = replace_managers()
    try:
        assert {name: ENV_MANAGER_REGISTRY[name] for name in MANAGERS} == MANAGERS
        assert before["subprocess"].__module__.startswith("ding.")
    finally:
        ENV_MANAGER_REGISTRY.update(before)
    assert ENV_MANAGER_REGISTRY["base"].__module__.startswith("ding.")
