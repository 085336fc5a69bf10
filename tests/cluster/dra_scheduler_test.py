# SPDX-License-Identifier: Apache-2.0
"""`ferry dra`, the real API server and the real scheduler with many devices. The Nodes have no kubelet, and their GPUs are a list
(ListedNode)."""

import time
import unittest
from typing import Any

from cluster.claims import (CLAIMS, PODS, Api, ListedNode, chosen_by, claim_of, cluster_of_listed_nodes, faults, listed_gpu,
                            pod_on, vgpu, vgpu_type)
from cluster.kubernetes import moment
from cluster.programs import wait_until

MOST_RESIDENT_MIB = 12.0
# 12 types, 16 vGPUs of each on a GPU of 48 GiB.
TYPES = [vgpu_type(1100 + number, f"L40S-{1 + number % 3}{'ABCQ'[number // 3]}", 1024 * (1 + number % 3), most_per_gpu=16)
         for number in range(12)]
GPUS = [listed_gpu(f"0000:{0x10 + number:02x}:00.0", 40 + number, 49152, TYPES) for number in range(8)]


class SchedulerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.kubernetes = cluster_of_listed_nodes()
        cls.api = Api(cls.kubernetes)

    def node(self, name: str, *gpus: dict[str, Any]) -> ListedNode:
        node = ListedNode(self.kubernetes, name)
        node.list_gpus(*gpus)
        node.dra.start()
        self.addCleanup(node.dra.stop)
        return node

    def ask(self, node: ListedNode, name: str, request: dict[str, Any]) -> None:
        """A claim, and a pod for it."""
        self.api.create(CLAIMS, claim_of(name, {"card": request}))
        self.api.create(PODS, pod_on(node.name, name, name))
        self.addCleanup(self.api.remove, f"{CLAIMS}/{name}")
        self.addCleanup(self.api.remove, f"{PODS}/{name}")

    def wait_until_allocated(self, node: ListedNode, count: int) -> list[tuple[str, str]]:
        taken: list[tuple[str, str]] = wait_until(
            f"{count} devices are allocated", lambda: [
                found for found in [self.api.allocations(node.name)] if len(found) >= count], 60)[0]
        self.assertEqual([], faults(node.gpus, taken))
        self.assertEqual(count, len(taken))
        self.assertLessEqual({device for device, _ in taken}, set(self.api.devices(node.name)))
        return taken

    def wait_until_refused(self, pod: str) -> None:
        wait_until(f"the scheduler has tried {pod}", lambda: any(
            one.get("reason") == "Unschedulable" for one in self.kubernetes.pod(pod).get("conditions", [])), 60)

    def test_eight_gpus_with_twelve_types_of_sixteen_vgpus(self) -> None:
        count = len(GPUS) * (12 * 16 + 1)
        moment_before, before = moment(), time.monotonic()
        node = self.node("eight", *GPUS)
        node.wait_until_published()  # a look at the slices takes as long as a write of some of them
        seconds = time.monotonic() - before
        self.assertEqual(count, len(self.api.devices(node.name)))
        slices = self.api.slices(node.name)
        writes = [request for request in self.kubernetes.requests(moment_before)
                  if request["objectRef"].get("resource") == "resourceslices" and "dryRun" not in request["requestURI"]
                  and request["verb"] in ("create", "update", "delete")]
        print(f"{count} devices in {len(slices)} slices, by {len(writes)} requests within {seconds:.1f} s")
        self.assertEqual([201], sorted({request["responseStatus"]["code"] for request in writes}), "each slice is accepted")
        self.assertEqual(len(slices), len(writes))
        self.assertEqual(len(slices), slices[0]["spec"]["pool"]["resourceSliceCount"])
        self.assertEqual({node.pool}, {one["spec"]["pool"]["name"] for one in slices})
        self.assertEqual(8, sum(len(one["spec"].get("sharedCounters") or []) for one in slices))
        # The scheduler allocates from all of them: the largest type, of which no two GPUs have enough, and one GPU whole.
        self.ask(node, "most", vgpu("L40S-3Q", count=32))
        self.ask(node, "one-whole", chosen_by("whole", "true"))
        self.wait_until_allocated(node, 33)
        node.dra.wait_until("memory is returned", lambda: node.dra.resident_mib() < MOST_RESIDENT_MIB, 30)
        print(f"`ferry dra` has {node.dra.resident_mib():.1f} MiB resident")

    def test_more_than_64_devices_of_a_class(self) -> None:
        """80 pods have a vGPU each. The next one gets its own when a pod has ended."""
        small = [vgpu_type(230, "T4-1Q", 1024, most_per_gpu=16)]
        node = self.node("many", *[listed_gpu(f"0000:{number:02x}:00.0", number, 16384, small) for number in range(1, 6)])
        node.wait_until_published()
        self.assertEqual(5 * 17, len(self.api.devices(node.name)))
        before = time.monotonic()
        for number in range(80):
            self.ask(node, f"small-{number}", vgpu("T4-1Q"))
        taken = self.wait_until_allocated(node, 80)
        print(f"80 claims are allocated within {time.monotonic() - before:.1f} s")
        self.ask(node, "next", vgpu("T4-1Q"))
        self.ask(node, "whole", chosen_by("whole", "true"))
        self.wait_until_refused("next")
        self.wait_until_refused("whole")
        self.api.remove(f"{PODS}/small-7")
        wait_until("it has the device of the pod that has ended", lambda: dict(taken).keys() == dict(
            self.api.allocations(node.name)).keys() and "next" in dict(self.api.allocations(node.name)).values(), 60)
        self.wait_until_allocated(node, 80)

    def test_a_pci_domain_of_five_digits(self) -> None:
        """A whole GPU of it has no attribute pciBusID, which the server would refuse."""
        types = [vgpu_type(233, "T4-8Q", 8192, most_per_gpu=2)]
        node = self.node("far", listed_gpu("10000:e1:00.0", 7, 16384, types), listed_gpu("1ffff:02:00.0", 8, 16384, []))
        node.wait_until_published()
        self.assertNotIn("resource.kubernetes.io/pciBusID", self.api.devices(node.name)["whole-10000-e1-00-0"]["attributes"])
        for name in ("one", "two", "three"):
            self.ask(node, name, vgpu("T4-8Q"))
        self.ask(node, "four", chosen_by("whole", "true"))
        taken = self.wait_until_allocated(node, 3)
        self.assertEqual(["vgpu-10000-e1-00-0-233-0", "vgpu-10000-e1-00-0-233-1", "whole-1ffff-02-00-0"],
                         sorted(device for device, _ in taken))
