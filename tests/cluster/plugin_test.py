# SPDX-License-Identifier: Apache-2.0
"""`ferry plugin` on a node of a cluster: what the API server shows and what pods get; and `kubectl ferry kubevirt-cr`
there."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import stat
import subprocess
import time
import unittest
from collections.abc import Iterator
from typing import Any

from cluster.gpus import NODE_OF_ALL, Host, number_of
from cluster.kubernetes import Kubernetes
from cluster.programs import Failure, Program, wait_until
from kubevirt_cr import STATUS_DIFFERS, STATUS_DONE, STATUS_FAILED, STATUS_REFUSED, THEIRS, KubevirtObject

CARD = "nvidia.com/AD102_GEFORCE_RTX_4090"
AUDIO = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"
OTHER = "nvidia.com/GH100_H100_SXM5_80GB"
ALL = {CARD: 2, AUDIO: 2, OTHER: 1}
GROUPS = {"0000:01:00.0": 11, "0000:02:00.0": 12, "0000:03:00.0": 13}
VGPU = "nvidia.com/NVIDIA_A40-8Q"
PGPU = "nvidia.com/pgpu"
# A shell has no variables with "-" in their names, and passes none on.
SHOW = "tr '\\0' '\\n' < /proc/1/environ | grep -E '^(MDEV_)?PCI_RESOURCE_'; cd /dev/vfio; stat -c '%n %t:%T' *; echo END"


class PluginTest(unittest.TestCase):
    """Two cards, each with its audio in its group, and another GPU."""

    @classmethod
    def setUpClass(cls) -> None:
        begin = time.monotonic()
        folder = pathlib.Path(os.environ["CLUSTER_FOLDER"])
        cls.host = Host(folder / "host")
        for address, group in list(GROUPS.items())[:2]:
            cls.host.add(address, "10de:2684", "030000", group)
            cls.host.add(address[:-1] + "1", "10de:22ba", "040300", group)
        cls.host.add("0000:03:00.0", "10de:2330", "030200", 13)
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"])
        cls.kubernetes.start()
        cls.plugin = cls.plugin_with("--companions")
        cls.plugin.start()
        cls.plugin.wait_until("all are allocatable", lambda: cls.kubernetes.devices() == ALL, 60)
        print(f"the cluster is up after {time.monotonic() - begin:.0f} s")

    @classmethod
    def plugin_with(cls, *flags: str, environment: dict[str, str] | None = None) -> Program:
        return Program(cls.kubernetes.logs, os.environ["CLUSTER_BIN"] + "/ferry", "--host-root", str(cls.host.root),
                       "plugin", *flags, environment=environment)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.plugin.stop()

    @contextlib.contextmanager
    def in_its_place(self, other: Program) -> Iterator[None]:
        self.plugin.stop()
        self.expect_allocatable({})
        other.start()
        try:
            yield
        finally:
            other.stop()
            try:
                # A plugin that registers a resource while the kubelet still ends the former one's stream may never count
                # as ended later: the kubelet then goes on to advertise its devices.
                self.expect_allocatable({})
            finally:
                self.plugin.start()

    def setUp(self) -> None:
        self.addCleanup(self.expect_allocatable, ALL)  # the release of a group is learnt in some seconds
        self.addCleanup(self.kubernetes.remove_pods)

    def devices(self, of: str = "allocatable") -> dict[str, int]:
        """The resources with devices; a Node never forgets a resource that it has had."""
        return {name: count for name, count in self.kubernetes.devices(of).items() if count != 0}

    def expect_allocatable(self, expected: dict[str, int]) -> None:
        seen: dict[str, int] = {}

        def are_there() -> bool:
            nonlocal seen
            seen = self.devices()
            return seen == {name: count for name, count in expected.items() if count != 0}
        try:
            wait_until("", are_there, 60)
        except Failure:
            self.fail(f"{expected} are not allocatable after 60 s, but {seen}")

    def shown_by(self, pod: str) -> list[str]:
        """The lines of SHOW in a pod that runs."""
        self.kubernetes.wait_for_pod(pod)
        log = wait_until(f"{pod} has said all", lambda: [
            lines for lines in [self.kubernetes.kubectl("logs", pod).splitlines()] if "END" in lines], 60)
        return log[0][:-1]

    def device_of(self, pod: str) -> str:
        return self.shown_by(pod)[0].split("=")[1]

    def noted_by_kubelet(self) -> dict[str, list[str]]:
        """The kubelet's own list: resource -> the IDs that are Healthy."""
        file = pathlib.Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
        found: dict[str, list[str]] = json.loads(file.read_text())["Data"]["RegisteredDevices"]
        return {resource: sorted(ids) for resource, ids in found.items() if ids}

    def status_of(self, pod: str) -> tuple[str, Any]:
        status = self.kubernetes.pod(pod)
        return status["phase"], [one["message"] for one in status.get("conditions", []) if "message" in one]

    def test_a_pod_gets_its_environment_and_its_nodes(self) -> None:
        self.kubernetes.run_pod("one", {OTHER: 1}, SHOW)
        self.assertEqual(["PCI_RESOURCE_NVIDIA_COM_GH100_H100_SXM5_80GB=0000:03:00.0",
                          f"13 {self.node_number(number_of(13))}", f"vfio {self.node_number(NODE_OF_ALL)}"],
                         self.shown_by("one"))

    def test_a_pod_gets_two_devices_of_a_resource(self) -> None:
        self.kubernetes.run_pod("both", {CARD: 2}, SHOW)
        environment, *nodes = self.shown_by("both")
        self.assertEqual(["0000:01:00.0", "0000:02:00.0"], sorted(environment.split("=")[1].split(",")))
        self.assertEqual(["11", "12", "vfio"], [node.split()[0] for node in nodes])
        self.expect_allocatable({CARD: 2, AUDIO: 0, OTHER: 1})

    def test_a_pod_waits_for_the_rest_of_a_group(self) -> None:
        self.kubernetes.run_pod("cards", {CARD: 2}, SHOW)
        self.shown_by("cards")
        self.expect_allocatable({CARD: 2, AUDIO: 0, OTHER: 1})
        self.kubernetes.run_pod("audio", {AUDIO: 1}, SHOW)

        def is_reported() -> Any:
            # A scheduler that has not heard of the Node's change yet gives it the pod, and the kubelet does not take it.
            status = self.kubernetes.pod("audio")
            if status["phase"] == "Failed" and status.get("reason") == "UnexpectedAdmissionError":
                self.kubernetes.kubectl("delete", "pod", "audio", "--grace-period=5", "--timeout=60s")
                self.kubernetes.run_pod("audio", {AUDIO: 1}, SHOW)
                return None
            return self.status_of("audio")[1]
        wait_until("the scheduler has tried the pod", is_reported, 60)
        phase, messages = self.status_of("audio")
        self.assertEqual("Pending", phase)
        self.assertIn(f"Insufficient {AUDIO}", messages[0])
        self.kubernetes.kubectl("delete", "pod", "cards", "--grace-period=5")
        self.assertIn(self.device_of("audio"), ("0000:01:00.1", "0000:02:00.1"))

    def test_an_unhealthy_device_is_not_allocatable_until_it_is_healthy_again(self) -> None:
        self.host.remove_node(12)
        self.addCleanup(self.host.add_node, 12)
        self.expect_allocatable({CARD: 1, AUDIO: 1, OTHER: 1})
        self.assertEqual(ALL, self.devices("capacity"), "it is still the node's")
        self.kubernetes.run_pod("one", {CARD: 1}, SHOW)
        self.assertEqual("0000:01:00.0", self.device_of("one"))
        self.host.add_node(12)
        self.expect_allocatable({CARD: 2, AUDIO: 1, OTHER: 1})

    def test_a_new_plugin_knows_the_allocations(self) -> None:
        self.kubernetes.run_pod("before", {CARD: 1}, SHOW)
        held = self.device_of("before")
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how.name):
                self.plugin.stop(how)
                self.expect_allocatable({CARD: 0, AUDIO: 0, OTHER: 0})
                self.plugin.start()
                self.expect_allocatable({CARD: 2, AUDIO: 1, OTHER: 1})
        self.kubernetes.run_pod("after", {AUDIO: 1}, SHOW)
        self.assertNotEqual(held[:-1], self.device_of("after")[:-1])
        if self.kubernetes.release.current:  # the kubelet of 1.20 does not count them
            self.assertGreater(self.kubernetes.kubelet_metrics("kubelet_pod_resources_endpoint_requests_total")["v1"], 0)

    def test_allocations_of_nvidias_plugin_are_kept(self) -> None:
        theirs = Program(self.kubernetes.logs, os.environ["CLUSTER_BIN"] + "/former-plugin",
                         "/var/lib/kubelet/device-plugins", CARD.split("/")[1],
                         *[f"{address}={group}" for address, group in list(GROUPS.items())[:2]])
        with self.in_its_place(theirs):
            self.expect_allocatable({CARD: 2})
            self.kubernetes.run_pod("before", {CARD: 1}, SHOW)
            held = self.device_of("before")
        # Its audio, too: the group is the VM's.
        self.expect_allocatable({CARD: 2, AUDIO: 1, OTHER: 1})
        for how in (signal.SIGTERM, signal.SIGKILL):
            self.kubernetes.restart_kubelet(how)
            self.expect_allocatable({CARD: 2, AUDIO: 1, OTHER: 1})
            self.assertEqual("Running", self.kubernetes.pod("before")["phase"])
        self.kubernetes.run_pod("after", {CARD: 1}, SHOW)
        self.assertEqual({"0000:01:00.0", "0000:02:00.0"}, {held, self.device_of("after")})

    def test_twenty_kubelets_list_every_device_once(self) -> None:
        self.kubernetes.run_pod("before", {CARD: 1}, SHOW)
        held = self.device_of("before")
        with_one_held = {CARD: 2, AUDIO: 1, OTHER: 1}
        self.expect_allocatable(with_one_held)
        cards = ["0000:01:00.0", "0000:02:00.0"]
        healthy = {CARD: cards, AUDIO: [f"{card[:-1]}1" for card in cards if card != held], OTHER: ["0000:03:00.0"]}
        seconds = []
        complete = 0
        for number in range(20):
            self.kubernetes.restart_kubelet(signal.SIGTERM if number % 2 else signal.SIGKILL)
            begin = time.monotonic()
            while (now := self.devices()) != with_one_held:
                self.assertEqual({}, {name: count for name, count in now.items() if count > ALL.get(name, 0)})
                self.assertLess(time.monotonic() - begin, 60, f"after restart {number}: {now}")
            seconds.append(time.monotonic() - begin)
            self.assertEqual({resource: 1 for resource in ALL}, self.kubernetes.registrations(), f"restart {number}")
            # It reports what it has heard before it has written it down; and what it knew when it began to write may
            # overtake what it knew later: then one is missing there, and none is another.
            noted = wait_until("the kubelet has noted some, and no others", lambda: (now := self.noted_by_kubelet()) and all(
                ids == healthy[resource] for resource, ids in now.items()) and now, 30)
            complete += noted == healthy
            self.assertEqual(ALL, self.devices("capacity"))
        print(f"all are back {max(seconds):.1f} s, at most, after the kubelet's first report; {complete} of 20 have noted all")

        self.assertEqual("Running", self.kubernetes.pod("before")["phase"])
        self.kubernetes.run_pod("after", {CARD: 1}, SHOW)
        self.assertNotEqual(held, self.device_of("after"))
        self.kubernetes.run_pod("too-many", {CARD: 1}, SHOW)
        wait_until("the scheduler has tried the pod", lambda: self.status_of("too-many")[1], 60)
        self.assertEqual("Pending", self.status_of("too-many")[0])

    # --- further options of the plugin -------------------------------------------------------------------------------

    def test_the_kubelets_plugin_watcher_finds_the_plugin(self) -> None:
        with self.in_its_place(self.plugin_with("--companions", "--plugin-watcher")):
            self.expect_allocatable(ALL)
            self.kubernetes.run_pod("one", {OTHER: 1}, SHOW)
            self.assertEqual("0000:03:00.0", self.device_of("one"))
            self.kubernetes.restart_kubelet(signal.SIGTERM)
            self.expect_allocatable(ALL)
            self.assertEqual("Running", self.kubernetes.pod("one")["phase"])
            self.kubernetes.remove_pods()
        self.assertEqual([], list(pathlib.Path("/var/lib/kubelet/plugins_registry").glob("*.sock")), "it has left nothing")

    def test_one_node_serves_virtual_machines_and_kata(self) -> None:
        with self.in_its_place(self.plugin_with("--mode", "both", environment={"P_GPU_ALIAS": "pgpu"})):
            # The kubelet forgets what nobody offers any more only after some minutes.
            self.expect_allocatable({CARD: 2, AUDIO: 2, OTHER: 1, PGPU: 3})
            self.kubernetes.run_pod("kata", {PGPU: 2}, SHOW)
            # No variable: Kata learns from the kubelet's pod resources which it has.
            groups = [line.split()[0] for line in self.shown_by("kata")]
            self.assertEqual("vfio", groups.pop())
            specification = (self.host.root / "var/run/cdi/nvidia.com-pgpu.yaml").read_text()
            for group in groups:
                self.assertRegex(specification, f'- name: "{group}"\n  containerEdits:\n    deviceNodes:\n    - path: /dev/vfio/vfio\n'
                                                rf"      fileMode: \d+\n    - path: /dev/vfio/{group}\n      fileMode: \d+\n")
            others = 1 if "13" in groups else 0
            self.expect_allocatable({CARD: others, AUDIO: others, OTHER: 1 - others, PGPU: 3})
            self.kubernetes.remove_pods()
            self.expect_allocatable({CARD: 2, AUDIO: 2, OTHER: 1, PGPU: 3})
        self.expect_allocatable(ALL | {PGPU: 0})

    def test_containerd_injects_the_cdi_devices(self) -> None:
        """Allocate answers with CDI names alone; containerd reads Ferry's CDI file and gives the pod the device nodes."""
        if not self.kubernetes.release.current:
            self.skipTest("the kubelet passes CDI names on since 1.29, and containerd reads CDI files since 1.7")
        with self.in_its_place(self.plugin_with("--mode", "kata", "--cdi-names", environment={"P_GPU_ALIAS": "pgpu"})):
            self.expect_allocatable({PGPU: 3})
            self.kubernetes.run_pod("kata", {PGPU: 1}, SHOW)
            (group, number), (node, of_all) = [line.split() for line in self.shown_by("kata")]
            self.assertIn(int(group), GROUPS.values())
            self.assertEqual(("vfio", self.node_number(number_of(int(group))), self.node_number(NODE_OF_ALL)),
                             (node, number, of_all))
            # The CDI project's own library finds the files valid, and makes the same nodes of them.
            folder = self.host.root / "var/run/cdi"
            names = self.cdi_check(folder)
            self.assertEqual({f"{PGPU}={group}" for group in GROUPS.values()}, set(names.split()))
            specification = json.loads(self.cdi_check(folder, f"{PGPU}={group}"))
            on_host = {path: stat.S_IMODE((self.host.root / path.lstrip("/")).stat().st_mode)
                       for path in ("/dev/vfio/vfio", f"/dev/vfio/{group}")}
            self.assertEqual(on_host, {device["path"]: device["fileMode"] for device in specification["linux"]["devices"]})
        # The next plugin keeps the group. It must have seen a pod in the kubelet's list before the pods are removed: a
        # kubelet that lists no device may not know its pods yet, and then nothing counts as released for 10 minutes.
        others = 1 if group == "13" else 0
        self.expect_allocatable({CARD: 1 + others, AUDIO: 1 + others, OTHER: 1 - others})

    @staticmethod
    def cdi_check(folder: pathlib.Path, *devices: str) -> str:
        program = pathlib.Path(os.environ["CLUSTER_PROGRAMS"]) / "cdi-check"
        return subprocess.run([program, folder, *devices], stdout=subprocess.PIPE, text=True, check=True).stdout

    @staticmethod
    def node_number(number: int) -> str:
        """The device number in the form of `stat -c %t:%T`."""
        return f"{os.major(number):x}:{os.minor(number):x}"

    def test_vgpus_are_created_and_removed_while_the_plugin_runs(self) -> None:
        uuids = ["3f0c6f6e-0000-4000-8000-00000000000" + digit for digit in "12"]
        self.host.add("0000:04:00.0", "10de:2235", "030200", 14, driver="nvidia")
        for number, uuid in enumerate(uuids):
            self.host.add_mediated_device(uuid, "0000:04:00.0", ("nvidia-558", "NVIDIA A40-8Q"), 20 + number)
        self.expect_allocatable(ALL | {VGPU: 2})
        self.kubernetes.run_pod("vgpu", {VGPU: 1}, SHOW)
        environment, *nodes = self.shown_by("vgpu")
        name, held = environment.split("=")
        self.assertEqual("MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-8Q", name)
        self.assertEqual([str(20 + uuids.index(held)), "vfio"], [node.split()[0] for node in nodes])
        for uuid in uuids:
            self.host.remove_mediated_device(uuid)
        self.expect_allocatable(ALL | {VGPU: 0})
        # Both are Unhealthy for a moment before the free one leaves the list.
        wait_until("a pod's stays until the pod ends", lambda: self.devices("capacity")[VGPU] == 1, 60)
        self.kubernetes.remove_pods()
        wait_until("both have gone", lambda: VGPU not in self.devices("capacity"), 60)

    # --- the KubeVirt object -----------------------------------------------------------------------------------------

    def test_the_kubevirt_object_gets_missing_devices_and_keeps_the_rest(self) -> None:
        kubevirt = KubevirtObject(self.kubernetes, self.host.root)
        status, said = kubevirt.check()
        self.assertEqual(STATUS_FAILED, status, said)
        self.assertIn("the cluster has no KubeVirt object", said)
        with self.subTest("added to"):
            self.lacks_are_added(kubevirt)
        with self.subTest("by several nodes at once"):
            self.nodes_add_at_once(kubevirt)
        kubevirt.remove()
        with self.subTest("a list that is another's"):
            self.applied_lists_are_left(kubevirt)

    def lacks_are_added(self, kubevirt: KubevirtObject) -> None:
        kubevirt.make({"developerConfiguration": {"featureGates": ["HostDevices"]},
                       "permittedHostDevices": {"pciHostDevices": [THEIRS]}})
        before = kubevirt.get()
        status, said = kubevirt.check()
        self.assertEqual(STATUS_DIFFERS, status, said)
        self.assertIn(f"{CARD} (10DE:2684) is not permitted", said)
        self.assertIn(f"{OTHER} (10DE:2330) is not permitted", said)
        self.assertEqual(before, kubevirt.get(), "it writes nothing")

        status, said, _ = kubevirt.add()
        self.assertEqual(STATUS_DONE, status, said)
        after = kubevirt.get()
        lists = after["spec"]["configuration"].pop("permittedHostDevices")
        self.assertEqual(THEIRS, lists["pciHostDevices"][0])
        self.assertEqual({("10DE:2684", CARD, True), ("10DE:22BA", AUDIO, True), ("10DE:2330", OTHER, True)}, {
            (one["pciVendorSelector"], one["resourceName"], one["externalResourceProvider"])
            for one in lists["pciHostDevices"][1:]})
        self.assertEqual(["pciHostDevices"], list(lists))
        before["spec"]["configuration"].pop("permittedHostDevices")
        self.assertEqual(before["spec"], after["spec"], "what else others say stays")
        self.assertEqual(STATUS_DONE, kubevirt.check()[0])
        self.assertEqual(STATUS_DONE, kubevirt.add()[0])
        # Kubernetes 1.20 changes the managedFields even for an empty patch.
        self.assertEqual(after["metadata"]["generation"], kubevirt.get()["metadata"]["generation"], "nothing is written twice")

    def nodes_add_at_once(self, kubevirt: KubevirtObject) -> None:
        """Each adds entries of its own, with other names. Each list is written whole: that which was slower has to read
        the object again."""
        names = set()

        def conflicted() -> bool:
            new = [f"{len(names) + number}" for number in range(4)]
            with concurrent.futures.ThreadPoolExecutor(len(new)) as threads:
                added = list(threads.map(lambda number: kubevirt.add("--name-template", f"node{number}_{{name}}"), new))
            for status, said, _ in added:
                self.assertEqual(STATUS_DONE, status, said)
            names.update(new)
            return any(conflicts for _, _, conflicts in added)
        wait_until("two have met", conflicted, 60)
        found = [one["resourceName"] for one in
                 kubevirt.get()["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"]]
        self.assertEqual(len(found), len(set(found)))
        ours = (CARD, AUDIO, OTHER)
        self.assertEqual({THEIRS["resourceName"], *ours} | {
            resource.replace("/", f"/node{number}_") for number in names for resource in ours}, set(found))

    def applied_lists_are_left(self, kubevirt: KubevirtObject) -> None:
        self.kubernetes.kubectl("apply", "--server-side", "--field-manager=repository", "-f", "-",
                                stdin=kubevirt.manifest({"permittedHostDevices": {"pciHostDevices": [THEIRS]}}))
        before = kubevirt.get()
        status, said, _ = kubevirt.add()
        self.assertEqual(STATUS_REFUSED, status, said)
        self.assertIn(f"{CARD} (10DE:2684) is not permitted; the field manager repository applies pciHostDevices", said)
        self.assertEqual(STATUS_DIFFERS, kubevirt.check()[0])
        self.assertEqual(before, kubevirt.get())
