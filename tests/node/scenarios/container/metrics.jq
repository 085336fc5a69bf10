# SPDX-License-Identifier: Apache-2.0
# The agent and the plugin as the value agent.metrics.enabled changes them.
def mount($name; $path): {name: $name, mountPath: $path, readOnly: true, recursiveReadOnly: "IfPossible"};
.containers |= [.[] | select(.name != "hostd")]
| (.containers[] | select(.name == "agent")) |= (
  .args |= .[:7] + ["--metrics-address=0.0.0.0:9417"] + .[7:]
  | .ports = [{name: "metrics", containerPort: 9417, protocol: "TCP"}]
  | .volumeMounts += [mount("sys-bus"; "/host/sys/bus"), mount("sys-devices"; "/host/sys/devices"),
                      mount("sys-groups"; "/host/sys/kernel/iommu_groups"), mount("sys-module"; "/host/sys/module")])
| (.containers[] | select(.name == "plugin") | .args) |= .[:6] + ["--name-pods"] + .[6:]
| .volumes["sys-module"] = "/sys/module"
