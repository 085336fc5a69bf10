# SPDX-License-Identifier: Apache-2.0
# hostd as the value hostd.hostTools changes it.
.containers |= [.[] | select(.name == "hostd")
  | .securityContext.capabilities.add += ["SYS_CHROOT"]
  | .volumeMounts |= [{name: "root", mountPath: "/host", readOnly: true, mountPropagation: "HostToContainer"}] + .]
| .volumes.root = "/"
