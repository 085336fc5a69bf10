# SPDX-License-Identifier: Apache-2.0
"""A node that Ferry keeps, as an administrator would have it: agent, hostd and plugin on a host whose GPUs can be bound
(living_host.py), the agent under its own service account; NVIDIA's validator beside them, as a DaemonSet of its name.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from .kubernetes import API_SERVER, AUDITED, IMAGE, NODE, Kubernetes
from .living_host import LivingHost
from .programs import Program, wait_until

ACCOUNT = "ferry"
OPERATOR = "gpu-operator"
VALIDATOR = "nvidia-sandbox-validator"
WORKLOAD = "nvidia.com/gpu.workload.config"
VGPU_CONFIG, VGPU_STATE = "nvidia.com/vgpu.config", "nvidia.com/vgpu.config.state"
POLICY, STATE = "gpu-ferry.io/policy", "gpu-ferry.io/state"
OPERAND = "nvidia.com/gpu.deploy.sandbox-validator"
PAUSED = "paused-for-gpu-ferry"
ERROR = "gpu-ferry.io/last-error"
EVICTIONS = "ferry-evictions"

# The keys are the names of their ConfigMaps.
CONFIGURATIONS = {
    "ferry-vgpu-profiles": """version: v1
vgpu-configs:
  default:
  - {devices: all, device-filter: "0x1EB810DE", vgpu-devices: {"T4-8Q": 2}}
  render-mix:
  - {devices: all, device-filter: "0x1EB810DE", vgpu-devices: {"T4-4Q": 3}}
""",
    "ferry-policies": """version: v2
policies:
  mixed:
  - {devices: all, mode: host}
  - {model: "*T4*", mode: passthrough}
""",
}


VGPU_DEVICE_MANAGER = "nvidia-k8s-vgpu-dm"
_OF_IT = {"subjects": [{"kind": "ServiceAccount", "name": VGPU_DEVICE_MANAGER, "namespace": OPERATOR}]}
_RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1"}
_SPACED = {"metadata": {"name": VGPU_DEVICE_MANAGER, "namespace": OPERATOR}}
_GLOBAL = {"metadata": {"name": VGPU_DEVICE_MANAGER}}
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "name": VGPU_DEVICE_MANAGER}
VGPU_DEVICE_MANAGER_RIGHTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", **_SPACED},
    {**_RBAC, "kind": "ClusterRole", **_GLOBAL, "rules": [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update", "patch"]}]},
    {**_RBAC, "kind": "ClusterRoleBinding", **_GLOBAL, "roleRef": {**_ROLE, "kind": "ClusterRole"}, **_OF_IT},
    {**_RBAC, "kind": "Role", **_SPACED, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]},
    {**_RBAC, "kind": "RoleBinding", **_SPACED, "roleRef": {**_ROLE, "kind": "Role"}, **_OF_IT}]


def daemon_set(name: str, selector: dict[str, str]) -> dict[str, Any]:
    """A DaemonSet of the operator, with a pod that does nothing."""
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": OPERATOR},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"hostNetwork": True, "nodeSelector": selector, "terminationGracePeriodSeconds": 1,
                         "automountServiceAccountToken": False, "containers": [{
                             "name": "c", "image": IMAGE, "imagePullPolicy": "Never",
                             "command": ["sh", "-c", "trap exit TERM; sleep infinity & wait"]}]}}}}


class NodeWatch:
    """The labels and annotations of the Node as a watching kubectl prints them, each state once."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._seen: list[dict[str, str]] = []
        self._version = 0  # of the Node that was seen last
        self._kubectl = subprocess.Popen(
            [*kubernetes.kubectl_command(), "get", "node", NODE, "--watch", "-o", "json"], stdout=subprocess.PIPE,
            text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        wait_until("kubectl watches", lambda: self._seen, 60)

    def _read(self) -> None:
        assert self._kubectl.stdout
        text = ""
        for line in self._kubectl.stdout:
            text += line
            if line != "}\n":
                continue
            metadata, text = json.loads(text)["metadata"], ""
            found = metadata["labels"] | metadata.get("annotations", {})
            now = {key: value for key, value in found.items() if "kubernetes.io" not in key}
            if not self._seen or self._seen[-1] != now:
                self._seen.append(now)
            self._version = int(metadata["resourceVersion"])

    def values(self, key: str) -> list[str]:
        """The values of a label, in order; "" if it was absent."""
        out: list[str] = []
        for seen in list(self._seen):
            value = seen.get(key, "")
            if not out or out[-1] != value:
                out.append(value)
        return out

    def catch_up(self) -> None:
        """Waits until kubectl has printed the present Node: kubectl reports it a moment later."""
        expected = int(self._kubernetes.get("node", NODE)["metadata"]["resourceVersion"])
        wait_until(f"kubectl, which watches, shows version {expected} of the Node", lambda: self._version >= expected, 60)

    def end(self) -> None:
        self._kubectl.terminate()
        self._kubectl.wait()
        self._thread.join()


class FerryNode:
    def __init__(self) -> None:
        folder = pathlib.Path(os.environ["CLUSTER_FOLDER"])
        programs = os.environ["CLUSTER_BIN"]
        self.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"])
        logs = self.kubernetes.logs
        self.host = LivingHost(folder / "host", logs, f"{programs}/kernel-standin")
        self.hostd = Program(logs, f"{programs}/ferry", "--host-root", str(self.host.root), "hostd", "--validations",
                             name="hostd")
        self.plugin = Program(logs, f"{programs}/ferry", "--host-root", str(self.host.root), "plugin", name="plugin")
        self._agent = [f"{programs}/ferry-agent", "--host-root", str(self.host.root), "--node-name", NODE,
                       "--default-workload", "container", *[f"--config-map={name}" for name in CONFIGURATIONS]]
        self.agent = self.agent_at(API_SERVER)

    def agent_at(self, server: str, *options: str) -> Program:
        """The agent's start as in a pod: the server from its environment, credentials from files."""
        address, port = server.removeprefix("https://").split(":")
        return Program(self.kubernetes.logs, *self._agent, *options, environment={
            "KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": port, "POD_NAMESPACE": AUDITED,
            "KUBECONFIG": ""})

    @contextlib.contextmanager
    def draining(self) -> Iterator[None]:
        """Meanwhile the agent is one that may evict pods, and does."""
        kubectl, former = self.kubernetes.kubectl, self.agent
        kubectl("create", "clusterrole", EVICTIONS, "--verb=create,get",
                "--resource=pods/eviction,daemonsets.apps")
        kubectl("create", "clusterrolebinding", EVICTIONS, f"--clusterrole={EVICTIONS}",
                f"--serviceaccount={AUDITED}:{ACCOUNT}")
        former.stop()
        self.agent = self.agent_at(API_SERVER, "--drain", "--drain-timeout=5m")
        self.agent.start()
        try:
            yield
        finally:
            self.agent.stop()
            self.agent = former
            former.start()
            for kind in ("clusterrole", "clusterrolebinding"):
                kubectl("delete", kind, EVICTIONS)

    def vgpu_device_manager(self) -> Program:
        """ferry under the name of NVIDIA's program: half of what that is told by flags, half by its environment. In its
        namespace, with the rights that it has, and `patch` of nodes."""
        self.kubernetes.apply(*VGPU_DEVICE_MANAGER_RIGHTS)
        self.kubernetes.add_user(VGPU_DEVICE_MANAGER, self.kubernetes.token_of(OPERATOR, VGPU_DEVICE_MANAGER))
        folder = self.kubernetes.logs.parent / "vgpu-config"
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(CONFIGURATIONS["ferry-vgpu-profiles"])
        program = folder / VGPU_DEVICE_MANAGER
        program.symlink_to(os.path.join(os.environ["CLUSTER_BIN"], "ferry"))
        return Program(
            self.kubernetes.logs, str(program), "-ns", OPERATOR, "--default-vgpu-config=default", "-m",
            str(self.host.root), environment={
                "KUBECONFIG": str(self.kubernetes.kubeconfig(VGPU_DEVICE_MANAGER)), "NODE_NAME": NODE,
                "CONFIG_FILE": str(folder / "config.yaml"), "NAMESPACE": "is-said-by-a-flag"})

    def start(self) -> None:
        begin = time.monotonic()
        self.host.start()
        self.kubernetes.start()
        for space in (AUDITED, OPERATOR):
            self.kubernetes.kubectl("create", "namespace", space)
        self.kubernetes.kubectl("create", "-f", str(pathlib.Path(__file__).parents[2] / "agent-rights.yaml"))
        self.configure()
        self.kubernetes.apply(daemon_set(VALIDATOR, {OPERAND: "true"}))
        self._give_credentials()
        self.label(OPERAND, "true")
        for program in (self.plugin, self.hostd, self.agent):
            program.start()
        self.wait_for(STATE, "ready")
        wait_until("the validator's pod runs", self.validator_runs, 180)
        print(f"the node is as desired after {time.monotonic() - begin:.0f} s")

    def stop(self) -> None:
        for program in (self.agent, self.hostd, self.plugin, self.host.kernel):
            if program.runs:
                program.stop()

    def _give_credentials(self) -> None:
        folder = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
        folder.mkdir(parents=True)
        (folder / "token").write_text(self.kubernetes.token_of(AUDITED, ACCOUNT))
        (folder / "ca.crt").write_text(self.kubernetes.authority.read_text())
        (folder / "namespace").write_text(AUDITED)

    # --- what people do ----------------------------------------------------------------------------------------------

    def configure(self, others: dict[str, str] | None = None) -> None:
        """The configurations as above, but for those that are given."""
        self.kubernetes.apply(*[{
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": AUDITED},
            "data": {"config.yaml": (others or {}).get(name, text)}} for name, text in CONFIGURATIONS.items()])

    def label(self, key: str, value: str = "") -> None:
        """Without a value: takes it off."""
        self.kubernetes.kubectl("label", "node", NODE, "--overwrite", f"{key}={value}" if value else f"{key}-")

    # --- what is to be seen ------------------------------------------------------------------------------------------

    def metadata(self) -> Any:
        return self.kubernetes.node()["metadata"]

    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.metadata()["labels"]
        return found

    def annotation(self) -> str:
        return str(self.metadata().get("annotations", {}).get(ERROR, ""))

    def wait_for(self, key: str, value: str, seconds: float = 60) -> None:
        wait_until(f"label {key} is {value}", lambda: self.labels().get(key) == value, seconds)

    def wait_until_is(self, *drivers: str) -> None:
        """Waits for the end of a change: the host is as desired, the cluster reports it, and no pod is kept off."""

        def all_is_well() -> bool:
            labels = self.labels()
            return (self.host.drivers() == drivers and labels.get(STATE) == "ready"
                    and labels.get(OPERAND) == "true" and not self.annotation())
        try:
            wait_until(f"the drivers are {drivers} and all say so", all_is_well, 180)
        except Exception:
            print(self.host.drivers(), self.labels(), self.annotation())
            raise
        wait_until("the validator's pod runs", self.validator_runs, 180)

    def desired(self) -> Any:
        """The desired state that hostd reads."""
        return json.loads((self.host.root / "var/lib/ferry/desired.json").read_text())

    def refused_evictions(self) -> int:
        """How often a budget has forbidden one to the agent."""
        return sum(request["objectRef"].get("subresource") == "eviction"
                   and request.get("responseStatus", {}).get("code") == 429 for request in self.kubernetes.requests())

    def validator_runs(self) -> bool:
        pods = self.kubernetes.read(f"namespaces/{OPERATOR}/pods?labelSelector=app%3D{VALIDATOR}")["items"]
        return [pod["status"]["phase"] for pod in pods if "deletionTimestamp" not in pod["metadata"]] == ["Running"]

    def events(self) -> Counter[tuple[str, str]]:
        """How often Ferry has recorded an event of the Node: (reason, message)."""
        found = self.kubernetes.get("events", "-n", "default", "--field-selector", f"involvedObject.name={NODE}")["items"]
        out: Counter[tuple[str, str]] = Counter()
        for event in found:
            if event["source"].get("component") == "ferry":
                out[event["reason"], event["message"]] += event["count"]  # an agent that has restarted begins anew
        return out

    def wait_until_recorded(self, reason: str, *parts: str, after: Counter[tuple[str, str]], times: int = 1) -> None:
        """Since then, in messages that hold these parts; a moment later than the labels, at times."""
        wait_until(f"{times} events {reason} with {parts}", lambda: times <= sum(
            count for (found, message), count in (self.events() - after).items()
            if found == reason and all(part in message for part in parts)), 30)

    # --- moments that last -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def halted(self, program: Program) -> Iterator[None]:
        """It does nothing, unless it is killed and started meanwhile."""
        before = program.pid
        program.send(signal.SIGSTOP)
        try:
            yield
        finally:
            if program.runs and program.pid == before:
                program.send(signal.SIGCONT)

    @contextlib.contextmanager
    def held_in(self, phase: str, change: Callable[[], None]) -> Iterator[None]:
        """Makes the change, and has the node stay in that phase of it. While it is `applying`, the node waits for the
        plugin (`withdrawing`) or for a driver (`changing`)."""
        holds = {"pending": lambda: self.halted(self.hostd), "withdrawing": lambda: self.halted(self.plugin),
                 "changing": self.host.slow_driver}
        with holds[phase]() if phase in holds else contextlib.nullcontext():
            change()
            self.wait_for(STATE, "applying" if phase in ("withdrawing", "changing") else phase)
            yield


@contextlib.contextmanager
def watched(kubernetes: Kubernetes) -> Iterator[NodeWatch]:
    watch = NodeWatch(kubernetes)
    try:
        yield watch
        watch.catch_up()
    finally:
        watch.end()
