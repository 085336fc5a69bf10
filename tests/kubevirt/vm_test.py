# SPDX-License-Identifier: Apache-2.0
"""VMs of KubeVirt get the GPUs and vGPUs that Ferry gives them, on a Node that is the virtual GPU node."""

import json
import os
import pathlib
import time
import unittest
from collections.abc import Callable
from typing import Any

import yaml

from cluster.claims import claim_of, pod_on, vgpu
from cluster.ferry_chart import CHART, PRESENT, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import Kubernetes
from cluster.programs import Failure
from kubevirt_cluster import CONTROLLERS, KubeVirt, manifests_of, wait_while_it_moves
from kubevirt_cluster import SPACE as KUBEVIRT
from virtual_node import NAME, VirtualNode

STATE, POLICY, ERROR = "gpu-ferry.io/state", "gpu-ferry.io/policy", "gpu-ferry.io/last-error"
WORKLOAD = "nvidia.com/gpu.workload.config"
CARD, AUDIO, VGPU = "nvidia.com/AD102GL_L40S", "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER", "nvidia.com/NVIDIA_L40S-12Q"

# A name that only a DeviceClass has.
OF_CLAIMS, EXTENDED_SINCE = "nvidia.com/GRID_T4-8Q", 36

DEMO = "gpu-demo"
# The VMs of the pages: page, namespace, and the device IDs that their guests see. A mediated device has the ID of its GPU.
VMS = {"gpu-vm": ("README.md", "default", ["22ba", "26b9"]), "vgpu-vm": ("docs/quickstart.md", DEMO, ["26b9"]),
       "claimed-vgpu": ("docs/dra.md", DEMO, ["1eb8"]), "claimed-gpu": ("docs/dra.md", DEMO, ["26b9"])}


class VmTest(unittest.TestCase):
    """Each test goes on from the one before it."""

    @classmethod
    def setUpClass(cls) -> None:
        programs = helms()
        if not programs:
            raise unittest.SkipTest("there is no Helm to be had")
        cls.helm = programs[-1]
        folder, made = pathlib.Path(os.environ["CLUSTER_FOLDER"]), pathlib.Path(os.environ["CLUSTER_KUBEVIRT"])
        of_kubernetes = pathlib.Path(os.environ["CLUSTER_PROGRAMS"])
        cls.began = time.monotonic()
        cls.kubernetes = Kubernetes(of_kubernetes, folder, os.environ["CLUSTER_GROUP"], other_node=NAME, controllers=CONTROLLERS)
        cls.kubernetes.start()
        cls.node = VirtualNode(cls.kubernetes, of_kubernetes, folder / "node",
                               [of_kubernetes / "image.tar", made / "image.tar", made / "guest.tar"])
        cls.kubevirt = KubeVirt(cls.kubernetes, made, cls.node.share / "pods")
        try:
            cls.node.start()
            cls.say("the virtual node boots")
            cls.kubevirt.install()
            cls.ferry = FerryChart(cls.kubernetes)
            cls.node.wait_until_ready()
            cls.say("the virtual node is a Node")
            cls.node.open_shell()
            cls.kubevirt.wait_until_deployed()
            cls.say("KubeVirt is deployed")
            cls.install_ferry()
            cls.permit()
        except Exception:
            cls.print_what_there_is()
            raise

    @classmethod
    def tearDownClass(cls) -> None:
        cls.node.stop()

    @classmethod
    def say(cls, what: str) -> None:
        print(f"{time.monotonic() - cls.began:6.0f} s: {what}", flush=True)

    @classmethod
    def print_what_there_is(cls) -> None:
        for words in (("get", "pods,vmis,resourceclaims", "-A", "-o", "wide"), ("get", "events", "-A"), ("get", "node", NAME, "-o", "yaml"),
                      ("describe", "pods", "-A")):
            print(cls.kubernetes.try_kubectl(*words))

    @classmethod
    def install_ferry(cls) -> None:
        """A GPU and its audio for VMs, one with vGPUs, two for claims."""
        cls.devices = devices = dict(line.split() for line in (cls.node.share / "devices").read_text().splitlines())
        policies = {"version": "v2", "policies": {"mixed": [
            {"address": devices["l40s"], "mode": "passthrough"},
            {"address": devices["l40s-vgpu"], "mode": "vgpu", "vgpu-devices": {"L40S-12Q": 2}},
            {"address": devices["l40s-claims"], "allocation": "dra"}, {"address": devices["t4"], "allocation": "dra"}]}}
        cls.values: dict[str, Any] = {**VALUES, "dra": {"enabled": True}, "config": {"policies": yaml.safe_dump(policies)}}
        cls.ferry.helm(cls.helm, "install", "ferry", CHART, values=cls.values)
        cls.kubernetes.kubectl("label", "node", NAME, f"{PRESENT}=true", f"{POLICY}=mixed")
        wait_while_it_moves("the node is as its label asks", lambda: cls.labels().get(STATE) == "ready", cls.progress)
        cls.say("Ferry has made the node ready")
        wait_while_it_moves("the kubelet has the devices", lambda: cls.allocatable(CARD) == 1 and cls.allocatable(VGPU) == 2, cls.progress)

    @classmethod
    def permit(cls) -> None:
        """The list of the KubeVirt object, as README has it printed."""
        pod = next(one for one in cls.ferry.pods() if one["metadata"]["labels"]["app.kubernetes.io/component"] == "plugin")
        patch = cls.kubernetes.kubectl("-n", SPACE, "exec", pod["metadata"]["name"], "--", "ferry", "--host-root=/host", "kubevirt-cr")
        cls.kubernetes.kubectl("-n", KUBEVIRT, "patch", "kubevirt", "kubevirt", "--type", "merge", "--patch", patch)

    @classmethod
    def labels(cls) -> Any:
        return cls.kubernetes.get("node", NAME)["metadata"]["labels"]

    @classmethod
    def allocatable(cls, resource: str) -> int:
        return int(cls.kubernetes.get("node", NAME)["status"]["allocatable"].get(resource, 0))

    @classmethod
    def progress(cls) -> str:
        return cls.kubevirt.progress() + str(cls.labels())

    # --- VMs -----------------------------------------------------------------------------------------------------------------

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Says what there is, once, where a test fails; the later ones are skipped then."""
        assert result is not None
        before = len(result.failures) + len(result.errors)
        if before:
            result.addSkip(self, "an earlier test has failed")
            return result
        out = super().run(result)
        if len(result.failures) + len(result.errors) > before:
            self.print_what_there_is()
        return out

    def test_1_vms_of_the_pages_get_their_devices(self) -> None:
        self.kubernetes.kubectl("create", "namespace", DEMO)
        # Two at a time, for the node has two processors: under emulation the start of a guest takes one for half a minute.
        for names in (("gpu-vm", "vgpu-vm"), ("claimed-vgpu", "claimed-gpu")):
            for name in names:
                manifests = manifests_of(VMS[name][0], name)
                if name == "gpu-vm":
                    manifests[-1]["spec"]["domain"]["devices"]["hostDevices"] = [{"name": "audio0", "deviceName": AUDIO}]
                self.kubevirt.apply(manifests)
            for name in names:
                _, space, devices = VMS[name]
                self.assertEqual(devices, self.kubevirt.devices_of_guest(name, space), name)
                self.say(f"the VM {name} has {', '.join(devices)}")

    def lives(self) -> dict[str, tuple[str, str]]:
        """The UID of each VM's launcher, and the start of its QEMU."""
        out = {}
        for name, (_, space, _) in VMS.items():
            pod, vmi = self.kubevirt.launcher(name, space), self.kubevirt.vmi(name, space)
            self.assertEqual("Running", vmi["status"]["phase"], name)
            started = self.node.shell(f"ps -o lstart= -p $(pgrep -f '[g]uest={space}_{name},')").strip()
            out[name] = (pod["metadata"]["uid"], started)
        return out

    def test_2_they_keep_them_while_ferry_and_kubevirt_restart(self) -> None:
        """Ferry's programs and KubeVirt's end and come again, and the chart is upgraded: no VM notices."""
        before = self.lives()
        for component in ("plugin", "agent", "node", "dra"):
            self.ferry_restarts(component, lambda: self.kubernetes.kubectl(
                "delete", "pod", "-n", SPACE, self.ferry.pod(component)["metadata"]["name"], "--grace-period=0", "--force"))
            self.assertEqual(before, self.lives(), component)
        self.say("plugin, agent, hostd and dra were killed")
        self.values["agent"] = {"logLevel": "debug"}
        self.ferry_restarts("agent", lambda: self.ferry.helm(self.helm, "upgrade", "ferry", CHART, values=self.values))
        self.assertEqual(before, self.lives())
        self.say("the chart was upgraded")
        handler = self.kubernetes.get("pods", "-n", KUBEVIRT, "-l", "kubevirt.io=virt-handler")["items"][0]
        self.kubernetes.kubectl("delete", "pod", "-n", KUBEVIRT, handler["metadata"]["name"], "--grace-period=0", "--force")
        wait_while_it_moves("virt-handler runs again", lambda: self.handler_runs(handler["metadata"]["uid"]), self.progress)
        self.assertEqual(before, self.lives())
        self.say("virt-handler was killed")

    def handler_runs(self, but: str) -> bool:
        return any(one["metadata"]["uid"] != but and all(c["ready"] for c in one["status"].get("containerStatuses", [{"ready": False}]))
                   for one in self.kubernetes.get("pods", "-n", KUBEVIRT, "-l", "kubevirt.io=virt-handler")["items"])

    def ferry_restarts(self, component: str, how: Callable[[], Any]) -> None:
        old = self.ferry.uid(component)
        how()
        wait_while_it_moves(f"Ferry's {component} runs again", lambda: self.ferry.runs("dra") and self.ferry.uid(component) != old
                            and self.labels().get(STATE) == "ready", self.progress)

    def test_3_the_label_takes_no_gpu_from_them(self) -> None:
        """The label takes a GPU away, and is refused as long as a VM has it: the reason names the VM."""
        before = self.lives()
        self.kubernetes.kubectl("label", "node", NAME, f"{POLICY}-", f"{WORKLOAD}=container")
        wait_while_it_moves("the node is blocked", lambda: self.labels().get(STATE) == "blocked", self.progress)
        error = self.annotation(ERROR)
        for name in ("VM default_gpu-vm", f"VM {DEMO}_vgpu-vm"):
            self.assertIn(name, error)
        self.assertEqual(before, self.lives())
        self.kubernetes.kubectl("label", "node", NAME, f"{POLICY}=mixed", f"{WORKLOAD}-")
        wait_while_it_moves("the node is ready again", lambda: self.labels().get(STATE) == "ready", self.progress)
        self.assertEqual(before, self.lives())
        self.say(f"the label was refused: {error}")

    def annotation(self, key: str) -> str:
        return str(self.kubernetes.get("node", NAME)["metadata"].get("annotations", {}).get(key, ""))

    def test_4_others_do_not_start_and_the_doctor_says_why(self) -> None:
        """Three VMs get no GPU, each for another reason, and `kubectl ferry doctor vm` names it."""
        for name, resource, reason in (
                ("second-vm", CARD, f"asks for 1 x {CARD}, which no node has free: {NAME} has 0 free"),
                ("misspelt-vm", f"{CARD}S", f"asks for {CARD}S, which no node advertises"),
                ("unlisted-vm", VGPU, f"{VGPU} is not listed")):
            if name == "unlisted-vm":
                self.permitted(lambda entry: entry["resourceName"] != VGPU)
            vm = manifests_of("README.md", "gpu-vm")[-1]
            vm["metadata"]["name"] = name
            vm["spec"]["domain"]["devices"]["gpus"][0]["deviceName"] = resource
            self.kubevirt.apply([vm])
            wait_while_it_moves(f"the doctor gives the reason of {name}", lambda: self.doctor_of(name, reason), self.progress)
            self.assertNotEqual("Running", self.kubevirt.vmi(name).get("status", {}).get("phase"))
            self.say(f"{name} does not start: it {reason}")
            self.kubernetes.kubectl("delete", "vmi", name)
        self.permit()

    def permitted(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Leaves these entries of the KubeVirt object alone."""
        lists = self.kubernetes.get("kubevirt", "-n", KUBEVIRT, "kubevirt")["spec"]["configuration"]["permittedHostDevices"]
        self.configure({"permittedHostDevices": {key: [one for one in entries if keep(one)] for key, entries in lists.items()}})

    def doctor_of(self, name: str, reason: str) -> str:
        """The doctor's findings about a VM, once they give the reason."""
        said = self.kubernetes.run_plugin("ferry", "doctor", "vm", f"default/{name}").stdout
        return said if reason in said else ""

    def test_5_they_do_not_migrate(self) -> None:
        self.kubernetes.try_kubectl("apply", "-f", "-", stdin=json.dumps({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "away", "namespace": "default"}, "spec": {"vmiName": "gpu-vm"}}))
        self.assertIn("HostDeviceNotLiveMigratable", self.kubernetes.last_error)
        self.say(f"no migration: {self.kubernetes.last_error.strip()}")

    def test_6_their_devices_go_to_the_next_ones(self) -> None:
        """A VM is deleted, and the next one gets its GPU. A VM's QEMU is killed, and its claimed GPU is the host's."""
        self.kubernetes.kubectl("delete", "vmi", "gpu-vm", "--wait=false")
        again = manifests_of("README.md", "gpu-vm")
        again[-1]["metadata"]["name"] = "next-vm"
        self.kubevirt.apply(again)
        self.node.shell(f"kill -9 $(pgrep -f '[g]uest={DEMO}_claimed-gpu,')")
        wait_while_it_moves("KubeVirt notices it", lambda: self.kubevirt.vmi("claimed-gpu", DEMO)["status"]["phase"] == "Failed", self.progress)
        self.kubernetes.kubectl("delete", "vmi", "-n", DEMO, "claimed-gpu", "--wait=false")
        wait_while_it_moves("the claimed GPU is on its driver", lambda: "nvidia" in self.node.shell(
            f"readlink /sys/bus/pci/devices/{self.devices['l40s-claims']}/driver"), self.progress)
        self.say("a killed VM has left its GPU")
        wait_while_it_moves("the next VM runs", lambda: self.runs_or_begins_anew(again), self.progress)
        self.assertEqual(["26b9"], self.kubevirt.devices_of_guest("next-vm"))
        self.assertRegex(self.kubernetes.run_plugin("ferry", "list").stdout, f"{CARD} .* 1 of 1 ")
        self.say("the next VM has the GPU")

    def runs_or_begins_anew(self, manifests: list[Any]) -> bool:
        """Under emulation a GPU may be sanitized for longer than Allocate waits. The VM is then refused, and made again."""
        name = manifests[-1]["metadata"]["name"]
        phase = self.kubevirt.phase(name)
        if phase == "Failed":
            pod = self.kubevirt.launcher(name)
            if pod:
                self.assertIn("is being sanitized", pod["status"]["message"])
            self.kubernetes.kubectl("delete", "vmi", name)
            self.kubevirt.apply(manifests)
            self.say(f"{name} came before its GPU was sanitized, and is made again")
        return phase == "Running"

    def test_7_a_vm_gets_a_claimed_vgpu_by_the_name_of_a_resource(self) -> None:
        """A DeviceClass has the name for which the VM asks. The VM's manifest says nothing of claims."""
        if self.kubernetes.release.minor < EXTENDED_SINCE:
            self.skipTest(f"Kubernetes before 1.{EXTENDED_SINCE} has no extended resources by claims")
        self.values["dra"] |= {"deviceClasses": {"more": [{"vgpuType": "T4-8Q", "extendedResourceName": OF_CLAIMS}]}}
        self.ferry_restarts("node", lambda: self.ferry.helm(self.helm, "upgrade", "ferry", CHART, values=self.values))
        self.permit()
        vm = manifests_of("README.md", "gpu-vm")[-1]
        vm["metadata"]["name"] = "named-vm"
        vm["spec"]["domain"]["devices"]["gpus"][0]["deviceName"] = OF_CLAIMS
        self.kubevirt.apply([vm])
        self.assertEqual(["1eb8"], self.kubevirt.devices_of_guest("named-vm"))
        claims = [one["metadata"] for one in self.kubernetes.get("resourceclaims", "-n", "default")["items"]]
        self.assertEqual(["true"], [one["annotations"]["resource.kubernetes.io/extended-resource-claim"] for one in claims])
        self.kubernetes.kubectl("delete", "vmi", "named-vm")
        wait_while_it_moves("its claim is gone", lambda: not self.kubernetes.get("resourceclaims", "-n", "default")["items"], self.progress)
        self.say(f"a VM got {OF_CLAIMS} of a claim that its manifest does not name")

    def test_8_a_claimed_vgpu_that_kubevirt_removes_is_named(self) -> None:
        """KubeVirt removes mediated devices unless its object says otherwise, and Ferry names the claim."""
        # While a VM of the node had a mediated device, virt-handler was not seen to remove another one.
        self.kubernetes.kubectl("delete", "vm", "-n", DEMO, "vgpu-vm")
        self.kubernetes.kubectl("delete", "vmi", "-n", DEMO, "claimed-vgpu")
        self.kubernetes.apply(claim_of("vgpu", {"card": vgpu("T4-4Q")}))
        self.hold_claim("holder")
        self.configure({"mediatedDevicesConfiguration": None, "permittedHostDevices": None})
        wait_while_it_moves("Ferry names the claim whose vGPU KubeVirt removed", lambda: self.losses("ResourceClaim"), self.progress)
        self.assertIn("claim default/vgpu: another program has taken away its device", self.losses("ResourceClaim")[0])
        wait_while_it_moves("the Node has the event, too", lambda: self.losses("Node"), self.progress)
        self.configure({"mediatedDevicesConfiguration": {"enabled": False}})
        self.kubernetes.kubectl("delete", "pod", "holder", "--grace-period=1")
        self.hold_claim("next-holder")
        self.kubernetes.kubectl("delete", "pod", "next-holder", "--grace-period=1")
        self.kubernetes.kubectl("delete", "resourceclaim", "vgpu")
        self.say("KubeVirt removed a claimed vGPU, and the next pod got it anew")

    def test_9_a_drain_evicts_them(self) -> None:
        """With agent.drain the label evicts the VMs, and the GPUs go back to their drivers."""
        self.values["agent"] = {"drain": {"enabled": True}}
        self.ferry_restarts("agent", lambda: self.ferry.helm(self.helm, "upgrade", "ferry", CHART, values=self.values))
        self.kubernetes.kubectl("label", "node", NAME, f"{POLICY}-", f"{WORKLOAD}=container")
        wait_while_it_moves("the GPUs are the host's", lambda: self.labels().get(STATE) == "ready" and self.allocatable(CARD) == 0
                            and self.allocatable(VGPU) == 0, self.progress)
        self.assertIn(self.kubevirt.vmi("next-vm")["status"]["phase"], ("Succeeded", "Failed"))
        self.assertIn("nvidia", self.node.shell(f"readlink /sys/bus/pci/devices/{self.devices['l40s']}/driver"))
        self.say("the drain has evicted the VMs, and the GPUs are the host's")

    def configure(self, configuration: dict[str, Any]) -> None:
        patch = json.dumps({"spec": {"configuration": configuration}})

        def is_taken() -> bool:
            try:
                self.kubernetes.kubectl("-n", KUBEVIRT, "patch", "kubevirt", "kubevirt", "--type", "merge", "--patch", patch)
            except Failure as failure:
                if "failed to call webhook" not in str(failure):
                    raise
                return False  # the operator, which answers it, is not ready for a moment
            return True
        wait_while_it_moves("KubeVirt takes its configuration", is_taken, self.progress)

    def hold_claim(self, name: str) -> None:
        """Returns when a pod with the claim `vgpu` runs."""
        pod = pod_on(NAME, name, "vgpu")
        pod["spec"]["containers"][0] |= {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}
        self.kubernetes.apply(pod)
        wait_while_it_moves(f"the pod {name} runs", lambda: self.kubernetes.pod(name)["phase"] == "Running", self.progress)

    def losses(self, kind: str) -> list[str]:
        return [one["message"] for one in self.kubernetes.get("events", "-A")["items"]
                if one["reason"] == "GpuDeviceLost" and one["involvedObject"]["kind"] == kind]
