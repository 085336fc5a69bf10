# SPDX-License-Identifier: Apache-2.0
"""The programs of a Kubernetes of one node, inside a box (box.py): etcd, API server, controllers, scheduler;
containerd, kubelet.

Each user has a token. The Node authorizer and RBAC decide what it may do. The API server records each request of the
service accounts in the namespace AUDITED. Pods use the node's network, or one to the node alone (pod_network.py).
"""

import datetime
import json
import os
import pathlib
import signal
import ssl
import subprocess
import time
import urllib.request
from typing import Any

from . import pod_network
from .box import NODE_ADDRESS
from .programs import Failure, Program, wait_until
from .release import Release

API_PORT = 443
API_SERVER = f"https://{NODE_ADDRESS}:{API_PORT}"
CONTAINERD = "/run/containerd/containerd.sock"
CONTAINERD_CONFIGURATION = pathlib.Path("/etc/containerd/config.toml")
IMAGE = "localhost/busybox:1"
NODE = "node"
AUDITED = "ferry"
# user: (name, group)
USERS = {"admin": ("admin", "system:masters"), "nobody": ("nobody", ""),
         "kubelet": (f"system:node:{NODE}", "system:nodes"), "scheduler": ("system:kube-scheduler", ""),
         "controllers": ("system:kube-controller-manager", "")}
OTHER_KUBELET = "other-kubelet"
CAP_SYS_RESOURCE = 24


def _may_lower_oom_scores() -> bool:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def _fetch(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return None


def moment() -> str:
    """Now, as an API server has it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Kubernetes:
    def __init__(self, programs: pathlib.Path, folder: pathlib.Path, control_group: str, systemd: str = "",
                 other_node: str = "", controllers: tuple[str, ...] = ()) -> None:
        """`programs`: as scripts/lib/kubernetes makes them. `folder`: for certificates, data and logs. `systemd`: a
        stand-in (systemd_standin/main.cpp), of which containerd is a service then. `other_node`: the name of a second Node,
        whose kubelet runs elsewhere as user OTHER_KUBELET. `controllers`: more of the controller manager's, for programs that
        also serve APIs of their own."""
        self._programs, self._folder = programs, folder
        self.release = Release.of(programs / "kubelet")
        self._systemd, self._control_group = systemd, control_group
        self._controllers = controllers
        self.containerd_imports: list[str] = []  # files that its configuration includes
        self._users = USERS | ({OTHER_KUBELET: (f"system:node:{other_node}", "system:nodes")} if other_node else {})
        # Where containerd looks for its shim, and that for runc.
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        self.logs = folder / "logs"
        self.logs.mkdir()
        # Made by the API server, of which they hold the authority too.
        self.authority = folder / "certificates/apiserver.crt"
        self.last_output = self.last_error = ""
        self._trusted: ssl.SSLContext | None = None
        for user in self._users:
            self.add_user(user, f"{user}-token")
        kubelet = folder / "kubelet.yaml"
        kubelet.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "readOnlyPort": 10255, "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{control_group}", "failSwapOn": False, "resolvConf": "", "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "1s", "syncFrequency": "1s",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100, **self.release.kubelet_configuration(f"unix://{CONTAINERD}")}))
        self.kubelet = self._program(
            "kubelet", f"--config={kubelet}", f"--kubeconfig={self.kubeconfig('kubelet')}",
            *self.release.kubelet_options(f"unix://{CONTAINERD}"), f"--hostname-override={NODE}",
            f"--node-ip={NODE_ADDRESS}")

    def kubeconfig(self, user: str) -> pathlib.Path:
        return self._folder / f"{user}.kubeconfig"

    def add_user(self, user: str, token: str) -> None:
        """Whom kubectl then may be run as."""
        self.kubeconfig(user).write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "box",
            "clusters": [{"name": "box",
                          "cluster": {"server": API_SERVER, "certificate-authority": str(self.authority)}}],
            "users": [{"name": "box", "user": {"token": token}}],
            "contexts": [{"name": "box", "context": {"cluster": "box", "user": "box"}}]}))

    def _program(self, name: str, *arguments: str) -> Program:
        return Program(self.logs, str(self._programs / name), *arguments)

    def start(self) -> None:
        etcd = self._program("etcd", f"--data-dir={self._folder}/etcd", "--unsafe-no-fsync")
        etcd.start()
        containerd = self._start_containerd()
        etcd.wait_until("etcd is healthy", lambda: _fetch("http://127.0.0.1:2379/health"), 60)
        self._prepare_api_server()
        self.api_server.start()
        self._import_image(containerd)  # meanwhile
        self._wait_for_api_server()
        controllers = self._start_rest_of_control_plane()
        self.kubelet.start()
        self.kubelet.wait_until("the node is ready", lambda: self.try_kubectl(
            "wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s"), 120)
        controllers.wait_until("the node may be given pods", lambda: not self.node()["spec"].get("taints"), 60)
        controllers.wait_until("pods may have an account", lambda: self.try_kubectl("get", "serviceaccount", "default"), 60)

    def _prepare_api_server(self) -> None:
        key = self._folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = self._folder / "tokens.csv"
        tokens.write_text("".join(f"{user}-token,{name},{user},{group}\n" for user, (name, group) in self._users.items()))
        policy = self._folder / "audit.yaml"
        policy.write_text(json.dumps({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{AUDITED}"]}, {"level": "None"}]}))
        self._audit = self._folder / "audit.log"
        self.api_server = self._program(
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", f"--secure-port={API_PORT}",
            f"--advertise-address={NODE_ADDRESS}", f"--cert-dir={self.authority.parent}",
            "--service-cluster-ip-range=10.96.0.0/24", "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            f"--audit-policy-file={policy}", f"--audit-log-path={self._audit}", *(self._aggregation() if self._controllers else []))
        self._key = key

    def _aggregation(self) -> list[str]:
        """The options with which the API server hands requests on to API servers in pods, which know it by a certificate; and
        privileged pods are allowed."""
        front = self._folder / "front"
        front.mkdir()
        authority, client = front / "authority", front / "client"
        for name, more in ((authority, ["-x509"]), (client, ["-x509", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"])):
            subprocess.run(["openssl", "req", *more, "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=front-proxy",
                            "-keyout", f"{name}.key", "-out", f"{name}.crt"], check=True, capture_output=True)
        return ["--enable-aggregator-routing=true", f"--requestheader-client-ca-file={authority}.crt",
                "--requestheader-allowed-names=front-proxy",
                "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-", f"--proxy-client-cert-file={client}.crt",
                f"--proxy-client-key-file={client}.key", f"--client-ca-file={authority}.crt", "--allow-privileged=true"]

    def _wait_for_api_server(self) -> None:
        self.api_server.wait_until("the API server is ready", lambda: self.try_kubectl("get", "--raw", "/readyz"), 180)

    def _start_rest_of_control_plane(self) -> Program:
        self._program("kube-scheduler", f"--kubeconfig={self.kubeconfig('scheduler')}", "--leader-elect=false",
                      *self.release.without_plain_http()).start()
        controllers = self._program(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig('controllers')}", "--leader-elect=false",
            *self.release.without_plain_http(), f"--service-account-private-key-file={self._key}", f"--root-ca-file={self.authority}",
            "--use-service-account-credentials=true", "--node-monitor-period=1s",
            "--controllers=" + ",".join([*self.release.controllers(), *self._controllers]))
        controllers.start()
        return controllers

    def stop_api_server(self) -> None:
        self.api_server.stop(signal.SIGKILL)

    def start_api_server(self) -> None:
        """Returns when it answers."""
        self.api_server.start()
        self._wait_for_api_server()

    def _start_containerd(self) -> Program:
        networks = self._folder / "networks"
        pod_network.install(networks, pod_network.PROGRAMS)
        CONTAINERD_CONFIGURATION.parent.mkdir(exist_ok=True)
        CONTAINERD_CONFIGURATION.write_text(self.release.containerd_configuration(
            restrict_oom_scores=not _may_lower_oom_scores(), image=IMAGE, networks=networks, imports=self.containerd_imports))
        containerd = self._program("containerd")
        if self._systemd:
            containerd = self._as_a_service(self._programs / "containerd")
        containerd.start()
        return containerd

    def _as_a_service(self, program: pathlib.Path) -> Program:
        folder, unit = pathlib.Path("/run/systemd"), f"{program.name}.service"
        folder.mkdir()
        pathlib.Path("/etc/systemd/system", unit).write_text(
            f"[Service]\nType=notify\nKillMode=process\nDelegate=yes\nExecStart={program}\n")
        return Program(self.logs, self._systemd, str(folder / "private"), self._control_group, unit, str(program))

    def _import_image(self, containerd: Program) -> None:
        ctr = [str(self._programs / "ctr"), "--address", CONTAINERD]
        containerd.wait_until("containerd answers", lambda: subprocess.run(
            [*ctr, "version"], capture_output=True, check=False).returncode == 0, 60)
        self.import_image(self._programs / "image.tar")

    def import_image(self, archive: pathlib.Path) -> None:
        subprocess.run([str(self._programs / "ctr"), "--address", CONTAINERD, "-n", "k8s.io", "images", "import", str(archive)],
                       check=True, capture_output=True)

    # --- asking and telling it ---------------------------------------------------------------------------------------

    def kubectl_command(self, user: str = "admin") -> list[str]:
        return [str(self._programs / "kubectl"), f"--kubeconfig={self.kubeconfig(user)}"]

    def try_kubectl(self, *arguments: str, stdin: str = "", user: str = "admin") -> str | None:
        """Its output, or None where it fails."""
        done = subprocess.run([*self.kubectl_command(user), *arguments], input=stdin, capture_output=True, text=True,
                              check=False)
        self.last_output, self.last_error = done.stdout, done.stderr
        return done.stdout if done.returncode == 0 else None

    def run_plugin(self, *words: str) -> subprocess.CompletedProcess[str]:
        """kubectl for a user who has Ferry's programs in the search path."""
        path = f"{os.environ['CLUSTER_BIN']}:{os.environ['PATH']}"
        return subprocess.run([str(self._programs / "kubectl"), *words], capture_output=True, text=True, check=False,
                              env=os.environ | {"PATH": path, "KUBECONFIG": str(self.kubeconfig("admin")),
                                                  "KUBECTL": str(self._programs / "kubectl")})

    def kubectl_with_plugins(self, *words: str) -> str:
        """The output of run_plugin(), which succeeds."""
        done = self.run_plugin(*words)
        if done.returncode:
            raise Failure(f"kubectl {' '.join(words)}: status {done.returncode}: {done.stderr}")
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        output = self.try_kubectl(*arguments, stdin=stdin)
        if output is None:
            raise Failure(f"kubectl {' '.join(arguments)}: {self.last_error}")
        return output

    def apply(self, *objects: Any) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def token_of(self, space: str, account: str) -> str:
        """A token of a service account, like that of its pod."""
        path = f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token"
        answer = json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}})))
        return str(answer["status"]["token"])

    def requests(self, begin: str = "", end: str = "Z") -> list[dict[str, Any]]:
        """Ferry's requests between two moments, once each. Requests that still last (watches) are left out."""
        found = {}
        for line in self._audit.read_text().splitlines() if self._audit.exists() else []:
            request = json.loads(line)
            if request["userAgent"].startswith("ferry/") and begin <= request["requestReceivedTimestamp"] < end:
                found.setdefault(request["auditID"], request)
        return list(found.values())

    def get(self, *what: str) -> Any:
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def read(self, path: str) -> Any:
        """Does the same as get(), below /api/v1, ten times a second: a kubectl takes 0.1 s to start."""
        if not self._trusted:
            self._trusted = ssl.create_default_context(cafile=str(self.authority))
        request = urllib.request.Request(f"{API_SERVER}/api/v1/{path}", headers={"Authorization": "Bearer admin-token"})
        with urllib.request.urlopen(request, timeout=30, context=self._trusted) as answer:
            return json.load(answer)

    def node(self) -> Any:
        return self.read(f"nodes/{NODE}")

    def devices(self, of: str = "allocatable") -> dict[str, int]:
        """The device plugins' resources of the node: resource -> count."""
        return {name: int(count) for name, count in self.node()["status"].get(of, {}).items() if "/" in name}

    def registrations(self) -> dict[str, int]:
        """How often each resource has been registered with the kubelet that runs now."""
        return self.kubelet_metrics("kubelet_device_plugin_registration_total")

    @staticmethod
    def kubelet_metrics(family: str) -> dict[str, int]:
        """The values of a family of the kubelet's metrics by their first label."""
        found = {}
        said = wait_until("the kubelet answers with its metrics", lambda: _fetch("http://127.0.0.1:10255/metrics"), 30)
        for line in said.splitlines():
            if line.startswith(f"{family}{{"):
                labels, count = line.rsplit(" ", 1)
                found[labels.split('"')[1]] = int(count)
        return found

    def restart_kubelet(self, how: signal.Signals) -> None:
        """Returns when the new one has said what the node has."""
        self.kubelet.stop(how)
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.kubelet.start()
        self.kubelet.wait_until("the kubelet reports", lambda: any(
            condition["type"] == "Ready" and condition["lastHeartbeatTime"] > begin  # which has whole seconds
            for condition in self.node()["status"]["conditions"]), 120)

    def run_pod(self, name: str, devices: dict[str, int] | None = None, command: str = ":", **more: Any) -> None:
        """A pod whose one container runs the command and then stays; `more`: what its spec has besides."""
        limits = {resource: str(count) for resource, count in (devices or {}).items()}
        manifest = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"hostNetwork": True, "restartPolicy": "Never", "containers": [{
                "name": "c", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["sh", "-c", f"trap exit TERM; {command}; sleep infinity & wait"],
                "resources": {"limits": limits}}], **more}}
        self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def keep_pod(self, name: str) -> None:
        """Makes a PodDisruptionBudget `kept` that forbids to evict the pod, and waits until it counts."""
        self.apply({"apiVersion": self.release.budgets, "kind": "PodDisruptionBudget", "metadata": {"name": "kept"},
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}})
        wait_until("the budget counts", lambda: self.get("pdb", "kept").get("status", {}).get("currentHealthy") == 1, 60)

    def pod(self, name: str) -> Any:
        return self.read(f"namespaces/default/pods/{name}")["status"]

    def wait_for_pod(self, name: str) -> None:
        """Until it runs."""

        def runs() -> bool:
            status = self.pod(name)
            if status["phase"] in ("Failed", "Succeeded"):
                raise Failure(f"the pod {name} does not run: {status}")
            return bool(status["phase"] == "Running")
        wait_until(f"the pod {name} runs", runs, 90)

    def remove_pods(self) -> None:
        self.kubectl("delete", "pods", "--all", "--grace-period=5", "--wait", "--timeout=60s")
