"""The cluster files that docs/ray.md offers: those of the page, valid for Ray and KubeRay, with versions that fit."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

import stepmill

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "ray"
PAGE = (ROOT / "docs" / "ray.md").read_text(encoding="utf-8")
FILES = sorted(FOLDER.iterdir())
SCHEMAS = ROOT / "tests" / "support" / "schemas"

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install 'stepmill[test]'")
yaml = pytest.importorskip("yaml", reason="pyyaml is not installed: pip install 'stepmill[test]'")


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def misfits(config: Any, schema: Any) -> list[str]:
    jsonschema.Draft7Validator.check_schema(schema)
    return [error.json_path for error in jsonschema.Draft7Validator(schema).iter_errors(config)]


@pytest.fixture(scope="module")
def rays_schema() -> Any:
    """Ray's own, in its package."""
    autoscaler = pytest.importorskip("ray.autoscaler", reason="ray is not installed: make test-ray")
    return json.loads((Path(autoscaler.__file__).parent / "ray-schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def kuberays_schema() -> Any:
    return json.loads((SCHEMAS / "kuberay_raycluster.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_page_shows_the_file(path: Path) -> None:
    assert path.read_text(encoding="utf-8") in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert f"](ray/{path.name})" in PAGE


def test_the_page_says_where_they_were_not_run() -> None:
    assert {path.name for path in FILES} == {"cluster.yaml", "kuberay.yaml"}
    assert "not run on a cloud" in PAGE


def test_the_cluster_file_fits_rays_schema(rays_schema: Any) -> None:
    config = read("cluster.yaml")
    assert misfits(config, rays_schema) == []
    assert misfits({**config, "docker": {"picture": "ray"}}, rays_schema) == ["$.docker"]  # it does look


def test_ray_itself_accepts_the_cluster_file() -> None:
    """With its defaults, as ``ray up`` fills them in: sums of workers, names of node types."""
    util = pytest.importorskip("ray.autoscaler._private.util", reason="ray is not installed: make test-ray")
    config = util.prepare_config(copy.deepcopy(read("cluster.yaml")))
    util.validate_config(config)
    assert config["available_node_types"]["envs"]["min_workers"] == 2
    broken = copy.deepcopy(config)
    broken["head_node_type"] = "nobody"
    with pytest.raises(ValueError, match="head_node_type"):
        util.validate_config(broken)


def test_the_kuberay_file_fits_its_schema(kuberays_schema: Any) -> None:
    config = read("kuberay.yaml")
    assert misfits(config, kuberays_schema) == []
    for path, broken in {
        "$.spec.headGroupSpec.rayStartParams['num-cpus']": {"rayStartParams": {"num-cpus": 0}},
        "$.spec.headGroupSpec": {"rayStartParam": {}},
        "$.spec.headGroupSpec.serviceType": {"serviceType": "Public"},
    }.items():
        other = copy.deepcopy(config)
        other["spec"]["headGroupSpec"].update(broken)
        assert [one.replace('"', "'") for one in misfits(other, kuberays_schema)] == [path]


def test_versions_fit() -> None:
    """The same stepmill everywhere, and the Ray of the image is the one that is named."""
    cluster, kuberay = (FOLDER / name for name in ("cluster.yaml", "kuberay.yaml"))
    assert f'"stepmill[ray]=={stepmill.__version__}"' in cluster.read_text(encoding="utf-8")
    assert set(re.findall(r"stepmill-ray:(\S+)", kuberay.read_text(encoding="utf-8"))) == {stepmill.__version__}
    spec = read("kuberay.yaml")["spec"]
    assert read("cluster.yaml")["docker"]["image"] == f"rayproject/ray:{spec['rayVersion']}-py312"
    assert f"FROM rayproject/ray:{spec['rayVersion']}-py312" in PAGE


def test_no_envs_on_the_node_of_the_driver() -> None:
    assert read("cluster.yaml")["available_node_types"]["driver"]["resources"] == {"CPU": 0}
    assert read("kuberay.yaml")["spec"]["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}


def test_a_token_is_asked_for() -> None:
    cluster = read("cluster.yaml")
    assert "--env RAY_AUTH_MODE=token" in cluster["docker"]["run_options"]
    assert cluster["file_mounts"] == {"/home/ray/.ray/auth_token": "~/.ray/auth_token"}
    assert cluster["provider"]["use_internal_ips"] is True
    assert read("kuberay.yaml")["spec"]["authOptions"] == {"mode": "token"}
