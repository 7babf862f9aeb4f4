"""What cannot be is refused inside a deadline, in words that say what to do."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill import errors
from support.envs.remote import Teller
from support.on_ray import make_on_ray
from support.ray_cluster import python_path

pytest.importorskip("ray", reason="ray is not installed: make test-ray")
pytestmark = [
    pytest.mark.usefixtures("deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
on_cluster = pytest.mark.usefixtures("cluster")
HERE = Path(stepmill.__file__).parent

ALONE = """
import stepmill
try:
    stepmill.make("CartPole-v1", num_envs=2, backend=stepmill.Ray({options}), start_timeout=5)
except stepmill.errors.StepmillError as error:
    print(type(error).__name__, error)
"""


def alone(options: str, **environ: str) -> str:
    """What a program says that is in no cluster yet."""
    without = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    program = [sys.executable, "-c", ALONE.format(options=options)]
    return subprocess.run(
        program, env={**without, **environ}, capture_output=True, text=True, timeout=100, check=True
    ).stdout


def test_no_cluster_at_the_address() -> None:
    with socket.socket() as one:  # it is bound, and does not listen
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
        said = alone(f"address='{address}'")
        assert said.startswith(f"ResourceError address: no Ray cluster answers at {address}: ConnectionRefusedError")
        assert "ray start --head" in said
        assert f"at {address}" in alone("", RAY_ADDRESS=address)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a web server does"),  # Ray's dashboard
        (b"220 mail.example.org\r\n", "something else does"),
        (b"", "something else does"),  # it hangs up
        (None, "something takes connections there, and says nothing"),
    ],
)
def test_something_else_at_the_address(answer: bytes | None, found: str) -> None:
    """Ray itself would wait forever."""
    is_over = threading.Event()

    class Stranger(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if answer is None:
                is_over.wait()
            else:
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            address = f"127.0.0.1:{server.server_address[1]}"
            said = alone(f"address='{address}'")
            told_by_environment = alone("address='auto'", RAY_ADDRESS=address)
        finally:
            is_over.set()
            server.shutdown()
    assert said.startswith(f"ResourceError address: no Ray cluster answers at {address}: {found}")
    assert "6379" in said
    assert "8265 is that of the dashboard" in said
    assert told_by_environment == said


STARTS = """
import numpy as np, ray, stepmill
with stepmill.make("CartPole-v1", num_envs=2, backend=stepmill.Ray({options}), start_timeout=500) as pool:
    pool.reset()
    pool.step(np.zeros(2, int))
    print(ray.get_runtime_context().gcs_address)
"""


@on_cluster
@pytest.mark.parametrize("where", ["new", "address", "auto"])
def test_a_program_joins_a_cluster_or_starts_one(cluster: Any, where: str) -> None:
    there = cluster.address
    options = {"new": "", "address": f"address='{there}'", "auto": "address='auto'"}[where]
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": "" if where == "new" else there}
    program = [sys.executable, "-W", "ignore", "-c", STARTS.format(options=options)]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short path, where no program has left word of a cluster
        environ["RAY_TMPDIR"] = folder
        said = subprocess.run(program, env=environ, capture_output=True, text=True, timeout=550)
    assert said.returncode == 0, said.stderr
    assert (said.stdout.strip() == there) == (where != "new")


@on_cluster
def test_another_service_of_ray_at_the_address(cluster: Any) -> None:
    import ray

    node = ray.nodes()[0]
    address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
    said = alone(f"address='{address}'", RAY_AUTH_MODE="disabled")
    assert said.startswith(f"ResourceError address: no Ray cluster answers at {address}: another service does")


ALL_ONES = """
import os, subprocess, sys
import ray, stepmill
def make(**options):
    return stepmill.make("CartPole-v1", num_envs=2, backend=stepmill.Ray(**options), start_timeout=500)
address = sys.argv[1]
if address == "local":
    ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="WARNING")
first = make(address=address)
first.reset()
if address == "local":
    with make(address="local", resources={"CPU": 0}) as second:
        second.reset()
    first.close()
    found = ray.get_runtime_context().gcs_address
    for token in (os.environ["RAY_AUTH_TOKEN"], "another" * 8):
        environ = {**os.environ, "RAY_AUTH_TOKEN": token}
        program = [sys.executable, "-W", "ignore", "-c", ALL_ONES, found]
        said = subprocess.run(program, env=environ, capture_output=True, text=True)
        print(said.returncode, said.stderr)
"""


@pytest.fixture(scope="module")
def of_its_own() -> str:
    """What a program says that starts a cluster with a token, makes pools there, and lets other programs in."""
    environ = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "nobody_knows" * 4, "RAY_ADDRESS": ""}
    program = f"ALL_ONES = {ALL_ONES!r}\n{ALL_ONES}"
    run = [sys.executable, "-W", "ignore", "-c", program, "local"]
    said = subprocess.run(run, env=environ, capture_output=True, text=True, timeout=550)
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_local_is_the_cluster_that_this_process_has_started(of_its_own: str) -> None:
    """The second pool of a program may say the same as the first, and finds room if it takes no CPUs."""
    assert of_its_own


def test_a_cluster_with_a_token(of_its_own: str) -> None:
    with_token, _, without = of_its_own.partition("\n1 ")
    assert with_token.startswith("0 ")
    assert "ResourceError: address: the Ray cluster at " in without
    assert "refuses this process: AuthenticationError" in without
    assert "token is missing or incorrect" in without


@on_cluster
def test_local_is_no_cluster_that_others_have_started() -> None:
    with pytest.raises(errors.UsageError, match="cannot be in the one at local too"):
        make_on_ray("CartPole-v1", 1, address="local")


@pytest.mark.parametrize("address", ["here", "host:", "host:0", "host:port", "host:99999", ":"])
def test_what_is_no_address(address: str) -> None:
    said = alone(f"address='{address}'")
    assert said.startswith("ConfigError address: expected 'host:port', 'auto' or 'local', got")


def test_rays_client_is_refused() -> None:
    said = alone("address='ray://127.0.0.1:10001'")
    assert said.startswith("UnsupportedError address: expected 'host:port', 'auto' or 'local', got 'ray://127")
    assert "ray job submit" in said
    assert alone("", RAY_ADDRESS="ray://127.0.0.1:10001") == said


@on_cluster
def test_one_cluster_at_a_time(cluster: Any) -> None:
    with pytest.raises(errors.UsageError, match=f"this process is in the Ray cluster at {cluster.address}"):
        make_on_ray("CartPole-v1", 1, address="127.0.0.1:1")
    with make_on_ray("CartPole-v1", 1, address=cluster.address) as pool:
        pool.reset()


@on_cluster
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_cluster_has_several_names(cluster: Any, name: str) -> None:
    """A second pool takes the address that the first one took, of which Ray has made a number."""
    make_on_ray("CartPole-v1", 1, address=f"{name}:{cluster.address.rpartition(':')[2]}").close()


FORKS = """
import gc, os, sys
import numpy as np, ray, stepmill
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
pool = stepmill.make("CartPole-v1", num_envs=2, backend=stepmill.Ray(num_actors=1), num_threads=1)
pool.reset()
for closes in (True, False):
    if not (child := os.fork()):
        if closes:
            pool.close()
        del pool
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    pool.step(np.zeros(2, int))
    pool.step(np.zeros(2, int))
print("good")
"""


@on_cluster
def test_a_forked_child_ends_nothing(cluster: Any) -> None:
    """Ray's handles would end the actors when they go."""
    program = [sys.executable, "-W", "ignore", "-c", FORKS, cluster.address]
    assert subprocess.run(program, capture_output=True, text=True, timeout=600).stdout == "good\n"


LEAVES = """
import sys
import numpy as np, ray, stepmill
def join():
    size = {"num_cpus": 1, "include_dashboard": False} if sys.argv[1] == "local" else {}
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False, logging_level="WARNING", **size)
def say(call):
    try:
        call()
    except stepmill.errors.UsageError as error:
        print(error)
join()
pool = stepmill.make("CartPole-v1", num_envs=2, backend=stepmill.Ray(num_actors=1), num_threads=1)
pool.reset()
ray.shutdown()
say(lambda: pool.rollout(lambda *_: np.zeros(2, int), 2, observation=np.zeros((2, 4), np.float32)))
say(pool.stats)
say(lambda: pool.step(np.zeros(2, int)))
assert not ray.is_initialized()
join()
say(lambda: pool.get_attr("np_random"))
pool.close()
"""


@on_cluster
@pytest.mark.parametrize("where", ["there", "local"])
def test_a_program_that_leaves_the_cluster_is_told(cluster: Any, where: str) -> None:
    """Ray by itself would start another cluster, and wait there. Two local ones both call this process their first."""
    program = [sys.executable, "-W", "ignore", "-c", LEAVES, "local" if where == "local" else cluster.address]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == 4
    assert all(one.startswith("this process has left the Ray cluster") for one in said)


@on_cluster
def test_a_factory_that_cannot_be_pickled() -> None:
    lock = threading.Lock()

    def factory() -> Any:
        return lock

    with pytest.raises(errors.ConfigError, match=r"the factory of env 0 .* cannot be sent .*TypeError"):
        make_on_ray(factory, 1)


@on_cluster
def test_another_version_on_a_node(tmp_path: Path) -> None:
    shutil.copytree(HERE, tmp_path / "stepmill", ignore=shutil.ignore_patterns("__pycache__"))
    version = tmp_path / "stepmill" / "_version.py"
    version.write_text(version.read_text().replace(f'"{stepmill.__version__}"', '"0.0.9"'))
    with pytest.raises(errors.ResourceError, match=rf"has stepmill 0\.0\.9, and the caller {stepmill.__version__}"):
        make_on_ray("CartPole-v1", 1, runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}})


@on_cluster
def test_no_stepmill_on_a_node(tmp_path: Path) -> None:
    (tmp_path / "stepmill").mkdir()
    (tmp_path / "stepmill" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'stepmill'\")")
    with pytest.raises(errors.WorkerDiedError, match="No module named 'stepmill'"):
        make_on_ray("CartPole-v1", 1, runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}})


@on_cluster
def test_a_module_that_a_node_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("from support.envs.remote import Teller\nclass Mine(Teller): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(errors.MissingPackageError, match=r"no module 'only_here'.*working_dir"):
        make_on_ray(__import__("only_here").Mine, 1)


@on_cluster
def test_a_runtime_env_gives_actors_more() -> None:
    where = {"env_vars": {"PYTHONPATH": python_path(), "MEADOW": "green"}}
    with make_on_ray(Teller, 1, runtime_env=where) as pool:
        assert pool.call("variable", "MEADOW") == ("green",)


@on_cluster
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resources": {"GPU": 1.5}}, "must.*be whole numbers"),
        ({"resources": {"thing": 1e-5}}, "cannot go beyond"),
        ({"runtime_env": {"pip": 3}}, "must be of type"),
    ],
)
def test_what_only_ray_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ConfigError, match=rf"resources or runtime_env: Ray refuses them: .*{message}"):
        make_on_ray("CartPole-v1", 1, num_envs=2, **arguments)


@on_cluster
def test_a_client_of_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
    with pytest.raises(errors.UnsupportedError, match=r"through Ray's client \(ray://\)"):
        make_on_ray("CartPole-v1", 1, num_envs=2)


@pytest.mark.parametrize("arguments", [{"python": sys.prefix}, {"env_config": [{"python": sys.prefix}]}])
def test_other_interpreters_are_rays_own_business(arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.UnsupportedError, match=r"Ray\(runtime_env=...\) says which packages"):
        stepmill.make("CartPole-v1", backend="ray", **arguments)
