# SPDX-License-Identifier: Apache-2.0
"""`ferry dra` as the chart installs it: ResourceClaims by the real scheduler, kubelet and containerd, on a host whose GPUs move.

The host has a 4090, whose audio shares its group 11, and a T4 with vGPU types in group 12. All are for claims.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest
from collections.abc import Iterator
from typing import Any

from cluster.claims import DRIVER, allocations, claim_of, devices_in, spec_of, vgpu, whole
from cluster.ferry_chart import CHART, PRESENT, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import IMAGE, NODE, Kubernetes
from cluster.living_host import CARD, TESLA, LivingHost
from cluster.programs import wait_until

POOL = f"{NODE}/gpu-ferry"
WHOLE_CARD, WHOLE_TESLA = "whole-0000-01-00-0", "whole-0000-02-00-0"
STATE = "gpu-ferry.io/state"
DAEMON_SET, HOST_DAEMON_SET = "ferry-dra", "ferry"
ACCOUNT, OF_THE_POD = "ferry-dra", "dra-of-the-pod"
SLICES_POLICY, EVENTS_POLICY = "ferry-dra-own-slices", "ferry-dra-own-events"
OWN = ("nvidia", "snd_hda_intel", "nvidia")
CDI = pathlib.Path("/var/run/cdi")
CHECKPOINT = pathlib.Path("/run/ferry/dra/claims.json")
METADATA = "/var/run/kubernetes.io/dra-device-attributes"
POLICIES = """version: v2
policies:
  claims:
  - {devices: all, allocation: dra}
"""
CHOSEN: dict[str, Any] = {**VALUES, "defaults": {"policy": "claims"}, "config": {"policies": POLICIES},
                          "dra": {"enabled": True}}


A_CARD, A_TESLA, FOUR_GIB = whole("0x2684"), whole("0x1eb8"), vgpu("T4-4Q")
A_CARD_BY_NAME, FOUR_GIB_BY_NAME = "example.com/rtx-4090", "example.com/T4_4Q"
# No shell exports a variable whose name has a `-`.
SHOW_VARIABLES = "tr '\\0' '\\n' < /proc/1/environ | grep PCI_RESOURCE; echo END"


class DraTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        programs = helms()
        folder, binaries = pathlib.Path(os.environ["CLUSTER_FOLDER"]), os.environ["CLUSTER_BIN"]
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"],
                                    f"{binaries}/systemd-standin")
        if not programs or not cls.kubernetes.release.current:
            raise unittest.SkipTest("this needs Helm and a Kubernetes that has ResourceClaims")
        cls.program = programs[-1]
        cls.host = LivingHost(folder / "host", cls.kubernetes.logs, f"{binaries}/kernel-standin")
        cls.host.start()
        cls.host.become_the_boxes()
        cls.kubernetes.start()
        cls.ferry = FerryChart(cls.kubernetes)
        cls.ferry.helm(cls.program, "install", "ferry", CHART, values=CHOSEN)
        cls.kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true")
        try:
            wait_until("the pods run", lambda: cls.ferry.runs("dra"), 180)
            wait_until("both GPUs are published", lambda: {WHOLE_CARD, WHOLE_TESLA} <= set(cls.devices()), 120)
        except Exception:
            cls.ferry.print_logs()
            raise

    @classmethod
    def tearDownClass(cls) -> None:
        cls.host.kernel.stop()

    def setUp(self) -> None:
        self.addCleanup(self.expect_nothing_left)
        self.addCleanup(self.remove_all)

    # --- what people do ----------------------------------------------------------------------------------------------

    def claim(self, name: str, requests: dict[str, dict[str, Any]], **more: Any) -> None:
        self.kubernetes.apply(claim_of(name, requests, **more))

    def template(self, name: str, requests: dict[str, dict[str, Any]]) -> None:
        self.kubernetes.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                               "metadata": {"name": name, "namespace": "default"}, "spec": {"spec": spec_of(requests)}})

    def run_pod(self, name: str, claims: dict[str, dict[str, str]], command: str = ":") -> None:
        """`claims`: what the pod calls each, and where it is from: {"resourceClaimName": NAME}."""
        self.kubernetes.kubectl("create", "-f", "-", stdin=json.dumps({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"hostNetwork": True, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                     "resourceClaims": [{"name": claim, **source} for claim, source in claims.items()],
                     "containers": [{
                         "name": "c", "image": IMAGE, "imagePullPolicy": "Never",
                         "command": ["sh", "-c", f"trap exit TERM; {command}; echo END; sleep infinity & wait"],
                         "resources": {"claims": [{"name": claim} for claim in claims]}}]}}))

    def run_with_claim(self, pod: str, claim: str, request: dict[str, Any], waits: bool = False) -> None:
        """A pod with one claim, for one device. It runs, if it need not wait for the device."""
        self.claim(claim, {"card": request})
        self.run_pod(pod, {"gpu": {"resourceClaimName": claim}})
        if not waits:
            self.kubernetes.wait_for_pod(pod)

    def remove_all(self) -> None:
        self.kubernetes.kubectl("delete", "pods", "--all", "--grace-period=1", "--timeout=180s")
        for kind in ("resourceclaims", "resourceclaimtemplates"):
            self.kubernetes.kubectl("delete", kind, "--all", "--timeout=60s")

    @contextlib.contextmanager
    def without(self, component: str, daemon_set: str) -> Iterator[None]:
        """The pod of this DaemonSet is away."""
        def patch(value: str | None) -> None:
            change = {"spec": {"template": {"spec": {"nodeSelector": {"example.com/no-node": value}}}}}
            self.kubernetes.kubectl("patch", "daemonset", daemon_set, "-n", SPACE, "-p", json.dumps(change))
        patch("yes")
        try:
            wait_until("its pod is gone", lambda: not self.kubernetes.get(
                "pods", "-n", SPACE, "-l", f"app.kubernetes.io/component={component}")["items"], 120)
            yield
        finally:
            patch(None)
            wait_until("it runs again", lambda: self.ferry.runs("dra"), 120)

    @contextlib.contextmanager
    def halted_ferry_dra(self) -> Iterator[None]:
        """It is registered, and does nothing."""
        names = {}
        for file in pathlib.Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
                names[file] = file.read_text()
        (pid,) = [int(file.parent.name) for file, name in names.items() if name == "ferry-dra\n"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def choose_policies(self, policies: str) -> None:
        self.ferry.helm(self.program, "upgrade", "ferry", CHART, "--reuse-values", values={"config": {"policies": policies}})

    def choose_classes(self, more: list[dict[str, str]]) -> None:
        self.ferry.helm(self.program, "upgrade", "ferry", CHART, "--reuse-values",
                        values={"dra": {"deviceClasses": {"more": more}}})

    def update_ferry_dra(self, **spec: Any) -> None:
        self.kubernetes.kubectl("patch", "daemonset", DAEMON_SET, "-n", SPACE, "-p", json.dumps({"spec": spec}))

    # --- what is to be seen ------------------------------------------------------------------------------------------

    @classmethod
    def slices(cls) -> list[Any]:
        return [one for one in cls.kubernetes.get("resourceslices")["items"] if one["spec"]["driver"] == DRIVER]

    @classmethod
    def devices(cls) -> dict[str, Any]:
        return devices_in(cls.slices())

    @staticmethod
    def checkpoint() -> dict[str, Any]:
        """Claims of this node, by name."""
        if not CHECKPOINT.exists():
            return {}
        return {one["name"]: one for one in json.loads(CHECKPOINT.read_text())["claims"]}

    @staticmethod
    def cdi_files() -> list[str]:
        return sorted(file.name for file in CDI.glob(f"{DRIVER}*")) if CDI.is_dir() else []

    def shown_by(self, pod: str) -> list[str]:
        """The lines of a pod before END."""
        self.kubernetes.wait_for_pod(pod)
        lines = wait_until(f"{pod} has said all", lambda: [
            found for found in [self.kubernetes.kubectl("logs", pod).splitlines()] if "END" in found], 60)[0]
        return list(lines[:lines.index("END")])

    def allocated(self, claim: str) -> list[Any]:
        status = self.kubernetes.get("resourceclaim", claim).get("status", {})
        return list(status.get("allocation", {}).get("devices", {}).get("results", []))

    def events_of(self, claim: str) -> list[tuple[str, str]]:
        found = self.kubernetes.get("events", "--field-selector", f"involvedObject.kind=ResourceClaim,involvedObject.name={claim}")
        return [(one["reason"], one["message"]) for one in found["items"]]

    def wait_until_refused(self, pod: str) -> None:
        """Waits until the scheduler has found no device for the pod."""
        wait_until(f"the scheduler has found nothing for {pod}", lambda: any(
            one.get("reason") == "Unschedulable" for one in self.kubernetes.pod(pod).get("conditions", [])), 60)

    def phase(self, pod: str) -> str:
        return str(self.kubernetes.pod(pod)["phase"])

    def expect_nothing_left(self) -> None:
        wait_until("all GPUs are on their own drivers", lambda: self.host.drivers() == OWN, 120)
        wait_until("no vGPU is left", lambda: not self.host.vgpus(), 60)
        wait_until("no claim is recorded", lambda: not self.checkpoint(), 60)
        wait_until("no CDI file is left", lambda: not self.cdi_files(), 60)

    # --- and what happens --------------------------------------------------------------------------------------------

    def test_a_whole_gpu_reaches_a_pod_and_returns(self) -> None:
        self.template("a-card", {"card": A_CARD})
        self.run_pod("guest", {"gpu": {"resourceClaimTemplateName": "a-card"}},
                     f"ls /dev/vfio; cat {METADATA}/resourceclaimtemplates/gpu/card/*-metadata.json")
        nodes, _, text = "\n".join(self.shown_by("guest")).partition("{")
        self.assertEqual(["11", "vfio"], nodes.split())
        self.assertEqual(("vfio-pci", "vfio-pci", "nvidia"), self.host.drivers(), "its whole group")
        metadata = json.JSONDecoder().raw_decode("{" + text)[0]  # the first object, as KubeVirt reads the file
        self.assertEqual("metadata.resource.k8s.io/v1alpha1", metadata["apiVersion"])
        (request,) = metadata["requests"]
        (device,) = request["devices"]
        self.assertEqual(("card", DRIVER, POOL, WHOLE_CARD), (request["name"], device["driver"], device["pool"], device["name"]))
        self.assertEqual({"string": CARD}, device["attributes"]["resource.kubernetes.io/pciBusID"])
        self.assertNotIn("mdevUUID", device["attributes"])
        (record,) = self.checkpoint().values()
        self.assertEqual("prepared", record["phase"])
        # The device stays published, and goes to no other claim.
        self.assertIn(WHOLE_CARD, self.devices())
        wait_until("the device has a taint", lambda: [
            taint["key"] for taint in self.devices().get(WHOLE_CARD, {}).get("taints", [])] == ["gpu-ferry.io/in-use"], 30)
        self.assertRegex(self.kubernetes.kubectl_with_plugins("ferry", "list"), f"{NODE}: claim default/guest-.*: {WHOLE_CARD}")
        self.kubernetes.remove_pods()
        self.expect_nothing_left()
        wait_until("it has no taint", lambda: WHOLE_CARD in self.devices() and "taints" not in self.devices()[WHOLE_CARD], 30)

    def test_a_vgpu_is_made_for_a_pod_and_removed(self) -> None:
        self.claim("four", {"card": FOUR_GIB})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "four"}},
                     f"ls /dev/vfio; cat {METADATA}/resourceclaims/four/card/*-metadata.json")
        nodes, _, text = "\n".join(self.shown_by("guest")).partition("{")
        self.assertEqual(2, len(nodes.split()))
        (uuid,) = self.host.vgpus()
        attributes = json.JSONDecoder().raw_decode("{" + text)[0]["requests"][0]["devices"][0]["attributes"]
        self.assertEqual({"string": uuid}, attributes["mdevUUID"])
        self.assertNotIn("resource.kubernetes.io/pciBusID", attributes)
        # Another one of its size fits on the GPU, and none of another size.
        wait_until("vGPUs of other sizes have a taint", lambda: {
            taint["key"] for name, device in self.devices().items() if name.startswith("vgpu-0000-02-00-0-233-")
            for taint in device.get("taints", [])} == {"gpu-ferry.io/other-size"}, 30)
        self.run_with_claim("other", "four-more", FOUR_GIB)
        self.assertEqual(2, len(self.host.vgpus()))
        self.run_with_claim("waits", "eight", vgpu("T4-8Q"), waits=True)
        self.wait_until_refused("waits")
        self.kubernetes.kubectl("delete", "pods", "guest", "other", "--grace-period=1", "--timeout=120s")
        self.kubernetes.wait_for_pod("waits")
        self.assertEqual(1, len(self.host.vgpus()))

    def test_the_next_pod_waits_for_a_full_gpu(self) -> None:
        guests = [f"guest-{number}" for number in range(4)]
        for name in (*guests, "next"):
            self.claim(name, {"card": FOUR_GIB})
        for name in guests:
            self.run_pod(name, {"gpu": {"resourceClaimName": name}})
        for name in guests:
            self.kubernetes.wait_for_pod(name)
        full = self.host.vgpus()
        self.assertEqual(4, len(full))
        self.run_pod("next", {"gpu": {"resourceClaimName": "next"}})
        self.wait_until_refused("next")
        self.assertEqual(full, self.host.vgpus())
        (device,) = [result["device"] for result in self.allocated("guest-2")]
        self.kubernetes.kubectl("delete", "pod", "guest-2", "--timeout=60s")
        self.kubernetes.wait_for_pod("next")
        self.assertEqual([device], [result["device"] for result in self.allocated("next")])
        self.assertEqual((4, 3), (len(self.host.vgpus()), len(set(full) & set(self.host.vgpus()))))
        self.assertEqual(["Running"] * 3, [self.phase(name) for name in guests if name != "guest-2"])

    def test_two_sizes_of_one_gpu_at_once(self) -> None:
        """The scheduler allocates both, since nothing shows yet that the GPU has vGPUs of a size."""
        for name, request in (("four", FOUR_GIB), ("eight", vgpu("T4-8Q"))):
            self.claim(name, {"card": request})
        with self.halted_ferry_dra():
            for name in ("four", "eight"):
                self.run_pod(name, {"gpu": {"resourceClaimName": name}})
            wait_until("both are allocated", lambda: self.allocated("four") and self.allocated("eight"), 30)
        first = wait_until("one of them runs", lambda: [name for name in ("four", "eight") if self.phase(name) == "Running"], 90)
        self.assertEqual(1, len(first), first)
        (second,) = {"four", "eight"} - set(first)
        wait_until("an event of the other claim names the reason", lambda: any(
            reason == "GpuPrepareFailed" and "MiB each now" in message for reason, message in self.events_of(second)), 60)
        self.assertEqual("Pending", self.phase(second))
        self.assertEqual(1, len(self.host.vgpus()))
        self.kubernetes.kubectl("delete", "pod", *first, "--timeout=60s")
        self.kubernetes.wait_for_pod(second)
        self.assertEqual(1, len(self.host.vgpus()))

    def test_first_available_takes_the_first_device_available(self) -> None:
        self.claim("some", {"card": {"firstAvailable": [{"name": "large", **vgpu("L40S-48Q")}, {"name": "small", **FOUR_GIB}]}})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "some"}},
                     f"cat {METADATA}/resourceclaims/some/card/*-metadata.json")
        text = "\n".join(self.shown_by("guest"))
        self.assertEqual("card/small", json.JSONDecoder().raw_decode(text)[0]["requests"][0]["name"])
        self.assertEqual(["card/small"], [one["request"] for one in self.allocated("some")])
        wait_until("an event says that KubeVirt does not find it", lambda: "GpuClaimWarning" in [
            reason for reason, _ in self.events_of("some")], 60)

    def have_classes(self) -> None:
        """A class for the card and one for T4-4Q, by the chart's short form."""
        gates = self.kubernetes.kubectl("get", "--raw", "/metrics")
        if not re.search(r'(?m)^kubernetes_feature_enabled\{name="DRAExtendedResource",[^}]*\} 1$', gates):
            self.skipTest("this Kubernetes has no DRAExtendedResource, or the feature gate is off")
        self.addCleanup(self.choose_classes, [])
        self.choose_classes([{"model": "10de:2684", "extendedResourceName": A_CARD_BY_NAME},
                             {"vgpuType": "T4-4Q", "extendedResourceName": FOUR_GIB_BY_NAME}])

    def variables(self, pod: str, container: str = "c") -> dict[str, str]:
        """The variables by which KubeVirt finds devices. A kubelet that has just begun has no logs yet."""
        self.kubernetes.wait_for_pod(pod)
        lines = wait_until(f"{pod} has said all", lambda: [found for found in [
            (self.kubernetes.try_kubectl("logs", pod, "-c", container) or "").splitlines()] if "END" in found], 60)[0]
        return {name: value for name, _, value in (line.partition("=") for line in lines) if "PCI_RESOURCE" in name}

    def test_a_pod_asks_for_the_extended_resource_of_a_class(self) -> None:
        """The scheduler makes the claim, and KubeVirt finds the device as one of a device plugin."""
        self.have_classes()
        self.kubernetes.run_pod("guest", {A_CARD_BY_NAME: 1}, f"ls /dev/vfio; {SHOW_VARIABLES}", terminationGracePeriodSeconds=1)
        self.assertEqual({"PCI_RESOURCE_EXAMPLE_COM_RTX-4090": CARD,
                          "PCI_RESOURCE_DEVICECLASS_RESOURCE_KUBERNETES_IO_RTX-4090_EXAMPLE_COM": CARD}, self.variables("guest"))
        self.assertEqual(["11", "vfio"], self.shown_by("guest")[:2])
        self.assertEqual(("vfio-pci", "vfio-pci", "nvidia"), self.host.drivers(), "its whole group")
        (record,) = self.checkpoint().values()
        self.assertEqual("prepared", record["phase"])
        self.assertNotIn(A_CARD_BY_NAME, self.kubernetes.node()["status"]["capacity"], "no plugin registers the name")

    def test_several_devices_by_names_in_one_container(self) -> None:
        """A whole GPU and two vGPUs: a request for each name, and one variable for both vGPUs."""
        self.have_classes()
        self.kubernetes.run_pod("guest", {A_CARD_BY_NAME: 1, FOUR_GIB_BY_NAME: 2}, SHOW_VARIABLES,
                                terminationGracePeriodSeconds=1)
        found = self.variables("guest")
        self.assertEqual(CARD, found["PCI_RESOURCE_EXAMPLE_COM_RTX-4090"])
        vgpus = found["MDEV_PCI_RESOURCE_EXAMPLE_COM_T4_4Q"].split(",")
        self.assertEqual((2, sorted(self.host.vgpus())), (len(vgpus), sorted(vgpus)))
        self.assertEqual(4, len(found), found)

    def test_each_container_has_its_own_devices_by_names(self) -> None:
        self.have_classes()
        asked = {"first": {A_CARD_BY_NAME: "1"}, "second": {FOUR_GIB_BY_NAME: "1"}, "third": {}}
        self.kubernetes.kubectl("create", "-f", "-", stdin=json.dumps({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest"},
            "spec": {"hostNetwork": True, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{
                "name": name, "image": IMAGE, "imagePullPolicy": "Never", "resources": {"limits": limits},
                "command": ["sh", "-c", f"trap exit TERM; ls /dev/vfio; {SHOW_VARIABLES}; sleep infinity & wait"]}
                for name, limits in asked.items()]}}))
        self.assertEqual({CARD}, set(self.variables("guest", "first").values()))
        self.assertEqual(set(self.host.vgpus()), set(self.variables("guest", "second").values()))
        self.assertEqual({}, self.variables("guest", "third"))
        self.assertNotIn("vfio", self.kubernetes.kubectl("logs", "guest", "-c", "third").splitlines())

    def test_a_class_gets_another_name_while_a_claim_is_held(self) -> None:
        self.have_classes()
        self.kubernetes.run_pod("guest", {A_CARD_BY_NAME: 1}, SHOW_VARIABLES, terminationGracePeriodSeconds=1)
        before = self.variables("guest")
        files = {file: (CDI / file).read_text() for file in self.cdi_files()}
        self.choose_classes([{"name": "rtx-4090.example.com", "model": "10de:2684", "extendedResourceName": "example.com/other"}])
        uid = self.ferry.uid("dra")
        self.kubernetes.kubectl("delete", "pod", "-n", SPACE, "-l", "app.kubernetes.io/component=dra", "--timeout=60s")
        wait_until("another one runs", lambda: self.ferry.uid("dra") not in ("", uid), 120)
        self.kubernetes.restart_kubelet(signal.SIGKILL)  # which asks for the claim again
        wait_until("the slices are back", lambda: {WHOLE_CARD, WHOLE_TESLA} <= set(self.devices()), 90)
        self.assertEqual(files, {file: (CDI / file).read_text() for file in self.cdi_files()})
        self.assertEqual(before, self.variables("guest"))

    def test_doctor_names_a_resource_of_two_classes(self) -> None:
        self.have_classes()
        second = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "second"},
                  "spec": {"extendedResourceName": A_CARD_BY_NAME}}
        self.addCleanup(self.kubernetes.kubectl, "delete", "deviceclass", "second")
        self.kubernetes.apply(second)
        self.assertIn(f"the DeviceClasses rtx-4090.example.com, second have the name {A_CARD_BY_NAME}",
                      self.kubernetes.run_plugin("ferry", "doctor", NODE).stdout)
        said = self.kubernetes.kubectl_with_plugins("ferry", "kubevirt-cr", "--device-classes")
        self.assertIn('{model: "10de:2684", extendedResourceName: nvidia.com/AD102_GEFORCE_RTX_4090}', said)
        self.assertIn('{vgpuType: "T4-4Q", extendedResourceName: nvidia.com/', said)

    def test_names_over_64_bytes(self) -> None:
        claim, request, inside = "a" + "-long-name" * 20, "r" * 63, "c" * 63
        self.claim(claim, {request: FOUR_GIB})
        self.run_pod("guest", {inside: {"resourceClaimName": claim}},
                     f"cat {METADATA}/resourceclaims/{claim}/{request}/*-metadata.json")
        text = "\n".join(self.shown_by("guest"))
        self.assertEqual(request, json.JSONDecoder().raw_decode(text)[0]["requests"][0]["name"])
        self.assertEqual(2, len(self.cdi_files()), self.cdi_files())
        folder = subprocess.run([pathlib.Path(os.environ["CLUSTER_PROGRAMS"]) / "cdi-check", CDI], stdout=subprocess.PIPE,
                                text=True, check=True).stdout
        self.assertEqual(2, len([name for name in folder.split() if name.startswith(DRIVER)]), "the CDI library reads both files")

    def test_one_of_a_pods_two_claims_fails(self) -> None:
        """`ferry dra` refuses parameters. The other claim is prepared, and undone with the pod."""
        self.claim("good", {"card": A_CARD})
        self.claim("bad", {"card": FOUR_GIB}, config=[{"opaque": {"driver": DRIVER, "parameters": {"kind": "None"}}}])
        self.run_pod("guest", {"one": {"resourceClaimName": "good"}, "two": {"resourceClaimName": "bad"}})
        wait_until("an event of the claim names the reason", lambda: any(
            reason == "GpuPrepareFailed" and "parameters" in message for reason, message in self.events_of("bad")), 90)
        wait_until("the other one is prepared", lambda: self.checkpoint().get("good", {}).get("phase") == "prepared", 60)
        self.assertNotIn("bad", self.checkpoint())
        self.assertEqual([], self.host.vgpus())
        self.assertEqual("Pending", self.phase("guest"))

    def test_the_kubelet_restarts_under_a_running_pod(self) -> None:
        self.run_with_claim("guest", "kept", A_CARD)
        before = self.checkpoint()
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how.name):
                self.kubernetes.restart_kubelet(how)
                # A kubelet that starts deletes the slices of its node.
                wait_until("the slices are back", lambda: {WHOLE_CARD, WHOLE_TESLA} <= set(self.devices()), 90)
                self.assertEqual("Running", self.phase("guest"))
                self.assertEqual(before, self.checkpoint())
        self.run_with_claim("other", "new", FOUR_GIB)

    def test_ferry_dra_restarts_under_a_running_pod(self) -> None:
        self.run_with_claim("guest", "kept", A_CARD)
        before, uid = self.checkpoint(), self.ferry.uid("dra")
        self.kubernetes.kubectl("delete", "pod", "-n", SPACE, "-l", "app.kubernetes.io/component=dra", "--timeout=60s")
        wait_until("another one runs", lambda: self.ferry.uid("dra") not in ("", uid), 120)
        wait_until("it publishes all", lambda: {WHOLE_CARD, WHOLE_TESLA} <= set(self.devices()), 60)
        self.assertEqual("Running", self.phase("guest"))
        self.assertEqual(before, self.checkpoint())
        self.assertEqual("vfio-pci", self.host.driver_of(CARD))
        self.run_with_claim("other", "new", A_TESLA)
        self.assertEqual("vfio-pci", self.host.driver_of(TESLA))

    def test_hostd_restarts_under_a_running_pod(self) -> None:
        self.run_with_claim("guest", "kept", A_CARD)
        uid = self.ferry.uid("node")
        with self.without("node", HOST_DAEMON_SET):
            self.run_with_claim("other", "new", FOUR_GIB, waits=True)
            wait_until("an event of the claim names the reason", lambda: any(
                reason == "GpuPrepareFailed" and "connect to hostd" in message for reason, message in self.events_of("new")), 60)
            self.assertEqual("Pending", self.phase("other"))
            self.assertNotIn("new", self.checkpoint())
        self.assertNotIn(self.ferry.uid("node"), ("", uid))
        self.kubernetes.wait_for_pod("other")
        self.assertEqual("vfio-pci", self.host.driver_of(CARD))
        self.assertEqual("Running", self.phase("guest"))

    def test_deleted_slices_are_published_again(self) -> None:
        self.run_with_claim("guest", "kept", FOUR_GIB)
        before = set(self.devices())
        self.kubernetes.kubectl("delete", "resourceslices", "--all")
        wait_until("all devices are back", lambda: set(self.devices()) == before, 60)
        self.assertEqual({POOL}, {one["spec"]["pool"]["name"] for one in self.slices()})
        self.assertEqual({NODE}, {one["spec"]["nodeName"] for one in self.slices()})

    def test_slices_and_the_policy_change_while_a_vgpu_is_in_use(self) -> None:
        """No claim gets a device that is in use, nor one beside it that cannot be."""
        self.run_with_claim("guest", "kept", FOUR_GIB)
        (kept,) = [result["device"] for result in self.allocated("kept")]

        def published() -> dict[str, list[str]]:
            """The keys of the taints of each vGPU of its type."""
            return {name: [taint["key"] for taint in device.get("taints", [])] for name, device in self.devices().items()
                    if device["attributes"]["vgpuType"] == {"string": "T4-4Q"}}
        self.addCleanup(wait_until, "claims can have all vGPUs again", lambda: len(published()) == 4, 60)
        self.addCleanup(self.choose_policies, POLICIES)
        self.kubernetes.kubectl("delete", "resourceslices", "--all")
        self.choose_policies(POLICIES + f'  - {{address: "{TESLA}", allocation: dra, allow: [whole, T4-8Q]}}\n')
        wait_until("of its type it is published alone", lambda: published() == {kept: ["gpu-ferry.io/in-use"]}, 60)
        self.kubernetes.kubectl("delete", "resourceslices", "--all", "--wait=false")
        others = {"four": FOUR_GIB, "eight": vgpu("T4-8Q"), "tesla": A_TESLA}
        for name, request in (*others.items(), ("card", A_CARD)):
            self.run_with_claim(name, name, request, waits=True)
            self.kubernetes.kubectl("delete", "resourceslices", "--all", "--wait=false")
        self.kubernetes.wait_for_pod("card")
        for name in others:
            self.wait_until_refused(name)
        taken = allocations(self.kubernetes.get("resourceclaims")["items"], POOL)
        self.assertEqual([(kept, "kept"), (WHOLE_CARD, "card")], sorted(taken))
        self.assertEqual({kept: ["gpu-ferry.io/in-use"]}, published())
        self.assertEqual("Running", self.phase("guest"))
        self.kubernetes.kubectl("delete", "pod", "guest", "--timeout=60s")
        wait_until("another one has the GPU", lambda: any(self.phase(name) == "Running" for name in ("eight", "tesla")), 90)
        self.assertEqual("Pending", self.phase("four"))

    def test_a_second_ferry_dra_starts_before_the_first_ends(self) -> None:
        """A second DaemonSet adds a pod on each node. Only one of the two works."""
        self.run_with_claim("guest", "kept", A_CARD)
        before, first = self.checkpoint(), self.ferry.uid("dra")

        def pods() -> list[str]:
            """The UIDs of those whose container runs."""
            return [pod["metadata"]["uid"] for pod in self.ferry.pods() if pod["metadata"]["labels"].get(
                "app.kubernetes.io/component") == "dra" and pod["status"]["phase"] == "Running"]
        self.addCleanup(self.update_ferry_dra, minReadySeconds=1,
                        updateStrategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
        self.update_ferry_dra(minReadySeconds=600, updateStrategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                              template={"metadata": {"annotations": {"example.com/version": "2"}}})
        wait_until("both run", lambda: len(pods()) == 2, 60)
        for number, both in enumerate((True, False)):
            if not both:
                self.update_ferry_dra(minReadySeconds=1)
                wait_until("the second one is alone", lambda: self.ferry.uid("dra") not in ("", first), 60)
            self.run_with_claim(f"other-{number}", f"new-{number}", FOUR_GIB)
            self.assertEqual(both, first in pods())
            self.assertEqual(number + 1, len(self.host.vgpus()))
            self.assertEqual("Running", self.phase("guest"))
            self.assertEqual(before["kept"], self.checkpoint()["kept"])
            self.assertEqual("vfio-pci", self.host.driver_of(CARD))

    def test_a_claim_is_deleted_while_ferry_dra_is_down(self) -> None:
        self.run_with_claim("guest", "kept", A_CARD)
        with self.without("dra", DAEMON_SET):
            self.kubernetes.kubectl("delete", "pod", "guest", "--force", "--grace-period=0", "--timeout=60s")
            self.kubernetes.kubectl("delete", "resourceclaim", "kept", "--timeout=120s")
            self.assertIn("kept", self.checkpoint())
            self.assertEqual("vfio-pci", self.host.driver_of(CARD), "nothing is undone without the kubelet's word")
        # The kubelet's repeated request removes it, or a list of the existing claims.
        wait_until("the GPU is back", lambda: self.host.drivers() == OWN and not self.checkpoint(), 400)
        self.run_with_claim("other", "next", A_CARD)

    def test_a_claimed_gpu_stays_with_dra(self) -> None:
        """A policy that takes it back is blocked until the claim has ended."""
        self.run_with_claim("guest", "kept", A_CARD)
        self.addCleanup(wait_until, "claims can have it again", lambda: WHOLE_CARD in self.devices(), 120)
        self.addCleanup(self.choose_policies, POLICIES)
        self.choose_policies(POLICIES.replace("allocation: dra", "mode: host"))
        wait_until("the node is blocked", lambda: self.kubernetes.node()["metadata"]["labels"].get(STATE) == "blocked", 90)
        self.assertEqual("vfio-pci", self.host.driver_of(CARD))
        self.assertEqual("Running", self.phase("guest"))
        self.kubernetes.remove_pods()
        wait_until("it is the host's", lambda: self.host.drivers() == OWN
                   and self.kubernetes.node()["metadata"]["labels"].get(STATE) == "ready", 120)
        wait_until("no device is published", lambda: self.slices() and not self.devices(), 60)

    # --- what its token may do ---------------------------------------------------------------------------------------

    def test_the_pods_token_writes_only_its_own_slices(self) -> None:
        pod = self.ferry.pod("dra")["metadata"]
        self.kubernetes.add_user(OF_THE_POD, self.kubernetes.kubectl(
            "create", "token", ACCOUNT, "-n", SPACE, "--bound-object-kind=Pod", f"--bound-object-name={pod['name']}",
            f"--bound-object-uid={pod['uid']}").strip())

        def answer(thing: dict[str, Any]) -> str:
            done = self.kubernetes.try_kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(thing), user=OF_THE_POD)
            return "" if done is not None else self.kubernetes.last_error

        def a_slice(node: str, driver: str = DRIVER, pool: str = "") -> dict[str, Any]:
            return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"generateName": "a-test-"},
                    "spec": {"driver": driver, "nodeName": node, "devices": [],
                             "pool": {"name": pool or f"{node}/gpu-ferry", "generation": 1, "resourceSliceCount": 1}}}

        def an_event(kind: str, name: str) -> dict[str, Any]:
            version = "resource.k8s.io/v1" if kind == "ResourceClaim" else "v1"
            space = {} if kind == "Node" else {"namespace": "default"}
            return {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "ferry-", "namespace": "default"},
                    "involvedObject": {"apiVersion": version, "kind": kind, "name": name, **space}, "reason": "Test",
                    "type": "Normal", "message": "a test", "source": {"component": "ferry"}, "firstTimestamp": None,
                    "lastTimestamp": None}
        for title, thing, refused_by in (
                ("a slice of its node", a_slice(NODE), ""),
                ("a slice of another node", a_slice("other-node"), SLICES_POLICY),
                ("another driver", a_slice(NODE, driver="gpu.example.com"), SLICES_POLICY),
                ("another node's pool", a_slice(NODE, pool="other-node/gpu-ferry"), SLICES_POLICY),
                ("an event of a claim", an_event("ResourceClaim", "any"), ""),
                ("an event of its node", an_event("Node", NODE), ""),
                ("an event of another node", an_event("Node", "other-node"), EVENTS_POLICY),
                ("an event of a pod", an_event("Pod", "any"), EVENTS_POLICY)):
            with self.subTest(title):
                said = answer(thing)
                if refused_by:
                    self.assertIn(f"ValidatingAdmissionPolicy '{refused_by}'", said)
                else:
                    self.assertEqual("", said)
        self.assertIn("forbidden", answer({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": SPACE}}))

    def test_the_api_server_accepts_the_policies_without_a_warning(self) -> None:
        for name in (SLICES_POLICY, EVENTS_POLICY):
            status = wait_until(f"{name} has been checked", lambda name=name: [
                found["status"] for found in [self.kubernetes.get("validatingadmissionpolicy", name)]
                if found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]], 60)[0]
            self.assertEqual([], [one["warning"] for one in status.get("typeChecking", {}).get("expressionWarnings", [])], name)
