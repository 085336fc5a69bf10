# SPDX-License-Identifier: Apache-2.0
"""`ferry dra` as the chart installs it: ResourceClaims by the real scheduler, kubelet and containerd, on a host whose GPUs move.

The host has a 4090, whose audio shares its group 11, and a T4 with vGPU types in group 12. All are for claims.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import unittest
from collections.abc import Iterator
from typing import Any

from cluster.ferry_chart import CHART, PRESENT, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import IMAGE, NODE, Kubernetes
from cluster.living_host import CARD, TESLA, LivingHost
from cluster.programs import wait_until

DRIVER, POOL = "gpu-ferry.io", f"{NODE}/gpu-ferry"
WHOLE_CARD, WHOLE_TESLA = "whole-0000-01-00-0", "whole-0000-02-00-0"
STATE = "gpu-ferry.io/state"
DAEMON_SET = "ferry-dra"
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
                          "dra": {"enabled": True, "extraEnv": VALUES["agent"]["extraEnv"]}}


def whole(device: str) -> dict[str, Any]:
    """A request for a GPU with this device ID, in the form of `exactly`."""
    return {"deviceClassName": "whole.gpu-ferry.io",
            "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].deviceID == '{device}'"}}]}


def vgpu(kind: str) -> dict[str, Any]:
    return {"deviceClassName": "vgpu.gpu-ferry.io",
            "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].vgpuType == '{kind}'"}}]}


A_CARD, A_TESLA, FOUR_GIB = whole("0x2684"), whole("0x1eb8"), vgpu("T4-4Q")


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
            cls.ferry.tell()
            raise

    @classmethod
    def tearDownClass(cls) -> None:
        cls.host.kernel.stop()

    def setUp(self) -> None:
        self.addCleanup(self.expect_nothing_left)
        self.addCleanup(self.remove_all)

    # --- what people do ----------------------------------------------------------------------------------------------

    def claim(self, name: str, requests: dict[str, dict[str, Any]], **more: Any) -> None:
        self.kubernetes.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                               "metadata": {"name": name, "namespace": "default"}, "spec": self.spec_of(requests, **more)})

    def template(self, name: str, requests: dict[str, dict[str, Any]]) -> None:
        self.kubernetes.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                               "metadata": {"name": name, "namespace": "default"}, "spec": {"spec": self.spec_of(requests)}})

    @staticmethod
    def spec_of(requests: dict[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
        """A request with `firstAvailable` has that key alone; each other one is exact."""
        return {"devices": {"requests": [{"name": name, **(what if "firstAvailable" in what else {"exactly": what})}
                                         for name, what in requests.items()], **more}}

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

    def remove_all(self) -> None:
        self.kubernetes.kubectl("delete", "pods", "--all", "--grace-period=1", "--timeout=180s")
        for kind in ("resourceclaims", "resourceclaimtemplates"):
            self.kubernetes.kubectl("delete", kind, "--all", "--timeout=60s")

    @contextlib.contextmanager
    def without_ferry_dra(self) -> Iterator[None]:
        def patch(value: str | None) -> None:
            change = {"spec": {"template": {"spec": {"nodeSelector": {"example.com/no-node": value}}}}}
            self.kubernetes.kubectl("patch", "daemonset", DAEMON_SET, "-n", SPACE, "-p", json.dumps(change))
        patch("yes")
        try:
            wait_until("its pod is gone", lambda: not self.kubernetes.get(
                "pods", "-n", SPACE, "-l", "app.kubernetes.io/component=dra")["items"], 120)
            yield
        finally:
            patch(None)
            wait_until("it runs again", lambda: self.ferry.runs("dra"), 120)

    # --- what is to be seen ------------------------------------------------------------------------------------------

    @classmethod
    def slices(cls) -> list[Any]:
        return [one for one in cls.kubernetes.get("resourceslices")["items"] if one["spec"]["driver"] == DRIVER]

    @classmethod
    def devices(cls) -> dict[str, Any]:
        """By name, of the newest generation; nothing while a slice of that is missing."""
        pools = [one["spec"] for one in cls.slices()]
        newest = max((spec["pool"]["generation"] for spec in pools), default=0)
        now = [spec for spec in pools if spec["pool"]["generation"] == newest]
        if not now or len(now) != now[0]["pool"]["resourceSliceCount"]:
            return {}
        return {device["name"]: device for spec in now for device in spec.get("devices") or []}

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
        self.claim("four-more", {"card": FOUR_GIB})
        self.run_pod("other", {"gpu": {"resourceClaimName": "four-more"}})
        self.kubernetes.wait_for_pod("other")
        self.assertEqual(2, len(self.host.vgpus()))
        self.claim("eight", {"card": vgpu("T4-8Q")})
        self.run_pod("waits", {"gpu": {"resourceClaimName": "eight"}})
        wait_until("the scheduler has looked", lambda: any(
            one.get("reason") == "Unschedulable" for one in self.kubernetes.pod("waits").get("conditions", [])), 60)
        self.kubernetes.kubectl("delete", "pods", "guest", "other", "--grace-period=1", "--timeout=120s")
        self.kubernetes.wait_for_pod("waits")
        self.assertEqual(1, len(self.host.vgpus()))

    def test_first_available_takes_the_first_that_there_is(self) -> None:
        self.claim("some", {"card": {"firstAvailable": [{"name": "large", **vgpu("L40S-48Q")}, {"name": "small", **FOUR_GIB}]}})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "some"}},
                     f"cat {METADATA}/resourceclaims/some/card/*-metadata.json")
        text = "\n".join(self.shown_by("guest"))
        self.assertEqual("card/small", json.JSONDecoder().raw_decode(text)[0]["requests"][0]["name"])
        self.assertEqual(["card/small"], [one["request"] for one in self.allocated("some")])
        wait_until("an event says that KubeVirt does not find it", lambda: "GpuClaimWarning" in [
            reason for reason, _ in self.events_of("some")], 60)

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

    def test_two_claims_of_a_pod_of_which_one_fails(self) -> None:
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

    def test_the_kubelet_restarts_below_a_pod(self) -> None:
        self.claim("kept", {"card": A_CARD})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "kept"}})
        self.kubernetes.wait_for_pod("guest")
        before = self.checkpoint()
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how.name):
                self.kubernetes.restart_kubelet(how)
                # A kubelet that starts deletes the slices of its node.
                wait_until("the slices are back", lambda: {WHOLE_CARD, WHOLE_TESLA} <= set(self.devices()), 90)
                self.assertEqual("Running", self.phase("guest"))
                self.assertEqual(before, self.checkpoint())
        self.claim("new", {"card": FOUR_GIB})
        self.run_pod("other", {"gpu": {"resourceClaimName": "new"}})
        self.kubernetes.wait_for_pod("other")

    def test_ferry_dra_restarts_below_a_pod(self) -> None:
        self.claim("kept", {"card": A_CARD})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "kept"}})
        self.kubernetes.wait_for_pod("guest")
        before, uid = self.checkpoint(), self.ferry.uid("dra")
        self.kubernetes.kubectl("delete", "pod", "-n", SPACE, "-l", "app.kubernetes.io/component=dra", "--timeout=60s")
        wait_until("another one runs", lambda: self.ferry.uid("dra") not in ("", uid), 120)
        wait_until("it publishes all", lambda: {WHOLE_CARD, WHOLE_TESLA} <= set(self.devices()), 60)
        self.assertEqual("Running", self.phase("guest"))
        self.assertEqual(before, self.checkpoint())
        self.assertEqual("vfio-pci", self.host.driver_of(CARD))
        self.claim("new", {"card": A_TESLA})
        self.run_pod("other", {"gpu": {"resourceClaimName": "new"}})
        self.kubernetes.wait_for_pod("other")
        self.assertEqual("vfio-pci", self.host.driver_of(TESLA))

    def test_hostd_restarts_below_a_pod(self) -> None:
        self.claim("kept", {"card": A_CARD})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "kept"}})
        self.kubernetes.wait_for_pod("guest")
        uid = self.ferry.uid("node")
        self.kubernetes.kubectl("delete", "pod", "-n", SPACE, "-l", "app.kubernetes.io/component=node", "--timeout=120s")
        # While hostd is away, a claim waits with the reason.
        self.claim("new", {"card": FOUR_GIB})
        self.run_pod("other", {"gpu": {"resourceClaimName": "new"}})
        wait_until("another one runs", lambda: self.ferry.uid("node") not in ("", uid), 120)
        self.kubernetes.wait_for_pod("other")
        self.assertEqual("vfio-pci", self.host.driver_of(CARD))
        self.assertEqual("Running", self.phase("guest"))

    def test_slices_that_are_deleted_come_back(self) -> None:
        self.claim("kept", {"card": FOUR_GIB})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "kept"}})
        self.kubernetes.wait_for_pod("guest")
        before = set(self.devices())
        self.kubernetes.kubectl("delete", "resourceslices", "--all")
        wait_until("all devices are back", lambda: set(self.devices()) == before, 60)
        self.assertEqual({POOL}, {one["spec"]["pool"]["name"] for one in self.slices()})
        self.assertEqual({NODE}, {one["spec"]["nodeName"] for one in self.slices()})

    def test_a_claim_goes_while_ferry_dra_is_down(self) -> None:
        self.claim("kept", {"card": A_CARD})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "kept"}})
        self.kubernetes.wait_for_pod("guest")
        with self.without_ferry_dra():
            self.kubernetes.kubectl("delete", "pod", "guest", "--force", "--grace-period=0", "--timeout=60s")
            self.kubernetes.kubectl("delete", "resourceclaim", "kept", "--timeout=120s")
            self.assertIn("kept", self.checkpoint())
            self.assertEqual("vfio-pci", self.host.driver_of(CARD), "nothing is undone without the kubelet's word")
        # By the kubelet's repeated request, or by a look at the claims that there are.
        wait_until("the GPU is back", lambda: self.host.drivers() == OWN and not self.checkpoint(), 400)
        self.claim("next", {"card": A_CARD})
        self.run_pod("other", {"gpu": {"resourceClaimName": "next"}})
        self.kubernetes.wait_for_pod("other")

    def test_a_gpu_that_a_claim_has_stays_with_dra(self) -> None:
        """A policy that takes it back is blocked until the claim has ended."""
        self.claim("kept", {"card": A_CARD})
        self.run_pod("guest", {"gpu": {"resourceClaimName": "kept"}})
        self.kubernetes.wait_for_pod("guest")
        self.addCleanup(wait_until, "claims can have it again", lambda: WHOLE_CARD in self.devices(), 120)
        self.addCleanup(self.ferry.helm, self.program, "upgrade", "ferry", CHART, "--reuse-values",
                        values={"config": {"policies": POLICIES}})
        self.ferry.helm(self.program, "upgrade", "ferry", CHART, "--reuse-values", values={
            "config": {"policies": POLICIES.replace("allocation: dra", "mode: host")}})
        wait_until("the node is blocked", lambda: self.kubernetes.node()["metadata"]["labels"].get(STATE) == "blocked", 90)
        self.assertEqual("vfio-pci", self.host.driver_of(CARD))
        self.assertEqual("Running", self.phase("guest"))
        self.kubernetes.remove_pods()
        wait_until("it is the host's", lambda: self.host.drivers() == OWN
                   and self.kubernetes.node()["metadata"]["labels"].get(STATE) == "ready", 120)
        wait_until("no device is published", lambda: self.slices() and not self.devices(), 60)

    # --- what its token may do ---------------------------------------------------------------------------------------

    def test_the_token_of_the_pod_writes_its_own_slices_alone(self) -> None:
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

    def test_the_api_server_has_no_warning_about_a_policy(self) -> None:
        for name in (SLICES_POLICY, EVENTS_POLICY):
            status = wait_until(f"{name} has been checked", lambda name=name: [
                found["status"] for found in [self.kubernetes.get("validatingadmissionpolicy", name)]
                if found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]], 60)[0]
            self.assertEqual([], [one["warning"] for one in status.get("typeChecking", {}).get("expressionWarnings", [])], name)
