# SPDX-License-Identifier: Apache-2.0
"""The chart as the tests see it: Helm's releases, and what they render."""

import functools
import os
import pathlib
import subprocess
from typing import Any

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "charts/ferry"
SAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))

Object = dict[str, Any]


def helms() -> dict[str, pathlib.Path]:
    """Version -> executable, of what scripts/lib/helm says ($FERRY_HELMS, a line "VERSION FOLDER" each)."""
    lines = [line.split(maxsplit=1) for line in os.environ["FERRY_HELMS"].splitlines()]
    return {version: pathlib.Path(folder) / "helm" for version, folder in lines}


def newest() -> pathlib.Path:
    return helms()[max(helms(), key=lambda version: [int(part) for part in version.split(".")])]


def with_image(values: Any) -> Any:
    """The values, and an image, without which the chart does not render."""
    return {**(values or {}), "image": {"repository": "ferry", **((values or {}).get("image") or {})}}


def run(helm: pathlib.Path, *words: str, values: Any = None) -> subprocess.CompletedProcess[str]:
    """`values` go to its standard input."""
    more = [] if values is None else ["--values", "-"]
    return subprocess.run([str(helm), *words, *more], input=None if values is None else yaml.safe_dump(values),
                          capture_output=True, text=True, check=False)


@functools.cache
def _rendered(helm: pathlib.Path, values: str, kube_version: str, space: str) -> str:
    done = run(helm, "template", "ferry", str(CHART), "--namespace", space, "--kube-version", kube_version,
               values=yaml.safe_load(values))
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def render_all(values: Any = None, kube_version: str = "1.36.0", helm: pathlib.Path | None = None,
               space: str = "gpus") -> list[Object]:
    """With those that Helm makes for a moment."""
    text = _rendered(helm or newest(), yaml.safe_dump(with_image(values)), kube_version, space)
    return [document for document in yaml.safe_load_all(text) if document]


def is_hook(one: Object) -> bool:
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def render(values: Any = None, kube_version: str = "1.36.0", helm: pathlib.Path | None = None,
           space: str = "gpus") -> list[Object]:
    return [one for one in render_all(values, kube_version, helm, space) if not is_hook(one)]


def hooks(values: Any = None, event: str = "pre-delete") -> dict[str, Object]:
    """Kind -> the one that Helm makes for a moment, at that event."""
    found = [one for one in render_all(values) if is_hook(one) and one["metadata"]["annotations"]["helm.sh/hook"] == event]
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


def sample(file: pathlib.Path) -> Any:
    return yaml.safe_load(file.read_text())


def paths(values: Any) -> dict[str, Any]:
    """The paths of the nodes with these values."""
    known = sample(CHART / "files/distributions.yaml")
    given = {key: path for key, path in ((values or {}).get("hostPaths") or {}).items() if path not in ("", None)}
    return {**known["usual"], **known.get((values or {}).get("distribution") or "usual", {}), **given}


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [one for one in objects if one["kind"] == kind]


def daemon_sets(objects: list[Object]) -> dict[str, Object]:
    """The DaemonSets by the component of their pods: agent, plugin, node (hostd's), and dra with `dra.enabled`."""
    return {one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one
            for one in of_kind(objects, "DaemonSet")}


def pod_of(objects: list[Object], component: str = "node") -> Object:
    """The template of the pod of hostd, or of another component."""
    template: Object = daemon_sets(objects)[component]["spec"]["template"]
    return template


def component_of(container: str) -> str:
    """The component whose pod has the container."""
    return "node" if container == "hostd" else container


def volumes_of(objects: list[Object], container: str) -> dict[str, Object]:
    """The volumes by name, of the pod that has the container."""
    pod = pod_of(objects, component_of(container))
    return {one["name"]: one for one in pod["spec"]["volumes"]}


def containers_of(objects: list[Object]) -> dict[str, Object]:
    """The containers of all pods, by name."""
    return {one["name"]: one for component in daemon_sets(objects)
            for one in pod_of(objects, component)["spec"]["containers"]}
