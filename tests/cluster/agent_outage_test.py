# SPDX-License-Identifier: Apache-2.0
"""The node reaches the desired state although programs die, the API server ends or connections are cut during a change."""

import itertools
import signal
import time
import unittest
from collections.abc import Callable

from cluster.cutting_proxy import CuttingProxy
from cluster.ferry_node import STATE, WORKLOAD, FerryNode
from cluster.kubernetes import API_SERVER
from cluster.programs import wait_until

CARD = "nvidia.com/AD102_GEFORCE_RTX_4090"
OWN, ON_VFIO = ("nvidia", "snd_hda_intel", "nvidia"), ("vfio-pci", "vfio-pci", "vfio-pci")
# Only devices that the kubelet has become unavailable: each change returns the GPUs to the host.
PHASES = ("pending", "withdrawing", "changing", "ready")


class AgentOutageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.node = FerryNode()
        cls.node.start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.node.stop()

    def setUp(self) -> None:
        """Programs that a failed test left stopped do not fail the next test too."""
        node = self.node
        if not node.kubernetes.api_server.runs:
            node.kubernetes.start_api_server()
        for program in (node.plugin, node.hostd, node.agent):
            if not program.runs:
                program.start()

    def bind_to_vfio(self) -> None:
        self.node.label(WORKLOAD, "vm-passthrough")
        self.node.wait_until_is(*ON_VFIO)
        wait_until("the kubelet has them", lambda: sum(self.node.kubernetes.devices().values()) == 3, 60)

    def return_to_host(self) -> None:
        self.node.label(WORKLOAD, "container")

    def change_with(self, phase: str, trouble: Callable[[], None]) -> float:
        """A change with trouble in that phase of it; how long it took from there to be as desired all the same."""
        self.bind_to_vfio()
        with self.node.held_in(phase, self.return_to_host):
            trouble()
        begin = time.monotonic()
        self.node.wait_until_is(*OWN)
        return time.monotonic() - begin

    def test_a_change_survives_the_kill_of_each_program_in_each_phase(self) -> None:
        node = self.node
        for program, phase in itertools.product((node.agent, node.hostd, node.plugin), PHASES):
            def kill() -> None:
                program.stop(signal.SIGKILL)
                program.start()
            with self.subTest(f"{program.name}, {phase}"):
                print(f"{program.name} killed in {phase}: as desired {self.change_with(phase, kill):.1f} s later")

    def test_a_change_survives_the_kill_of_the_api_server_in_each_phase(self) -> None:
        server = self.node.kubernetes

        for phase in PHASES:
            def kill() -> None:
                server.stop_api_server()
                server.start_api_server()
            with self.subTest(phase):
                print(f"API server killed in {phase}: as desired {self.change_with(phase, kill):.1f} s later")

    def test_a_drain_survives_the_kill_of_all_programs(self) -> None:
        """A budget keeps the pod that has a GPU from being evicted while all are killed, one after the other, in one change."""
        node, server = self.node, self.node.kubernetes
        self.addCleanup(server.remove_pods)
        self.addCleanup(server.try_kubectl, "delete", "pdb", "kept")
        with node.draining():
            self.bind_to_vfio()
            server.run_pod("guest", {CARD: 1})
            server.wait_for_pod("guest")
            server.keep_pod("guest")
            self.return_to_host()
            node.wait_for(STATE, "draining")
            for program in (node.plugin, node.hostd, node.agent):
                with self.subTest(program.name):
                    program.stop(signal.SIGKILL)
                    program.start()
                    self.expect_draining()
            with self.subTest("API server"):
                server.stop_api_server()
                server.start_api_server()
                self.expect_draining()
            server.kubectl("delete", "pdb", "kept")
            begin = time.monotonic()
            node.wait_until_is(*OWN)
            print(f"all killed while it drained: as desired {time.monotonic() - begin:.1f} s after the pod could go")
            wait_until("it was evicted", lambda: server.try_kubectl("get", "pod", "guest") is None, 120)
            self.assertNotIn("unschedulable", server.node()["spec"])

    def expect_draining(self) -> None:
        """Waits until the API server has answered the agent again, and expects a node that drains."""
        node = self.node
        refused = node.refused_evictions()
        wait_until("another eviction is refused", lambda: node.refused_evictions() > refused, 120)
        self.assertEqual("draining", node.labels()[STATE])
        self.assertTrue(node.kubernetes.node()["spec"].get("unschedulable"), "it is cordoned")
        self.assertEqual("vfio-pci", node.host.drivers()[0], "a pod has it")
        wait_until("nothing is advertised", lambda: not sum(node.kubernetes.devices().values()), 60)

    def test_the_host_changes_without_an_api_server(self) -> None:
        self.bind_to_vfio()
        with self.node.held_in("pending", self.return_to_host):
            # Until then the agent waits for a pod of the operator's to go, which the API server tells.
            wait_until("it is written down", lambda: self.node.desired()["policy"] == "container", 60)
            self.node.kubernetes.stop_api_server()
        try:
            self.node.host.wait_for_drivers(*OWN)
        finally:
            self.node.kubernetes.start_api_server()
        self.node.wait_until_is(*OWN)

    def test_a_change_ends_although_connections_are_cut_every_second(self) -> None:
        self.node.agent.stop()
        with CuttingProxy(API_SERVER, 1) as proxy:
            agent = self.node.agent_at(proxy.address)
            agent.start()
            try:
                for _ in range(3):
                    self.bind_to_vfio()
                    self.return_to_host()
                    self.node.wait_until_is(*OWN)
            finally:
                agent.stop()
        print(f"{proxy.cut} connections were cut")
        self.assertGreater(proxy.cut, 5)
        self.node.agent.start()

    def test_the_last_of_many_label_changes_is_applied(self) -> None:
        for number in range(20):
            self.node.label(WORKLOAD, ("container", "vm-passthrough")[number % 2])
        self.node.wait_until_is(*ON_VFIO)
        self.return_to_host()
        self.node.wait_until_is(*OWN)

    def test_a_node_applies_the_label_after_a_time_without_an_agent(self) -> None:
        self.node.agent.stop()
        self.node.label(WORKLOAD, "vm-passthrough")
        self.assertEqual("ready", self.node.labels()[STATE], "the last word there was")
        self.node.agent.start()
        self.node.wait_until_is(*ON_VFIO)
        self.return_to_host()
        self.node.wait_until_is(*OWN)
