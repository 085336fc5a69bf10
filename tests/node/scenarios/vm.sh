# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
uuid=7c1f5cf6-1f0e-4dbd-9d8c-2f1d3f0a5b11

step "libvirt answers"
start_libvirt
evidence version "$(virsh -c qemu:///system version | grep 'Running hypervisor')"

step "a GPU on vfio-pci, a vGPU"
for name in gpu-a gpu-a-audio; do
  to_vfio "$name"
done
type=$(grep -lx "GRID T4-2Q" /sys/class/mdev_bus/"$(dev gpu-d)"/mdev_supported_types/*/name)
echo "$uuid" > "${type%/name}/create"
expect "the vGPU is there" test -e "/sys/bus/mdev/devices/$uuid"

step "both guests see what they were given"
guest_start whole "pci=$(dev gpu-a)" "pci=$(dev gpu-a-audio)"
guest_start part "mdev=$uuid"
guest_wait whole 300
guest_wait part 100
for name in gpu-a gpu-a-audio; do
  evidence "$name" "$(guest_devices whole | grep "$(as_guest_line "$name")")"
done
evidence vgpu "$(guest_devices part | grep "vendor=10de device=1eb8 class=030000 subsystem_vendor=10de")"
expect_status "nothing else came into the guest" 1 grep -q "subsystem_vendor=10de" \
  <(guest_devices part | grep -v "device=1eb8")

step "both guests end"
guest_stop whole
guest_stop part
