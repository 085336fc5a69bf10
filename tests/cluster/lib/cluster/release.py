# SPDX-License-Identifier: Apache-2.0
"""The differences between the releases of Kubernetes that the tests run: the current and the newest one (scripts/lib/kubernetes)
with containerd 2, and the oldest one that Ferry supports (scripts/lib/kubernetes-oldest) with containerd 1.6."""

import dataclasses
import json
import pathlib
import re
import subprocess
from typing import Any

# Only the controllers that the tests need. The others would take time.
CONTROLLERS = ("serviceaccount", "serviceaccount-token", "root-ca-cert-publisher", "namespace", "daemonset",
               "garbagecollector", "nodelifecycle", "podgc", "disruption", "job")
CONTROLLERS_SINCE = {
    29: ("taint-eviction-controller",),  # before, nodelifecycle evicted by taints
    30: ("validatingadmissionpolicy-status-controller",),
    34: ("resourceclaim-controller",),
}


@dataclasses.dataclass(frozen=True)
class Release:
    """A release 1.MINOR."""

    minor: int

    @classmethod
    def of(cls, kubelet: pathlib.Path) -> "Release":
        printed = subprocess.run([kubelet, "--version"], capture_output=True, text=True, check=True).stdout
        found = re.search(r" v1\.(\d+)\.", printed)
        assert found, printed
        return cls(int(found[1]))

    @property
    def current(self) -> bool:
        """True if it has admission policies, CDI in Allocate, runtime handlers in the node's status, and containerd 2."""
        return self.minor >= 36

    @property
    def budgets(self) -> str:
        """The API version of a PodDisruptionBudget."""
        return "policy/v1" if self.minor >= 21 else "policy/v1beta1"

    def kubelet_configuration(self, containerd: str) -> dict[str, Any]:
        """Keys for a machine with version 1 of control groups, which the kubelet refuses by itself since 1.35."""
        return {"containerRuntimeEndpoint": containerd, "failCgroupV1": False} if self.current else {}

    def kubelet_options(self, containerd: str) -> list[str]:
        return [] if self.current else ["--container-runtime=remote", f"--container-runtime-endpoint={containerd}"]

    def without_plain_http(self) -> list[str]:
        """Before 1.24, controller manager and scheduler also served HTTP without TLS on all addresses."""
        return ["--port=0"] if self.minor < 24 else []

    def controllers(self) -> list[str]:
        return [*CONTROLLERS, *(name for since, names in CONTROLLERS_SINCE.items() if self.minor >= since for name in names)]

    def containerd_configuration(self, restrict_oom_scores: bool, image: str, networks: pathlib.Path,
                                 imports: list[str]) -> str:
        restrict = str(restrict_oom_scores).lower()
        if self.current:
            return f"""version = 3
root = "/run/containerd-root"
{f"imports = {json.dumps(imports)}" if imports else ""}
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {restrict}
[plugins."io.containerd.cri.v1.runtime".cni]
  conf_dir = "{networks}"
"""
        return f"""version = 2
root = "/run/containerd-root"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = {restrict}
  sandbox_image = "{image}"
[plugins."io.containerd.grpc.v1.cri".cni]
  conf_dir = "{networks}"
"""
