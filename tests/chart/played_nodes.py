# SPDX-License-Identifier: Apache-2.0
"""Three nodes that a real Prometheus scrapes: the real agent on a played host each.

What hostd and the plugin would write is written here, and so is what sysfs would show; the agents read it, and say it to
Prometheus. n1 is well, n2 has every fault that a node can have while nothing happens, n3 changes and does not end, since its hostd has.
"""

import contextlib
import fcntl
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, BinaryIO

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cluster/lib"))

from cluster.programs import Program, wait_until  # noqa: E402

WHOLE, DIVIDED = "0000:3b:00.0", "0000:41:00.0"  # of n1
REFUSED, BLOCKED, HELD = "0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0"  # of n2
BUSY = "0000:3b:00.0"  # of n3
RESOURCE, PROFILE = "nvidia.com/AD102GL_L40S", "L40S-12Q"
VGPU_RESOURCE = "nvidia.com/NVIDIA_L40S-12Q"
TOKEN = "a-token-of-this-test"
CLASSES = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "kata", "namespace": "ferry"}, "data": {
    "config.yaml": 'version: v2\nruntimeClasses:\n- {name: kata-gpu, artifacts: {url: "registry.example/a:1"}}\n'}}
# n1's pull does not end; n3's fails.
FETCH = """#!/bin/sh
case "$(cat)" in
*/n3*) echo '{"error":{"category":"ferry","code":1,"message":"nobody answers","hint":""}}' ;;
*) exec sleep 600 ;;
esac
"""


def loopback() -> str:
    """An address of this process's own, so that its ports are nobody else's."""
    number = os.getpid()
    return f"127.{64 + (number >> 16) % 64}.{number >> 8 & 255}.{number & 255}"


class ApiServer(http.server.ThreadingHTTPServer):
    """The part of an API server that agents need: lists, watches without events, and success for each write."""

    daemon_threads = True
    PODS = [{"kind": "Pod", "apiVersion": "v1",
             "metadata": {"name": "virt-launcher-render-x7x2k", "namespace": "studio", "uid": "u1", "ownerReferences": [
                 {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "render", "uid": "u2",
                  "controller": True}]},
             "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}]

    def __init__(self, address: str, port: int) -> None:
        self.ended = threading.Event()
        super().__init__((address, port), _ApiRequest)

    def stop(self) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()


class _ApiRequest(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if query.get("watch"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.server.ended.wait()
            self.close_connection = True
            return
        chosen = dict(term.split("=", 1) for term in query.get("fieldSelector", "").split(",") if "=" in term)
        items: list[Any] = []
        if url.path.endswith("/nodes"):
            items = [{"kind": "Node", "apiVersion": "v1", "metadata": {
                "name": chosen["metadata.name"], "resourceVersion": "1", "uid": "n"}, "spec": {}, "status": {}}]
        elif chosen.get("metadata.name") == CLASSES["metadata"]["name"]:
            items = [CLASSES]
        elif url.path.endswith("/pods"):
            items = [pod for pod in ApiServer.PODS if pod["spec"] == {"nodeName": chosen.get("spec.nodeName")}]
        self._answer({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})

    def do_PATCH(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    do_POST = do_PATCH

    def _answer(self, content: Any) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its name in the class above
        pass


class PlayedHost:
    """A tree in which the agent finds what hostd, the plugin and sysfs say."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self._presences: list[BinaryIO] = []

    def put(self, name: str, text: str) -> None:
        """At once whole, as hostd and the plugin write."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(text)
        new.rename(file)

    def function(self, address: str, group: int, driver: str, port: str = "0000:00:01.0", **files: str) -> None:
        """A function below a port; what is not said is that of a display controller of NVIDIA's."""
        place = self.root / "sys/devices/pci0000:00" / port / address
        of_all = {"vendor": "0x10de", "device": "0x26b9", "class": "0x030200", "subsystem_vendor": "0x10de",
                  "subsystem_device": "0x1851", "revision": "0xa1"}
        for name, text in (of_all | files).items():
            self.put(str(place.relative_to(self.root) / name), text + "\n")
        (place / "config").write_bytes(bytes(64))  # of an ordinary header
        if driver == "vfio-pci":
            (place / "vfio-dev/vfio0").mkdir(parents=True)
        for link, target in ((self.root / "sys/bus/pci/devices" / address, place),
                             (place / "driver", self.root / "sys/bus/pci/drivers" / driver),
                             (place / "iommu_group", self.root / "sys/kernel/iommu_groups" / str(group)),
                             (self.root / f"sys/kernel/iommu_groups/{group}/devices" / address, place)):
            target.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(target, link.parent))

    def errors(self, address: str, severity: str, count: int) -> None:
        """The GPUs as the kernel shows them."""
        kind, total = {"correctable": ("BadTLP", "COR"), "nonfatal": ("CmpltTO", "NONFATAL"),
                       "fatal": ("DLP", "FATAL")}[severity]
        self.put(f"sys/bus/pci/devices/{address}/aer_dev_{severity}", f"{kind} {count}\nTOTAL_ERR_{total} {count}\n")

    def state(self, phase: str, generation: int, *gpus: dict[str, Any]) -> None:
        self.put("run/ferry/status.json", json.dumps({
            "version": 2, "desired": {"generation": generation}, "phase": phase, "accelerators": gpus, "unavailable": []}))

    def offers(self, *resources: dict[str, Any], left_out: tuple[str, ...] = ()) -> None:
        self.put("run/ferry/plugin/advertised.json", json.dumps({
            "version": 2, "resources": resources, "not_advertised": [{"id": device} for device in left_out]}))

    def runs(self, process: str) -> None:
        """Until the end."""
        name = {"hostd": "run/ferry/hostd.running", "plugin": "run/ferry/plugin/plugin.lock"}[process]
        self.put(name, "")
        self._presences.append(open(self.root / name, "rb"))  # pylint: disable=consider-using-with
        fcntl.flock(self._presences[-1], fcntl.LOCK_SH)

    def lacks_an_artifact(self) -> None:
        self.put("run/ferry/kata.json", json.dumps({
            "version": 2, "handlers": [], "generation": 1, "applying": False,
            "others": [{"name": "kata-gpu", "state": "missing_artifact"}]}))

    def end(self) -> None:
        for presence in self._presences:
            presence.close()


def gpu(address: str, group: int, driver: str, mode: str, **more: Any) -> dict[str, Any]:
    """An L40S in status.json."""
    return {"address": address, "id": "10de:26b9", "subsystem": "10de:1851", "class": "0302", "model": "NVIDIA L40S",
            "iommu_group": group, "driver": driver, "mode": mode, "desired": mode, "state": "ready", "users": [],
            "vgpus": []} | more


def device(name: str, group: int, healthy: bool = True, pod: str = "", allocated: bool = False) -> dict[str, Any]:
    return {"id": name, "iommu_group": group, "healthy": healthy, "allocated": allocated or bool(pod), "pod": pod or None}


class PlayedNodes:
    """In a folder that is there and that nobody else uses."""

    AGENT_PORT, API_PORT, PROMETHEUS_PORT = 9417, 6443, 9090

    def __init__(self, folder: pathlib.Path, programs: pathlib.Path, prometheus: str) -> None:
        self._folder = folder
        self._prometheus = prometheus
        # A copy: what it starts lies beside it.
        self._agent = str(folder / "bin/ferry-agent")
        (folder / "bin").mkdir()
        shutil.copy(programs / "ferry-agent", self._agent)
        (folder / "bin/ferry-fetch").write_text(FETCH)
        (folder / "bin/ferry-fetch").chmod(0o755)
        self._address = loopback()
        self._ends = contextlib.ExitStack()
        self.nodes = {name: PlayedHost(folder / name) for name in ("n1", "n2", "n3")}

    def start(self) -> None:
        """Returns when all that n1 to n3 show from the beginning has been scraped."""
        try:
            self._furnish()
            self._keys()
            server = ApiServer(self._address, self.API_PORT)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
            self._ends.callback(server.stop)
            for number, name in enumerate(self.nodes):
                self._start(self._agent_of(name, self.AGENT_PORT + number))
            self._start(self._scraper())
            wait_until("Prometheus answers", self._answers, 20)
            self.wait_for("count(up == 1)", 3)
            self.wait_for("count(ferry_sysfs_read_timestamp_seconds)", 3)
            self.wait_for('count(ferry_device_allocated{vmi="render"})', 1)
            self.wait_for('ferry_artifact_pull_running', 1)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._ends.close()

    def go_on(self) -> None:
        """n1 has a change that ends well, n2's ends badly, and the errors of its GPU come; returns when that has been scraped."""
        self._well("applying", 2)
        self.wait_for('ferry_node_phase{instance="n1",phase="applying"}', 1)
        self._well("ready", 2)
        self._ill("failed")
        self.nodes["n3"].lacks_an_artifact()
        n2 = self.nodes["n2"]
        n2.errors(BLOCKED, "fatal", 8)
        n2.errors(BLOCKED, "correctable", 100_000)
        self.wait_for('count(increase(ferry_pcie_aer_errors_total{severity="fatal"}[5m]) > 0)', 1)
        self.wait_for('count(increase(ferry_artifact_pulls_total{instance="n3",result="failed"}[5m]) > 0)', 1)
        self.wait_for('count(increase(ferry_api_requests_total{instance="n2",code="none"}[5m]) > 0)', 1)

    # --- what Prometheus knows ---------------------------------------------------------------------------------------

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its HTTP API."""
        address = f"http://{self._address}:{self.PROMETHEUS_PORT}/api/v1/{path}"
        form = urllib.parse.urlencode(query).encode() if query else None
        try:
            with urllib.request.urlopen(address, form, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def now(self, expression: str, time: str = "") -> list[tuple[dict[str, str], float]]:
        """Labels without the scrape's own, and the value, of each sample."""
        answer = self.ask("query", query=expression, **({"time": time} if time else {}))
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [({key: text for key, text in one["metric"].items() if key != "job"}, float(one["value"][1]))
                for one in answer["result"]]

    def wait_for(self, expression: str, value: float) -> None:
        def is_so() -> bool:
            return [sample for _, sample in self.now(expression)] == [value]
        wait_until(f"{expression} is {value}", is_so, 40)

    # --- what is played ----------------------------------------------------------------------------------------------

    def _furnish(self) -> None:
        link = {"current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe",
                "current_link_width": "16", "max_link_width": "16", "power_state": "D0", "numa_node": "1"}
        n1, n2, n3 = self.nodes.values()
        n1.function(WHOLE, 42, "vfio-pci", **(link | {"power_state": "D3hot"}))  # sleeps, and its link is not read
        n1.function(DIVIDED, 43, "nvidia", **(link | {"current_link_speed": "2.5 GT/s PCIe"}))
        n1.runs("hostd")
        n1.runs("plugin")
        n1.lacks_an_artifact()
        n1.offers({"name": RESOURCE, "registered": True,
                   "devices": [device(WHOLE, 42, pod="studio/virt-launcher-render-x7x2k")]},
                  {"name": VGPU_RESOURCE, "registered": True,
                   "devices": [device("0000:41:00.4", 50), device("0000:41:00.5", 51, pod="studio/desktop")]})
        self._well("ready", 1)

        n2.runs("hostd")
        n2.function(REFUSED, 42, "nvidia", **link)
        n2.function(BLOCKED, 44, "vfio-pci", **(link | {"current_link_width": "8", "power_state": "error"}))
        n2.function("0000:5e:00.1", 44, "snd_hda_intel", **{"class": "0x040300"})
        n2.function(HELD, 45, "nvidia", **link)
        for severity in ("correctable", "nonfatal", "fatal"):
            n2.errors(BLOCKED, severity, 7)
        n2.put("run/ferry/stuck-writes/4711.json", json.dumps({
            "pid": 4711, "act": f"write /sys/bus/pci/devices/{HELD}/driver/unbind", "value": HELD}))
        n2.put("run/ferry/plugin/advertised.json", "half a fi")
        self._ill("applying")

        n3.function(BUSY, 42, "nvidia", **(link | {"current_link_width": "8"}))
        n3.put("sys/bus/pci/devices/0000:00:01.0/max_link_width", "8\n")  # its slot's
        n3.runs("plugin")
        n3.offers({"name": VGPU_RESOURCE, "registered": False,
                   "devices": [device("0000:3b:00.4", 50, healthy=False), device("0000:3b:00.5", 51, healthy=False),
                               device("0000:3b:00.6", 52), device("0000:3b:00.8", 42, healthy=False, pod="studio/dead")]},
                  left_out=("0000:3b:00.7",))
        n3.state("applying", 1, gpu(BUSY, 42, "nvidia", "vgpu", state="pending"))

    def _well(self, phase: str, generation: int) -> None:
        vgpus = [{"id": f"0000:41:00.{number}", "type": PROFILE} for number in (4, 5)]
        self.nodes["n1"].state(phase, generation, gpu(WHOLE, 42, "vfio-pci", "passthrough"),
                               gpu(DIVIDED, 43, "nvidia", "vgpu", vgpus=vgpus,
                                   more_vgpus={"L40S-12Q": 2, "L40S-24Q": 0}))

    def _ill(self, phase: str) -> None:
        refused = {"state": "blocked", "desired": "passthrough", "only_in_use": True, "reason": "in use", "users": [
            {"kind": "virtual_machine", "name": "guest-7", "pid": 4712}, {"kind": "process", "name": "Xorg", "pid": 4713}]}
        self.nodes["n2"].state(phase, 2, gpu(REFUSED, 42, "nvidia", "host", **(refused if phase == "failed" else {})),
                               gpu(BLOCKED, 44, "vfio-pci", "passthrough"), gpu(HELD, 45, "nvidia", "host", state="failed"))

    # --- what runs ---------------------------------------------------------------------------------------------------

    def _start(self, program: Program) -> None:
        program.start()
        self._ends.callback(program.stop)

    def _keys(self) -> None:
        """n1 is asked over TLS, with a token, as the chart's PodMonitor has it."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", "key.pem", "-out", "certificate.pem", "-days", "2", "-subj", "/CN=n1", "-addext",
                        f"subjectAltName=IP:{self._address}"], cwd=self._folder, check=True, capture_output=True)
        (self._folder / "token").write_text(TOKEN)

    def _agent_of(self, name: str, port: int) -> Program:
        # Where n2's should be nobody listens.
        server = f"http://{self._address}:{self.API_PORT + (name == 'n2')}"
        access = self._folder / f"{name}.kubeconfig"
        access.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}))
        safe = [f"--metrics-certificate={self._folder}/certificate.pem", f"--metrics-key={self._folder}/key.pem",
                f"--metrics-token-file={self._folder}/token"]
        return Program(self._folder, self._agent, f"--host-root={self.nodes[name].root}", f"--node-name={name}",
                       "--namespace=ferry", f"--kubeconfig={access}", f"--metrics-address={self._address}:{port}",
                       "--max-unavailable=0", "--drain", "--kata-classes=kata", *(safe if name == "n1" else []), name=f"agent-{name}")

    def _scraper(self) -> Program:
        jobs = []
        for number, name in enumerate(self.nodes):
            job: dict[str, Any] = {"job_name": name, "static_configs": [
                {"targets": [f"{self._address}:{self.AGENT_PORT + number}"], "labels": {"instance": name}}]}
            if name == "n1":
                job |= {"scheme": "https", "tls_config": {"ca_file": "certificate.pem"},
                        "authorization": {"credentials_file": "token"}}
            jobs.append(job)
        (self._folder / "prometheus.yaml").write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ROOT / "charts/ferry/files/alerts.yaml")], "scrape_configs": jobs}))
        return Program(self._folder, self._prometheus, f"--config.file={self._folder}/prometheus.yaml",
                       f"--storage.tsdb.path={self._folder}/data",
                       f"--web.listen-address={self._address}:{self.PROMETHEUS_PORT}", name="prometheus")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}:{self.PROMETHEUS_PORT}/-/ready", timeout=10):
                return True
        except OSError:  # an HTTPError is one too
            return False
