# SPDX-License-Identifier: Apache-2.0
"""`kubectl ferry kubevirt-cr --check` and the patch that it prints against an API server that keeps a KubeVirt object: for
a test whose cluster and host are there (plugin_test.py). KubeVirt itself is not; its object has a schema of the fields that
count here."""

import json
import os
import pathlib
import subprocess
from typing import Any

from cluster.kubernetes import AUDITED, Kubernetes
from cluster.programs import wait_until

ACCOUNT = "kubevirt-cr"
SPACE = "kubevirt"
OBJECT = ("kubevirt", "kubevirt", "-n", SPACE)
THEIRS = {"pciVendorSelector": "1002:73A1", "resourceName": "amd.com/GPU", "externalResourceProvider": True}
STATUS_DONE, STATUS_FAILED, STATUS_DIFFERS, STATUS_REFUSED = 0, 1, 3, 4


def list_of(selector: str) -> dict[str, Any]:
    """The form of KubeVirt's own list, which each writer writes whole."""
    fields = {selector: {"type": "string"}, "resourceName": {"type": "string"},
              "externalResourceProvider": {"type": "boolean"}}
    return {"type": "array", "x-kubernetes-list-type": "atomic", "items": {
        "type": "object", "required": [selector, "resourceName"], "properties": fields}}


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "kubevirts.kubevirt.io"},
    "spec": {
        "group": "kubevirt.io", "scope": "Namespaced",
        "names": {"kind": "KubeVirt", "plural": "kubevirts", "singular": "kubevirt"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                "imagePullPolicy": {"type": "string"},
                "configuration": {"type": "object", "properties": {
                    "developerConfiguration": {"type": "object", "properties": {
                        "featureGates": {"type": "array", "items": {"type": "string"}},
                        "disabledFeatureGates": {"type": "array", "items": {"type": "string"}}}},
                    "mediatedDevicesConfiguration": {"type": "object", "properties": {"enabled": {"type": "boolean"}}},
                    "permittedHostDevices": {"type": "object", "properties": {
                        "pciHostDevices": list_of("pciVendorSelector"),
                        "mediatedDevices": list_of("mdevNameSelector")}}}}}}}}}}]}}
RIGHTS = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": AUDITED}},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ACCOUNT},
     "rules": [{"apiGroups": ["kubevirt.io"], "resources": ["kubevirts"], "verbs": ["get", "list", "patch"]}]},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT},
     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
     "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": AUDITED}]}]


class KubevirtObject:
    """The cluster's, and `kubectl ferry kubevirt-cr` under an account that may do with it what it needs to."""

    def __init__(self, kubernetes: Kubernetes, root: pathlib.Path) -> None:
        self.kubernetes = kubernetes
        self._root = root
        for space in (AUDITED, SPACE):
            kubernetes.kubectl("create", "namespace", space)
        kubernetes.apply(DEFINITION, *RIGHTS)
        wait_until("the API server knows KubeVirt objects", lambda: kubernetes.try_kubectl(
            "get", "--raw", "/apis/kubevirt.io/v1/kubevirts"), 60)
        kubernetes.add_user(ACCOUNT, kubernetes.token_of(AUDITED, ACCOUNT))

    def make(self, configuration: Any) -> None:
        self.kubernetes.kubectl("create", "-f", "-", stdin=self.manifest(configuration))

    def manifest(self, configuration: Any) -> str:
        return json.dumps({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
                           "metadata": {"name": "kubevirt", "namespace": SPACE},
                           "spec": {"imagePullPolicy": "Always", "configuration": configuration}})

    def remove(self) -> None:
        self.kubernetes.kubectl("delete", *OBJECT)

    def get(self) -> Any:
        return self.kubernetes.get(*OBJECT)

    def offered(self, *naming: str) -> str:
        """The devices of the node."""
        return subprocess.run([os.environ["CLUSTER_BIN"] + "/ferry", "--host-root", str(self._root), "kubevirt-cr", "-o", "json",
                               *naming], check=True, capture_output=True, text=True).stdout

    def plugin(self, *words: str, offered: str) -> subprocess.CompletedProcess[str]:
        kubectl, kubeconfig = self.kubernetes.kubectl_command(ACCOUNT)
        return subprocess.run([os.environ["CLUSTER_BIN"] + "/kubectl-ferry", "--kubectl", kubectl, kubeconfig, "kubevirt-cr",
                               "--check", "-", *words], check=False, capture_output=True, text=True, input=offered, timeout=60)

    def check(self) -> tuple[int, str]:
        """Exit status, and what was said."""
        done = self.plugin(offered=self.offered())
        return done.returncode, done.stdout + done.stderr

    def add(self, *naming: str) -> tuple[int, str, int]:
        """The same of the patch, which is applied until the object has not changed meanwhile; and how often it had."""
        offered = self.offered(*naming)
        for conflicts in range(20):
            done = self.plugin("--patch", offered=offered)
            if done.returncode != STATUS_DONE:
                return done.returncode, done.stdout + done.stderr, conflicts
            patched = subprocess.run([*self.kubernetes.kubectl_command(ACCOUNT), "patch", *OBJECT, "--type", "merge",
                                      "--patch-file", "/dev/stdin"], check=False, capture_output=True, text=True, input=done.stdout)
            if "(Conflict)" not in patched.stderr:
                return patched.returncode, patched.stdout + patched.stderr, conflicts
        return STATUS_FAILED, "the object changes all the time", conflicts
