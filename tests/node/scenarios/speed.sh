# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
ratios() { # PROGRAM ARGUMENT...
  local result
  result=$("$1" ${tight[@]+"${tight[@]}"} "${@:2}" 2>&1) || fail "$result"
  evidence "ratios" "$result"
}

step "binds"
ratios rebind_bench "$(dev card)" "$(dev lone)"

step "vGPUs"
for name in l40s-mdev l40s-vfio; do
  attribute "$name" sriov_totalvfs > "/sys/bus/pci/devices/$(dev "$name")/sriov_numvfs"
done
cat > /run/profile.yaml <<'PROFILE'
version: v1
vgpu-configs:
  small:
  - {device-filter: "0x1EB810DE", devices: all, vgpu-devices: {"T4-1Q": 16}}
  - {device-filter: "0x26B910DE", devices: all, vgpu-devices: {"L40S-1Q": 16}}
PROFILE
ratios vgpu_bench /run/profile.yaml
ok
