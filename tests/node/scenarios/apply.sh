# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
cat > /run/policy.yaml <<'YAML'
version: v2
policies:
  mixed:
  - {devices: [0, 1], mode: passthrough}
  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}
  swapped:
  - {devices: [0], mode: host}
  - {devices: [3], mode: passthrough}
  host:
  - {devices: all, mode: host}
YAML

vgpu_count() { find /sys/bus/mdev/devices -mindepth 1 2> /dev/null | wc -l; }

before=$(driver gpu-a)
expect_equal "driver of gpu-a at first" bochs-drm "$before"

step "the policy holds"
expect_status "the dry run" 0 ferry apply -f /run/policy.yaml -c mixed --dry-run
expect_equal "a dry run binds nothing" bochs-drm "$(driver gpu-a)"
expect_status "apply" 0 ferry apply -f /run/policy.yaml -c mixed
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do
  expect_equal "driver of $name" vfio-pci "$(driver "$name")"
done
expect_equal "driver of gpu-d" nvidia "$(driver gpu-d)"
expect_equal "vGPUs" 2 "$(vgpu_count)"
expect_equal "a GPU that no item is for" "" "$(driver gpu-c)"

step "a second run changes nothing"
devices=$(find /sys/bus/mdev/devices/ -mindepth 1 -printf '%f %i\n' | sort)
expect_status "apply again" 0 ferry apply -f /run/policy.yaml -c mixed
expect_equal "the same vGPUs" "$devices" "$(find /sys/bus/mdev/devices/ -mindepth 1 -printf '%f %i\n' | sort)"

step "another policy"
expect_status "apply swapped" 0 ferry apply -f /run/policy.yaml -c swapped
expect_equal "driver of gpu-a" bochs-drm "$(driver gpu-a)"
expect_equal "driver of gpu-a-audio" snd_hda_intel "$(driver gpu-a-audio)"
expect_equal "driver of gpu-b" vfio-pci "$(driver gpu-b)"
expect_equal "driver of gpu-d" vfio-pci "$(driver gpu-d)"
expect_equal "vGPUs" 0 "$(vgpu_count)"

step "what went along with a GPU that is gone comes back"
echo 1 > "/sys/bus/pci/devices/$(dev gpu-b)/remove"
expect_equal "driver of gpu-b-audio before" vfio-pci "$(driver gpu-b-audio)"
expect_status "apply without it" 0 ferry apply -f /run/policy.yaml -c swapped
expect_equal "driver of gpu-b-audio" snd_hda_intel "$(driver gpu-b-audio)"
expect_equal "its override" "(null)" "$(attribute gpu-b-audio driver_override)"
echo 1 > /sys/bus/pci/rescan
expect "gpu-b is back" wait_for "[[ -e /sys/bus/pci/devices/$(dev gpu-b) ]]" 30

step "everything to the host"
expect_status "apply host" 4 ferry apply -f /run/policy.yaml -c host # gpu-b and gpu-c have no driver there
expect_match "why" "no driver has taken it" "$REPLY"
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio gpu-d; do
  expect_equal "driver of $name" "$(planned "$name" driver)" "$(driver "$name")"
done
expect "no record is left" test -z "$(ls /run/ferry/hostd/moves)"

# Every guide to passthrough writes it first.
step "an override that names another driver"
gpu=$(dev gpu-a)
echo vfio-pci > "/sys/bus/pci/devices/$gpu/driver_override"
before=$(snapshot)
expect_status "the plan" 0 ferry vfio plan --device "$gpu"
expect_match "the plan's note" "driver_override of $gpu names vfio-pci, while bochs-drm is bound" "$REPLY"
expect_status "doctor" 0 ferry doctor # its GPU behind a bridge fails, and others are ready
expect_match "doctor's warning" "driver_override of $gpu names vfio-pci, while bochs-drm is bound" "$REPLY"
expect_status "status" 0 ferry status
expect_match "the row's note" "driver_override of $gpu names vfio-pci" "$REPLY"
expect_status "bind" 0 ferry vfio bind --device "$gpu"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_status "unbind" 0 ferry vfio unbind --device "$gpu"
expect_equal "drivers and overrides" "$before" "$(snapshot)"

step "a bind that fails midway beside such an override"
mount --bind /dev/null "/sys/bus/pci/devices/$(dev gpu-a-audio)/driver_override" # it takes the override, and forgets it
expect_status "bind" 1 ferry vfio bind --device "$gpu"
umount "/sys/bus/pci/devices/$(dev gpu-a-audio)/driver_override"
expect_equal "drivers and overrides" "$before" "$(snapshot)"
echo > "/sys/bus/pci/devices/$gpu/driver_override"

step "under the names of NVIDIA's programs"
for name in vfio-manage nvidia-vgpu-dm; do ln -s "$(command -v ferry)" /run/$name; done
expect_status "bind" 0 /run/vfio-manage bind --device-id "$(dev gpu-a)"
for name in gpu-a gpu-a-audio; do expect_equal "driver of $name" vfio-pci "$(driver "$name")"; done
expect_status "what cannot be bound whole" 1 env BIND_NVSWITCHES=true /run/vfio-manage bind --all
expect_equal "driver of gpu-c" "" "$(driver gpu-c)"
expect_equal "driver of gpu-b" vfio-pci "$(driver gpu-b)"
expect_status "unbind" 0 /run/vfio-manage unbind --all
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do
  expect_equal "driver of $name" "$(planned "$name" driver)" "$(driver "$name")"
done
cat > /run/profiles.yaml <<'YAML'
version: v1
vgpu-configs:
  two:
  - {devices: [3], vgpu-devices: {T4-4Q: 2}}
YAML
type=$(grep -lx 'GRID T4-8Q' "/sys/bus/pci/devices/$(dev gpu-d)"/mdev_supported_types/*/name)
cat /proc/sys/kernel/random/uuid > "$(dirname "$type")/create"
expect_status "what somebody else has made stays by hand" 4 ferry vgpu apply -f /run/profiles.yaml
expect_status "apply" 0 env VGPU_DM_SELECTED_CONFIG=two /run/nvidia-vgpu-dm apply -f /run/profiles.yaml
expect_equal "vGPUs" 2 "$(vgpu_count)"
expect_status "assert" 1 /run/nvidia-vgpu-dm assert -f /run/profiles.yaml -c two
expect_match "items for some GPUs only" "GPU 0" "$REPLY"
ferry vgpu delete --all
