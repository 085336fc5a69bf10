# SPDX-License-Identifier: Apache-2.0
"""The chart's ValidatingAdmissionPolicies on a real API server: they admit the agent at its work, and refuse its token
everything else that its role would allow."""

import dataclasses
import json
import os
import pathlib
import unittest
from typing import Any

from cluster.ferry_chart import CHART, PRESENT, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import NODE, Kubernetes
from cluster.programs import wait_until

ACCOUNT, AGENT = "ferry", "agent-of-the-pod"
OTHER = "other-node"
STATE, LAST_ERROR, CORDONED = "gpu-ferry.io/state", "gpu-ferry.io/last-error", "gpu-ferry.io/cordoned"


@dataclasses.dataclass(frozen=True)
class Request:
    """A kubectl command. `refused_by`: the policy that refuses it; empty if it is admitted."""

    title: str
    command: tuple[str, ...]
    refused_by: str = ""
    object: Any = None


def patch(name: str, change: dict[str, Any]) -> tuple[str, ...]:
    return "patch", "node", name, "--type=merge", "-p", json.dumps(change)


def metadata(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def event(node: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "ferry-", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node}, "reason": "Ready", "type": "Normal",
            "message": "a test", "source": {"component": "ferry"}, "firstTimestamp": None, "lastTimestamp": None}


def lease(name: str, holder: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": SPACE, "labels": labels}, "spec": {"holderIdentity": holder}}


def created(thing: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a Request that creates it."""
    return {"command": ("create", "-f", "-"), "object": thing}


NODE_POLICY, EVENTS_POLICY, LEASE_POLICY = "ferry-own-node", "ferry-own-events", "ferry-own-changes"
REQUESTS = [
    Request("its state on its own node", patch(NODE, metadata(labels={STATE: "applying"}))),
    Request("its last error on its own node", patch(NODE, metadata(annotations={LAST_ERROR: "a test"}))),
    Request("its last error taken off", patch(NODE, metadata(annotations={LAST_ERROR: None}))),
    Request("an event of its own node", **created(event(NODE))),
    Request("its state on another node", patch(OTHER, metadata(labels={STATE: "applying"})), NODE_POLICY),
    Request("a label of somebody else", patch(NODE, metadata(labels={"example.com/zone": "a"})), NODE_POLICY),
    Request("a label that chooses a configuration", patch(NODE, metadata(labels={"gpu-ferry.io/policy": "x"})), NODE_POLICY),
    Request("the label of the host's name taken off", patch(NODE, metadata(labels={"kubernetes.io/hostname": None})),
            NODE_POLICY),
    Request("an annotation of somebody else", patch(NODE, metadata(annotations={"example.com/note": "a"})), NODE_POLICY),
    Request("a taint", patch(NODE, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}), NODE_POLICY),
    Request("a cordon without drain in the chart",
            patch(NODE, {"spec": {"unschedulable": True}, **metadata(annotations={CORDONED: "true"})}), NODE_POLICY),
    Request("a finalizer", patch(NODE, metadata(finalizers=["example.com/kept"])), NODE_POLICY),
    Request("the list of who manages the fields wiped", patch(NODE, metadata(managedFields=[{}])), NODE_POLICY),
    Request("an event of another node", **created(event(OTHER)), refused_by=EVENTS_POLICY),
    Request("a Lease that is no turn", **created(lease("example", NODE, {})), refused_by=LEASE_POLICY),
    Request("a turn for another node", **created(lease("ferry-rollout-7", OTHER, {"gpu-ferry.io/rollout-lease": "7"})),
            refused_by=LEASE_POLICY),
]


class AdmissionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        programs = helms()
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]),
                                    pathlib.Path(os.environ["CLUSTER_FOLDER"]), os.environ["CLUSTER_GROUP"])
        if not programs or not cls.kubernetes.release.current:
            raise unittest.SkipTest("this needs Helm and a Kubernetes that has admission policies")
        cls.kubernetes.start()
        cls.kubernetes.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}})
        cls.ferry = FerryChart(cls.kubernetes)
        cls.ferry.helm(programs[-1], "install", "ferry", CHART, values=VALUES)
        cls.kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true")
        wait_until("the pods are ready", cls.ferry.runs, 120)
        wait_until("the agent reports the state", cls.state, 60)

    @classmethod
    def state(cls) -> str:
        return str(cls.kubernetes.node()["metadata"]["labels"].get(STATE, ""))

    def answer(self, request: Request) -> str:
        """The error of kubectl, or nothing where the request was admitted."""
        done = self.kubernetes.try_kubectl(*request.command, user=AGENT,
                                           stdin=json.dumps(request.object) if request.object else "")
        return "" if done is not None else self.kubernetes.last_error

    def test_the_pods_token_permits_only_the_agents_work(self) -> None:
        pod = self.ferry.pod("agent")["metadata"]
        self.kubernetes.add_user(AGENT, self.kubernetes.kubectl(
            "create", "token", ACCOUNT, "-n", SPACE, "--bound-object-kind=Pod", f"--bound-object-name={pod['name']}",
            f"--bound-object-uid={pod['uid']}").strip())
        for request in REQUESTS:
            with self.subTest(request.title):
                answer = self.answer(request)
                if request.refused_by:
                    self.assertIn(f"ValidatingAdmissionPolicy '{request.refused_by}'", answer)
                else:
                    self.assertEqual("", answer)

    def test_a_token_without_a_pod_changes_no_node(self) -> None:
        self.kubernetes.add_user(AGENT, self.kubernetes.token_of(SPACE, ACCOUNT))
        answer = self.answer(Request("", patch(NODE, metadata(labels={STATE: "applying"}))))
        self.assertIn(f"ValidatingAdmissionPolicy '{NODE_POLICY}'", answer)

    def test_the_api_server_accepts_the_policies_without_a_warning(self) -> None:
        """It checks the types of each expression."""
        policies = self.kubernetes.get("validatingadmissionpolicies")["items"]
        self.assertEqual({NODE_POLICY, EVENTS_POLICY, LEASE_POLICY}, {one["metadata"]["name"] for one in policies})
        for policy in policies:
            name = policy["metadata"]["name"]
            status = wait_until(f"{name} has been checked", lambda name=name: [
                found["status"] for found in [self.kubernetes.get("validatingadmissionpolicy", name)]
                if found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]], 60)[0]
            self.assertEqual([], [one["warning"] for one in status.get("typeChecking", {}).get("expressionWarnings", [])], name)
