# SPDX-License-Identifier: Apache-2.0
# hostd as the values hostd.privileged and hostd.systemd=false change it.
.containers |= [.[] | select(.name == "hostd")
  | .args -= ["--own-scope"]
  | .securityContext |= (del(.allowPrivilegeEscalation, .capabilities, .seccompProfile) | .privileged = true)
  | .volumeMounts |= [{name: "root", mountPath: "/host", readOnly: false, mountPropagation: "HostToContainer"},
                      {name: "dev", mountPath: "/dev"}] + map(select(.name != "systemd" and .name != "dbus"))]
| .volumes |= (del(.systemd, .dbus) | .root = "/")
