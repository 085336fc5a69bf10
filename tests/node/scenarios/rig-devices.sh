# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
echo devices > /mnt/state/boots

step "every device has its IDs"
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio gpu-c gpu-d; do
  for what in vendor device subsystem_vendor subsystem_device class; do
    expect_equal "$name $what" "0x$(planned "$name" $what)" "$(attribute "$name" $what)"
  done
  expect_equal "$name driver" "$(planned "$name" driver)" "$(driver "$name")"
done
expect_equal "the ordinary device" nvme "$(driver disk)"
evidence "what lspci says" "$(lspci -nnk)"

step "groups"
members() { # NAME: the addresses in its group
  local found=(/sys/kernel/iommu_groups/"$(group "$1")"/devices/*)
  echo "${found[*]##*/}"
}
expect_equal "gpu-a" "$(dev gpu-a) $(dev gpu-a-audio)" "$(members gpu-a)"
expect_equal "gpu-b" "$(dev gpu-b) $(dev gpu-b-audio)" "$(members gpu-b)"
expect_equal "gpu-d" "$(dev gpu-d)" "$(members gpu-d)"
expect_equal "gpu-c" "$(group display-c)" "$(group gpu-c)"
expect_match "gpu-c shares its group with a bridge" "^0000:04:00.0 $(dev gpu-c) $(dev display-c)$" "$(members gpu-c)"

step "a guest sees the GPU"
for name in gpu-a gpu-a-audio; do
  to_vfio "$name"
done
qemu-system-x86_64 -accel tcg -machine q35 -m "$(guest_memory)" -nodefaults -display none -no-reboot -serial stdio \
  -kernel /mnt/guest/kernel -initrd /mnt/guest/initrd -append "console=ttyS0 quiet no_timer_check ferry.selftest=1" \
  -device "vfio-pci,host=$(dev gpu-a)" -device "vfio-pci,host=$(dev gpu-a-audio)" | tr -d '\r' > /mnt/state/guest.console
for name in gpu-a gpu-a-audio; do
  evidence "$name" "$(grep "$(as_guest_line "$name")" /mnt/state/guest.console)"
done

step "unplug"
device=/sys/bus/pci/devices/$(dev gpu-e)
expect "gpu-e is there" test -e "$device"
echo "READY: take gpu-e away"
expect "gpu-e goes" wait_for "! test -e $device" 120
expect "its audio function goes too" wait_for "! test -e /sys/bus/pci/devices/$(dev gpu-e-audio)" 60

step "plug"
device=/sys/bus/pci/devices/$(dev gpu-f)
expect "gpu-f is not there yet" test ! -e "$device"
echo "READY: plug gpu-f in"
expect "gpu-f comes" wait_for "test -e $device" 120
expect_equal "gpu-f" "0x10de 0x2331 0x$(planned gpu-f subsystem_device)" \
  "$(attribute gpu-f vendor) $(attribute gpu-f device) $(attribute gpu-f subsystem_device)"
