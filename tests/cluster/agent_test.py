# SPDX-License-Identifier: Apache-2.0
"""The agent, hostd and the plugin on a node of a cluster: labels and configurations asked, and what kubectl then sees."""

import http.client
import itertools
import json
import re
import ssl
import threading
import time
import unittest
from collections import Counter
from typing import Any

from cluster.box import NODE_ADDRESS
from cluster.ferry_node import (ACCOUNT, CONFIGURATIONS, OPERAND, OPERATOR, PAUSED, POLICY, STATE, VGPU_CONFIG,
                                VGPU_STATE, VALIDATOR, WORKLOAD, FerryNode, NodeWatch, daemon_set, watched)
from cluster.kubernetes import API_PORT, API_SERVER, AUDITED, NODE, moment
from cluster.programs import wait_until

CARD, TESLA = "nvidia.com/AD102_GEFORCE_RTX_4090", "nvidia.com/TU104GL_TESLA_T4"
AUDIO = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"
ALL = {CARD: 1, AUDIO: 1, TESLA: 1}
VGPU = "nvidia.com/GRID_T4-4Q"
DEVICE_PLUGIN = "nvidia.com/gpu.deploy.sandbox-device-plugin"
OWN, ON_VFIO = ("nvidia", "snd_hda_intel", "nvidia"), ("vfio-pci", "vfio-pci", "vfio-pci")
HOLD = "sleep 1"
MOST_MIB = 25  # of the agent's memory
IDLE_SECONDS = 120


class AgentTest(unittest.TestCase):
    """The default policy leaves every GPU to the host."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.node = FerryNode()
        cls.node.start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.node.stop()

    def setUp(self) -> None:
        # A starting agent may record ten events at once; after those, and many changes, some are not recorded.
        self.restart_agent()
        self.addCleanup(self.node.wait_until_is, *OWN)
        for key in (WORKLOAD, VGPU_CONFIG, POLICY):
            self.addCleanup(self.node.label, key)
        self.addCleanup(self.node.kubernetes.remove_pods)

    def restart_agent(self) -> None:
        self.node.agent.stop()
        self.node.agent.start()

    def advertised(self) -> dict[str, int]:
        return {name: count for name, count in self.node.kubernetes.devices().items() if count}

    # --- what labels ask for -----------------------------------------------------------------------------------------

    def test_a_label_binds_the_gpus_to_vfio_and_its_removal_unbinds_them(self) -> None:
        before = self.node.events()
        self.assertEqual({}, self.node.host.status_files())
        with watched(self.node.kubernetes) as watch:
            self.node.label(WORKLOAD, "vm-passthrough")
            self.node.wait_until_is(*ON_VFIO)
            self.assertEqual({"workload-type": "vm-passthrough\n", "vfio-pci-ready": "gpu-ferry"},
                             {name: text.replace("gpu-ferry\n", "gpu-ferry")
                              for name, text in self.node.host.status_files().items()})
            wait_until("the kubelet has them", lambda: self.advertised() == ALL, 60)
            with self.node.held_in("withdrawing", lambda: self.node.label(WORKLOAD)):
                self.assertEqual(ON_VFIO, self.node.host.drivers(), "they are still the kubelet's")
            self.node.wait_until_is(*OWN)
        self.assertEqual({}, self.node.host.status_files())
        wait_until("the kubelet has none", lambda: not self.advertised(), 60)
        # The first state may still be the pending of the test before. The operand's values show both changes.
        self.expect_states(watch, ["ready", "applying", "ready"])
        self.assertEqual(["true", PAUSED, "true", PAUSED, "true"], watch.values(OPERAND))
        self.node.wait_until_recorded("Ready", after=before, times=2)

    def expect_states(self, watch: NodeWatch, least: list[str]) -> None:
        """The states in `least` came in that order, among others that may be too short to be observed."""
        seen = iter(watch.values(STATE))
        self.assertTrue(all(state in seen for state in least), watch.values(STATE))

    def test_a_change_waits_for_the_end_of_the_pod_that_has_the_gpu(self) -> None:
        self.node.label(WORKLOAD, "vm-passthrough")
        wait_until("the kubelet has them", lambda: self.advertised() == ALL, 60)
        self.node.kubernetes.run_pod("guest", {CARD: 1}, "env | grep ^PCI_RESOURCE_")
        self.node.kubernetes.wait_for_pod("guest")
        self.assertIn("0000:01:00.0", wait_until("it says what it has", lambda: self.node.kubernetes.kubectl(
            "logs", "guest"), 30))
        before = self.node.events()
        self.node.label(WORKLOAD, "container")
        self.node.wait_for(STATE, "blocked")
        self.assertEqual(("vfio-pci", "vfio-pci", "nvidia"), self.node.host.drivers(), "the other one is free")
        wait_until("it says who holds it", lambda: re.search(
            "0000:01:00.0 .*pod default/guest", self.node.annotation()), 30)
        self.node.wait_until_recorded("Blocked", "0000:01:00.0", "default/guest", after=before)
        self.assertEqual("true", self.node.labels()[OPERAND], "nobody is kept away for a refusal")
        wait_until("the kubelet offers none", lambda: not self.advertised(), 60)
        self.node.kubernetes.remove_pods()
        self.node.wait_until_is(*OWN)

    def test_pods_go_by_the_confidential_mode_that_hostd_has_read(self) -> None:
        """hostd's file names GPUs of Hopper with their registers, which this host does not have."""
        kubernetes, former, ready = self.node.kubernetes, self.node.agent, "nvidia.com/cc.ready.state"
        self.node.hostd.stop()
        self.addCleanup(self.node.hostd.start)
        file = self.node.host.root / "run/ferry/status.json"
        status = json.loads(file.read_text())
        former.stop()
        agent = self.node.agent_at(API_SERVER, "--feature-labels=node")
        agent.start()
        self.addCleanup(former.start)
        self.addCleanup(self.node.label, ready)
        self.addCleanup(self.node.label, "nvidia.com/cc.mode.state")
        self.addCleanup(agent.stop)
        for mode, goes, stays in (("on", "true", "false"), ("off", "false", "true")):
            for gpu in status["accelerators"]:
                gpu |= {"id": "10de:2330", "registers": {"read_at": 1, "cc_mode": mode}}
            file.with_suffix(".new").write_text(json.dumps(status))
            file.with_suffix(".new").rename(file)
            wait_until(f"the labels have the mode {mode}", lambda: (
                self.node.labels().get("nvidia.com/cc.mode.state"), self.node.labels().get(ready)) == (mode, goes), 60)
            for value in (goes, stays):
                kubernetes.run_pod(f"in-{mode}-{value}", nodeSelector={ready: value})
            kubernetes.wait_for_pod(f"in-{mode}-{goes}")
            self.assertEqual("Pending", kubernetes.pod(f"in-{mode}-{stays}")["phase"])
            kubernetes.remove_pods()

    def test_a_label_chooses_the_vgpus(self) -> None:
        """vgpu.config alone counts where there is no default workload; here the workload says that there are some."""
        before = self.node.events()
        with watched(self.node.kubernetes) as watch:
            self.node.label(WORKLOAD, "vm-vgpu")
            self.node.wait_until_is(*OWN)
            self.node.wait_for(VGPU_STATE, "success")
            self.assertEqual(2, len(self.node.host.vgpus()), "the default has two")
            self.node.label(VGPU_CONFIG, "render-mix")
            wait_until("they are others", lambda: len(self.node.host.vgpus()) == 3, 60)
            self.node.wait_for(VGPU_STATE, "success")
            self.node.wait_until_is(*OWN)
        self.assertEqual({"workload-type", "vgpu-devices-ready"}, set(self.node.host.status_files()))
        self.assertEqual(["", "pending", "success", "pending", "success"], watch.values(VGPU_STATE))
        self.assertEqual(["true", PAUSED, "true", PAUSED, "true"], watch.values(OPERAND))
        wait_until("the kubelet has them", lambda: self.advertised() == {VGPU: 3}, 60)
        made = self.node.host.vgpus()
        with watched(self.node.kubernetes) as watch:
            self.node.label(VGPU_CONFIG, "render-mx")
            self.node.wait_for(STATE, "failed")
            self.node.wait_for(VGPU_STATE, "failed")
        self.assertEqual(["success", "failed"], watch.values(VGPU_STATE))
        self.assertEqual(["true"], watch.values(OPERAND))
        self.assertEqual(made, self.node.host.vgpus())
        self.assertIn("render-mix", self.node.annotation(), "it says what was meant")
        self.node.wait_until_recorded("InvalidConfig", "render-mix", after=before)
        self.node.kubernetes.run_pod("guest", {VGPU: 1}, HOLD)
        self.node.kubernetes.wait_for_pod("guest")
        self.node.label(VGPU_CONFIG)
        self.node.wait_for(STATE, "blocked")
        self.assertEqual("failed", self.node.labels()[VGPU_STATE])
        self.node.kubernetes.remove_pods()
        wait_until("they are the default's", lambda: len(self.node.host.vgpus()) == 2, 60)
        self.node.wait_for(VGPU_STATE, "success")
        self.node.label(WORKLOAD)
        wait_until("there are none", lambda: not self.node.host.vgpus(), 60)
        self.node.wait_until_is(*OWN)
        self.assertNotIn(VGPU_STATE, self.node.labels())

    def test_an_edited_configuration_is_applied(self) -> None:
        self.addCleanup(self.node.configure)
        self.node.label(POLICY, "mixed")
        self.node.wait_until_is("nvidia", "snd_hda_intel", "vfio-pci")
        policies = CONFIGURATIONS["ferry-policies"]
        self.node.configure({"ferry-policies": policies.replace("*T4*", "*4090*")})
        self.node.wait_until_is("vfio-pci", "vfio-pci", "nvidia")
        self.node.configure({"ferry-policies": policies.replace("mode: host", "mode: hots")})
        self.node.wait_for(STATE, "failed")
        self.assertIn("ferry-policies, config.yaml:4", self.node.annotation())
        self.assertEqual(("vfio-pci", "vfio-pci", "nvidia"), self.node.host.drivers(), "a mistake changes nothing")

    # --- beside others -----------------------------------------------------------------------------------------------

    def test_operands_end_before_anything_changes(self) -> None:
        """NVIDIA's validator, by the DaemonSet controller."""
        with self.node.held_in("changing", lambda: self.node.label(WORKLOAD, "vm-passthrough")):
            self.assertEqual(PAUSED, self.node.labels()[OPERAND])
            # The kubelet may keep the object of a pod that has ended for a moment.
            phases = [pod["status"]["phase"] for pod in self.node.kubernetes.get("pods", "-n", OPERATOR)["items"]]
            self.assertEqual([], [phase for phase in phases if phase not in ("Failed", "Succeeded")])
        self.node.wait_until_is(*ON_VFIO)

    def test_ferry_is_on_standby_while_nvidias_program_serves_the_node(self) -> None:
        name, key = "nvidia-vfio-manager", "nvidia.com/gpu.deploy.vfio-manager"
        self.addCleanup(self.node.label, key)
        self.addCleanup(self.node.kubernetes.try_kubectl, "delete", "daemonset", "-n", OPERATOR, name)
        before = self.node.events()
        self.node.kubernetes.apply(daemon_set(name, {key: "true"}))
        self.node.label(key, "true")
        self.node.wait_for(STATE, "standby")
        self.node.label(WORKLOAD, "vm-passthrough")
        self.node.wait_until_recorded("Standby", "vfioManager: {enabled: false}", after=before)
        wait_until("its pod runs", lambda: "Running" in self.node.kubernetes.kubectl(
            "get", "pods", "-n", OPERATOR, "-l", f"app={name}"), 60)
        self.assertEqual(OWN, self.node.host.drivers())
        self.node.kubernetes.kubectl("delete", "daemonset", "-n", OPERATOR, name)
        self.node.wait_until_is(*ON_VFIO)

    def test_ferry_replaces_nvidias_vgpu_device_manager(self) -> None:
        """`nvidia-k8s-vgpu-dm`, with the operator's flags and environment, with the rights of its role and `patch` of nodes."""
        for program in (self.node.agent, self.node.hostd):
            program.stop()
            self.addCleanup(program.start)  # the agent last of all that is to be undone
        self.put_device_plugin_on_the_node()
        manager = self.node.vgpu_device_manager()
        manager.start()
        self.addCleanup(lambda: manager.runs and manager.stop())
        manager.wait_until("the default is there", lambda: len(self.node.host.vgpus()) == 2, 60)
        self.node.wait_for(VGPU_STATE, "success")
        with watched(self.node.kubernetes) as watch:
            self.node.label(VGPU_CONFIG, "render-mix")
            wait_until("they are others", lambda: len(self.node.host.vgpus()) == 3, 60)
            self.node.wait_for(VGPU_STATE, "success")
            for operand in (DEVICE_PLUGIN, OPERAND):
                self.node.wait_for(operand, "true")
        self.assertEqual(["success", "pending", "success"], watch.values(VGPU_STATE))
        for operand in (DEVICE_PLUGIN, OPERAND):
            self.assertEqual(["true", PAUSED, "true"], watch.values(operand))
        made = self.node.host.vgpus()
        with watched(self.node.kubernetes) as watch:
            self.node.label(VGPU_CONFIG, "typo")
            self.node.wait_for(VGPU_STATE, "failed")
            self.node.label(WORKLOAD, "vm-passthrough")
            self.node.label(VGPU_CONFIG, "render-mix")
            self.node.wait_for(VGPU_STATE, "success")
        self.assertEqual(["success", "failed", "success"], watch.values(VGPU_STATE), "no other label counts")
        for operand in (DEVICE_PLUGIN, OPERAND):
            self.assertEqual(["true"], watch.values(operand))
        self.assertEqual(made, self.node.host.vgpus())
        self.assertEqual(OWN, self.node.host.drivers())
        self.node.label(WORKLOAD)
        manager.stop()
        self.assertEqual(0, manager.last_status)

    def put_device_plugin_on_the_node(self) -> None:
        """The operator's, for this test."""
        name = "nvidia-sandbox-device-plugin-daemonset"
        self.addCleanup(self.node.kubernetes.kubectl, "delete", "daemonset", "-n", OPERATOR, name)
        self.addCleanup(self.node.label, DEVICE_PLUGIN)  # its pod goes sooner so than by the collection of garbage
        self.node.kubernetes.apply(daemon_set(name, {DEVICE_PLUGIN: "true"}))
        self.node.label(DEVICE_PLUGIN, "true")
        wait_until("its pod runs", lambda: "Running" in self.node.kubernetes.kubectl(
            "get", "pods", "-n", OPERATOR, "-l", f"app={name}"), 60)

    def test_with_drain_a_pod_that_keeps_its_gpu_is_evicted(self) -> None:
        with self.node.draining():
            self.evict_the_pod_that_keeps_a_gpu()

    def evict_the_pod_that_keeps_a_gpu(self) -> None:
        self.node.label(WORKLOAD, "vm-passthrough")
        wait_until("the kubelet has them", lambda: self.advertised() == ALL, 60)
        self.node.kubernetes.run_pod("guest", {CARD: 1}, HOLD)
        self.node.kubernetes.wait_for_pod("guest")
        before = self.node.events()
        with watched(self.node.kubernetes) as watch:
            self.node.label(WORKLOAD, "container")
            self.node.wait_until_is(*OWN)
        wait_until("the pod is gone", lambda: self.node.kubernetes.try_kubectl("get", "pod", "guest") is None, 120)
        self.expect_states(watch, ["ready", "draining", "ready"])
        self.assertEqual(["", "true", ""], watch.values("gpu-ferry.io/cordoned"))
        self.assertNotIn("unschedulable", self.node.kubernetes.get("node", NODE)["spec"])
        self.node.wait_until_recorded("Draining", "default/guest", after=before)
        # After changes, beside an operator's pods; kata_test.py has the rest of what it can do at work.
        resident = self.node.agent.resident_mib()
        print(f"the agent has {resident:.1f} MiB in memory")
        self.assertTrue(0 < resident < MOST_MIB, resident)

    # --- kubectl -----------------------------------------------------------------------------------------------------

    def test_kubectl_runs_the_plugin_and_completes_it(self) -> None:
        kubernetes = self.node.kubernetes
        if not kubernetes.release.current:
            self.skipTest("kubectl completes plugins since 1.26")
        self.node.label(WORKLOAD, "vm-passthrough")
        wait_until("the kubelet has them", lambda: self.advertised() == ALL, 60)
        kubernetes.run_pod("guest", {CARD: 1})
        kubernetes.wait_for_pod("guest")
        listed = kubernetes.kubectl_with_plugins("ferry", "list", "-o", "json")
        (row,) = [one for one in json.loads(listed)["nodes"] if one["name"] == NODE]
        used = {resource["name"]: resource["used"] for resource in row["resources"]}
        self.assertEqual({CARD: 1, AUDIO: 0, TESLA: 0}, used)
        self.assertIn("default/guest", kubernetes.kubectl_with_plugins("ferry", "node", NODE))
        for words, expected in ((["ferry", ""], "list"), (["ferry", "list", "-o", ""], "json")):
            completed = kubernetes.kubectl_with_plugins("__complete", *words)
            self.assertIn(expected, [line.split("\t")[0] for line in completed.splitlines()])

    # --- what it asks of the API server ------------------------------------------------------------------------------

    def test_the_account_has_the_rights_that_it_uses_and_no_others(self) -> None:
        self.change_against_others()
        self.restart_agent()  # so that its watches have ended
        asked = {right for request in self.node.kubernetes.requests() for right in [right_of(request)]}
        # A Lease is read anew only where the agent of another node was faster, and there is none.
        self.assertEqual(self.granted() - asked, {("get", "coordination.k8s.io", "leases", AUDITED, "")} - asked)
        self.assertEqual(asked - self.granted(), set())
        self.assertEqual([], [request for request in self.node.kubernetes.requests()
                              if request.get("responseStatus", {}).get("code") in (401, 403)])

    def change_against_others(self) -> None:
        """A change, while somebody else writes to the Node without a pause: the agent has to read it anew."""
        over = threading.Event()

        def annotate() -> None:
            server = http.client.HTTPSConnection(NODE_ADDRESS, API_PORT, context=ssl.create_default_context(
                cafile=str(self.node.kubernetes.authority)))
            for number in itertools.count():
                if over.is_set():
                    return
                server.request("PATCH", f"/api/v1/nodes/{NODE}",
                               json.dumps({"metadata": {"annotations": {"example.com/number": str(number)}}}),
                               {"Authorization": "Bearer admin-token", "Content-Type": "application/merge-patch+json"})
                server.getresponse().read()
        workloads = itertools.cycle(["vm-passthrough", "container"])

        def has_asked(*right: str) -> bool:
            self.node.label(WORKLOAD, next(workloads))
            return any(right_of(request) == right for request in self.node.kubernetes.requests())
        other = threading.Thread(target=annotate)
        other.start()
        try:
            wait_until("the agent reads the Node", lambda: has_asked("get", "", "nodes", "", ""), 90)
        finally:
            over.set()
            other.join()
        wait_until("an event is recorded once more", lambda: has_asked("patch", "", "events", "default", ""), 90)

    def granted(self) -> set[tuple[str, ...]]:
        """(verb, API group, resource, namespace, name) that the cluster's bindings give the account."""
        ask = self.node.kubernetes.get
        found = set()
        bindings = [*ask("clusterrolebindings")["items"], *ask("rolebindings", "--all-namespaces")["items"]]
        for binding in bindings:
            if ACCOUNT not in [one["name"] for one in binding.get("subjects", []) if one.get("namespace") == AUDITED]:
                continue
            space = binding["metadata"].get("namespace", "")
            role = ask(binding["roleRef"]["kind"], binding["roleRef"]["name"], *(["-n", space] if space else []))
            found |= {(verb, group, resource, space, name) for rule in role["rules"] for verb in rule["verbs"]
                      for group in rule["apiGroups"] for resource in rule["resources"]
                      for name in rule.get("resourceNames", [""])}
        return found

    def test_other_requests_of_the_account_are_forbidden(self) -> None:
        account = f"system:serviceaccount:{AUDITED}:{ACCOUNT}"
        for verb, what, space in FORBIDDEN:
            with self.subTest(f"{verb} {what} {space}"):
                kind, _, subresource = what.partition(":")
                self.node.kubernetes.try_kubectl("auth", "can-i", verb, kind, f"--subresource={subresource}",
                                                 f"--as={account}", *(["-n", space] if space else []))
                self.assertEqual("no", self.node.kubernetes.last_output.split()[0])
        # Tried with its own token, not only asked.
        self.node.kubernetes.add_user("agent", self.node.kubernetes.token_of(AUDITED, ACCOUNT))
        for command in TRIED:
            with self.subTest(" ".join(command)):
                self.assertIsNone(self.node.kubernetes.try_kubectl(*command, user="agent"))
                self.assertRegex(self.node.kubernetes.last_error, "(?i)forbidden")

    def test_the_load_on_the_api_server(self) -> None:
        started = moment()
        self.restart_agent()
        wait_until("it has listed what it watches", lambda: 5 == len([
            request for request in self.node.kubernetes.requests(started)
            if request["verb"] == "list" and request["objectRef"]["resource"] != "leases"]), 60)
        self.node.wait_until_is(*OWN)
        moments = [moment()]
        time.sleep(IDLE_SECONDS)
        moments.append(moment())
        for value, drivers in (("vm-passthrough", ON_VFIO), ("container", OWN)):
            self.node.label(WORKLOAD, value)
            self.node.wait_until_is(*drivers)
            moments.append(moment())
        self.restart_agent()  # so that its watches have ended
        asked = [self.node.kubernetes.requests(*times) for times in itertools.pairwise(moments)]
        idle, given, taken = (Counter(map(kind_of, requests)) for requests in asked)
        print(f"requests in {IDLE_SECONDS} s of nothing: {idle}; to give away: {given}; to take back: {taken}")
        self.assertEqual(set(), {verb for verb, _ in idle} - {"watch"})
        self.assertLessEqual(idle.total(), 5, "each watch lasts for five minutes at least")
        for made, requests in zip((given, taken), asked[1:]):
            # The kubelet writes to the Node too: a patch that met that was in vain, and a get came after it.
            met = sum(kind_of(request) == ("patch", "nodes") and request.get("responseStatus", {}).get("code") == 409
                      for request in requests)
            made -= Counter({("patch", "nodes"): met, ("get", "nodes"): met})
            self.assertLessEqual(made[("patch", "nodes")] + made[("get", "nodes")], 8)
            self.assertLessEqual(made[("create", "events")] + made[("patch", "events")], 5)
            self.assertLessEqual(sum(count for (_, what), count in made.items() if what == "leases"), 8)
            self.assertEqual(set(), {verb for verb, what in made if what != "leases"} -
                             {"create", "patch", "get", "watch"})


def kind_of(request: dict[str, Any]) -> tuple[str, str]:
    """Verb and resource."""
    return request["verb"], request["objectRef"]["resource"]


def right_of(request: dict[str, Any]) -> tuple[str, ...]:
    """The right that a request needs, in the form of granted(). A list or watch of one name counts as of that name."""
    what = request["objectRef"]
    # A Role for a name may be used for all verbs; that for a kind shows no names.
    name = what.get("name", "") if what["resource"] == "configmaps" else ""
    resource = what["resource"] + (f"/{what['subresource']}" if "subresource" in what else "")
    space = what.get("namespace", "") if what["resource"] != "nodes" else ""
    return request["verb"], what.get("apiGroup", ""), resource, space, name


# Verb, kind/name or kind:subresource, namespace.
FORBIDDEN = [
    ("get", "secrets", AUDITED), ("list", "secrets", ""), ("get", "configmaps", "kube-system"),
    ("list", "configmaps", AUDITED), ("get", "configmaps/other", AUDITED), ("update", "configmaps", AUDITED),
    ("patch", "configmaps/ferry-policies", AUDITED), ("delete", "nodes", ""), ("create", "nodes", ""), ("update", "nodes", ""),
    ("patch", "nodes:status", ""), ("create", "pods", AUDITED), ("create", "pods", OPERATOR),
    ("create", "pods:exec", OPERATOR), ("delete", "pods", OPERATOR), ("get", "pods", "default"),
    ("delete", "leases", AUDITED), ("list", "leases", "kube-system"),
    ("delete", "daemonsets", OPERATOR), ("patch", "daemonsets", OPERATOR), ("create", "events", AUDITED),
    ("delete", "events", "default"), ("create", "clusterrolebindings", ""), ("escalate", "clusterroles", ""),
    ("bind", "clusterroles", ""), ("impersonate", "users", ""), ("create", "serviceaccounts:token", AUDITED),
    ("get", "nodes:proxy", ""), ("create", "tokenreviews", ""), ("list", "namespaces", ""),
]
POD = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
                  "spec": {"containers": [{"name": "c", "image": "x"}]}})
TRIED = [
    ["get", "secrets", "-n", AUDITED], ["get", "configmaps", "-n", "kube-system"],
    ["get", "configmap", "kube-root-ca.crt", "-n", AUDITED], ["delete", "node", NODE],
    ["create", "--raw", f"/api/v1/namespaces/{OPERATOR}/pods", "-f", "-"],
    ["get", "--raw", f"/api/v1/nodes/{NODE}/proxy/pods"], ["get", "pod", "x", "-n", "default"],
    ["delete", "daemonset", VALIDATOR, "-n", OPERATOR],
    ["create", "clusterrolebinding", "x", "--clusterrole=cluster-admin", f"--serviceaccount={AUDITED}:{ACCOUNT}"],
]
