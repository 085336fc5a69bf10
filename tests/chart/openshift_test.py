# SPDX-License-Identifier: Apache-2.0
"""OpenShift's constraints: each account has exactly the rights of its pods, and OpenShift's own admission
(scripts/lib/openshift-admit) admits these pods and no pod with more rights."""

import copy
import os
import subprocess
import unittest
from collections.abc import Callable
from typing import Any

import yaml

import chart

TOOL = os.environ.get("FERRY_OPENSHIFT_ADMIT", "")
ON: dict[str, Any] = {"openshift": {"enabled": True}}


def objects_of(values: Any) -> list[chart.Object]:
    """With both Jobs, which Helm makes for a moment."""
    return chart.render_all({**(values or {}), **ON})


def constraints_of(objects: list[chart.Object]) -> dict[str, chart.Object]:
    """By name."""
    return {one["metadata"]["name"]: one for one in chart.of_kind(objects, "SecurityContextConstraints")}


def pods_of(objects: list[chart.Object]) -> dict[str, chart.Object]:
    """The specs of the pods by the name of their controller."""
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("DaemonSet", "Job")}


def space_of(objects: list[chart.Object]) -> str:
    space: str = chart.of_kind(objects, "DaemonSet")[0]["metadata"]["namespace"]
    return space


def user_of(pod: chart.Object, space: str) -> str:
    return f"system:serviceaccount:{space}:{pod['serviceAccountName']}"


def kinds_of(pod: chart.Object) -> set[str]:
    """The kinds of its volumes. The API server adds the volume of a token that a pod does not mount itself."""
    token = {"projected"} if pod["automountServiceAccountToken"] else set()
    return token | {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}


class ConstraintsTest(unittest.TestCase):
    def test_openshift_is_off_by_default(self) -> None:
        self.assertEqual(constraints_of(chart.render_all()), {})
        self.assertEqual(chart.pod_of(chart.render())["spec"]["securityContext"]["seLinuxOptions"], {"type": "spc_t"})

    def test_each_account_has_the_rights_of_its_pods_and_no_others(self) -> None:
        for file in chart.SAMPLES:
            objects = objects_of(chart.sample(file))
            space = space_of(objects)
            pods = list(pods_of(objects).values())
            users = [user for one in constraints_of(objects).values() for user in one["users"]]
            self.assertEqual(set(users), {user_of(pod, space) for pod in pods}, file.name)
            self.assertEqual(len(users), len(set(users)), file.name)
            for name, one in constraints_of(objects).items():
                with self.subTest(values=file.name, constraints=name):
                    own = [pod for pod in pods if user_of(pod, space) in one["users"]]
                    containers = [container for pod in own for container in pod["containers"]]
                    self.assertEqual(set(one["allowedCapabilities"]),
                                     {word for container in containers
                                      for word in container["securityContext"].get("capabilities", {}).get("add", [])})
                    self.assertEqual(set(one["volumes"]), {kind for pod in own for kind in kinds_of(pod)})
                    self.assertEqual(one["allowHostDirVolumePlugin"], "hostPath" in one["volumes"])
                    for key, field in (("hostNetwork", "allowHostNetwork"), ("hostPID", "allowHostPID"), ("hostIPC", "allowHostIPC")):
                        self.assertEqual(one[field], any(pod.get(key, False) for pod in own), key)
                    for pod in own:
                        context = pod.get("securityContext", {})
                        for container in pod["containers"]:
                            user = container["securityContext"].get("runAsUser", context.get("runAsUser"))
                            self.assertEqual(one["runAsUser"], {"type": "MustRunAs", "uid": user})
                        if options := context.get("seLinuxOptions"):
                            self.assertEqual(one["seLinuxContext"]["seLinuxOptions"], options)
                            self.assertTrue(options["level"])
                    asked = any(container["securityContext"]["privileged"] for container in containers)
                    self.assertIs(asked, name.endswith("-node") and (chart.sample(file).get("hostd") or {}).get("privileged", False))
                    for key in ("allowPrivilegedContainer", "allowPrivilegeEscalation"):
                        self.assertIs(one[key], asked)
                    self.assertIs(one["allowHostPorts"], False)
                    self.assertEqual(one["requiredDropCapabilities"], [] if asked else ["ALL"])
                    self.assertIs(one["readOnlyRootFilesystem"], True)


def privileged(pod: chart.Object) -> None:
    pod["containers"][0]["securityContext"].update(privileged=True, allowPrivilegeEscalation=True)


def set_in(*path: Any, to: Any) -> Callable[[chart.Object], None]:
    def change(pod: chart.Object) -> None:
        part = pod
        for key in path[:-1]:
            part = part[key] if isinstance(key, int) else part.setdefault(key, {})
        part[path[-1]] = to
    return change


CONTEXT = ("containers", 0, "securityContext")
# A right that no pod of the account has, the pod, and a part of the reason.
FAULTS: tuple[tuple[str, str, Callable[[chart.Object], None], str], ...] = (
    ("a privileged container", "ferry", privileged, "Privileged containers are not allowed"),
    ("a capability", "ferry", set_in(*CONTEXT, "capabilities", "add", to=["NET_ADMIN"]), "capability may not be added"),
    ("a capability", "ferry-plugin", set_in(*CONTEXT, "capabilities", "add", to=["NET_ADMIN"]), "capability may not be added"),
    ("the host's IPC", "ferry", set_in("hostIPC", to=True), "Host IPC is not allowed"),
    ("the host's PIDs", "ferry-agent", set_in("hostPID", to=True), "Host PID is not allowed"),
    ("the host's network", "ferry-dra", set_in("hostNetwork", to=True), "Host network is not allowed"),
    ("root", "ferry-agent", set_in("securityContext", "runAsUser", to=0), "runAsUser"),
    ("another user", "ferry", set_in(*CONTEXT, "runAsUser", to=1000), "runAsUser"),
    ("another group", "ferry", set_in("securityContext", "supplementalGroups", to=[64711, 6]), "6 is not an allowed group"),
    ("hostd's group", "ferry-agent", set_in("securityContext", "supplementalGroups", to=[0]), "0 is not an allowed group"),
    ("another label", "ferry", set_in("securityContext", "seLinuxOptions", to={"type": "unconfined_t", "level": "s0"}), "must be spc_t"),
    ("a file system that can be written", "ferry-plugin", set_in(*CONTEXT, "readOnlyRootFilesystem", to=False), "ReadOnlyRootFilesystem"),
    ("no seccomp", "ferry", set_in(*CONTEXT, "seccompProfile", to={"type": "Unconfined"}), "not an allowed seccomp profile"),
    ("new privileges", "ferry-dra", set_in(*CONTEXT, "allowPrivilegeEscalation", to=True), "privilege escalation"),
    ("a volume", "ferry-agent", lambda pod: pod["volumes"].append({"name": "a", "emptyDir": {}}), "emptyDir volumes are not allowed"),
    ("a folder of the host", "ferry-test", set_in("volumes", to=[{"name": "a", "hostPath": {"path": "/"}}]), "hostPath volumes are not allowed"),
    ("root", "ferry-uninstall", set_in("securityContext", "runAsUser", to=0), "runAsUser"))


@unittest.skipUnless(TOOL, "FERRY_OPENSHIFT_ADMIT names no folder of openshift-admit")
class AdmissionTest(unittest.TestCase):
    def verdicts(self, objects: list[chart.Object]) -> dict[str, str]:
        """Of each pod by the name of its controller: "CONSTRAINTS GROUPS" or "refused: REASON"."""
        done = subprocess.run([TOOL + "/openshift-admit", space_of(objects), TOOL + "/constraints.yaml"], input=yaml.safe_dump_all(objects),
                              capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
        self.assertEqual(set(found), set(pods_of(objects)))
        return found

    def test_each_pod_is_admitted_by_its_accounts_constraints(self) -> None:
        for file in chart.SAMPLES:
            with self.subTest(values=file.name):
                objects = objects_of(chart.sample(file))
                space = space_of(objects)
                of_user = {user: name for name, one in constraints_of(objects).items() for user in one["users"]}
                for controller, verdict in self.verdicts(objects).items():
                    user = user_of(pods_of(objects)[controller], space)
                    self.assertEqual(verdict.split()[0], of_user[user], (controller, verdict))

    def test_no_pod_gets_a_group_of_another(self) -> None:
        found = self.verdicts(objects_of({"dra": {"enabled": True}}))
        self.assertEqual(found, {"ferry": "ferry-node [64711 64712]", "ferry-plugin": "ferry-node [0]", "ferry-agent": "ferry-agent [64711]",
                                 "ferry-dra": "ferry-dra [64712]", "ferry-uninstall": "ferry-uninstall [65534]",
                                 "ferry-test": "ferry-test [65534]"})

    def test_without_the_value_no_pod_is_admitted(self) -> None:
        for controller, verdict in self.verdicts(chart.render_all({"dra": {"enabled": True}})).items():
            self.assertTrue(verdict.startswith("refused: "), controller)

    def test_a_pod_with_another_right_is_refused(self) -> None:
        rendered = objects_of({"dra": {"enabled": True}})
        for right, controller, change, reason in FAULTS:
            with self.subTest(right=right, pod=controller):
                objects = copy.deepcopy(rendered)
                change(pods_of(objects)[controller])
                found = self.verdicts(objects)
                self.assertRegex(found.pop(controller), f"^refused: .*{reason}")
                self.assertEqual([one for one in found.values() if one.startswith("refused")], [])

    def test_a_constraints_object_has_the_fields_of_its_kind(self) -> None:
        for key, value in (("allowHostPid", True), ("priority", "high"), ("runAsUser", {"type": "MustRunAs", "uid": "0"})):
            objects = objects_of({})
            constraints_of(objects)["ferry-node"][key] = value
            done = subprocess.run([TOOL + "/openshift-admit", "gpus", TOOL + "/constraints.yaml"], input=yaml.safe_dump_all(objects),
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, key)
            self.assertIn(key, done.stderr)
