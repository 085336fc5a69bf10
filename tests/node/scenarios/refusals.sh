# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh

refused() { # WHAT REGEX ARGUMENT...: ferry refuses for this reason and writes nothing
  local what=$1 reason=$2 before
  shift 2
  before=$(snapshot)
  expect_status "$what" 4 ferry "$@"
  expect_match "$what" "$reason" "$REPLY"
  expect_equal "$what: drivers and overrides" "$before" "$(snapshot)"
  expect_equal "$what: records" "" "$(ls /run/ferry/hostd/moves 2> /dev/null || :)"
  evidence "$what" "$(grep -E "$reason" <<< "$REPLY")"
}

changed() { # ARGUMENT...: ferry binds or unbinds all that it is asked for
  expect_status "ferry $*" 0 ferry "$@"
}

on_vfio() { # NAME...
  local name
  for name in "$@"; do
    expect_equal "driver of $name" vfio-pci "$(driver "$name")"
    expect "the node of its group" test -c "/dev/vfio/$(group "$name")"
  done
}

disk_of() { # SERIAL: the disk's node, once it is there
  wait_for "lsblk -dno PATH,SERIAL | grep -qE ' $1 *\$'" 60
  lsblk -dno PATH,SERIAL | sed -nE "s/ +$1 *\$//p"
}

bridge_of() { # NAME: the address of the bridge above it
  basename "$(dirname "$(realpath "/sys/bus/pci/devices/$(dev "$1")")")"
}

step "a bridge's driver blocks its group"
refused "shpchp on the bridge" "blocked by the driver of bridge $(bridge_of left) .*shpchp" \
  vfio bind --device "$(dev left)" --device "$(dev right)"
for name in left guest-gpu; do bridge_of "$name" > /sys/bus/pci/drivers/shpchp/unbind; done
snapshot > /run/start

step "of two GPUs in a group one is not bound alone"
refused "the other GPU" "$(dev right) .*another accelerator of the same group" vfio bind --device "$(dev left)"
changed vfio bind --device "$(dev left)" --device "$(dev right)"
on_vfio left right
changed vfio unbind --device "$(dev left)" --device "$(dev right)"
expect_equal "all as before" "$(< /run/start)" "$(snapshot)"

step "disks and a network card keep their group, also where --with names them"
gpu=$(dev guest-gpu)
modprobe virtio_net
mkdir -p "/run/the data"
for name in disk shared-disk; do
  disk=$(disk_of $name)
  mkfs.minix "$disk"
  mount "$disk" "/run/the data"
  echo "written before" > "/run/the data/file"
  umount "/run/the data"
done
expect "the link comes" wait_for "[[ -e /sys/class/net/eth0 ]]" 60
refused "strangers in the group" "$(dev disk) .*driver nvme.* shares the group" vfio bind --device "$gpu"
for name in disk shared-disk nic; do
  expect_status "--with $name" 2 ferry vfio bind --device "$gpu" --with "$(dev $name)"
  expect_match "--with $name" "$(dev $name) .* is no audio, USB or USB-C function of a chosen card" "$REPLY"
done
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"

step "without their drivers they are no obstacle"
declare -A drivers=()
for name in disk shared-disk nic; do
  drivers[$name]=$(driver $name)
  dev $name > "/sys/bus/pci/drivers/${drivers[$name]}/unbind"
done
changed vfio bind --device "$gpu"
on_vfio guest-gpu
changed vfio unbind --device "$gpu"
for name in disk shared-disk nic; do dev $name > "/sys/bus/pci/drivers/${drivers[$name]}/bind"; done
expect_equal "all as before" "$(< /run/start)" "$(snapshot)"
for name in disk shared-disk; do
  mount "$(disk_of $name)" "/run/the data"
  expect_equal "what is on $name" "written before" "$(< "/run/the data/file")"
  umount "/run/the data"
done

step "a physical function stays while it has virtual functions"
pf=/sys/bus/pci/devices/$(dev sriov)
modprobe pci-pf-stub
echo pci-pf-stub > "$pf/driver_override"
dev sriov > /sys/bus/pci/drivers_probe
echo 0 > "$pf/sriov_drivers_autoprobe"
echo 4 > "$pf/sriov_numvfs"
refused "four virtual functions" "$(dev sriov) has 4 virtual functions enabled" vfio bind --device "$(dev sriov)"
expect "the virtual functions are there" test -e "$pf/virtfn3"

step "a virtual function is bound alone, by its own group"
vf=$(basename "$(realpath "$pf/virtfn0")")
expect "it has no driver" test ! -e "/sys/bus/pci/devices/$vf/driver"
changed vfio bind --device "$vf"
expect_equal "its driver" vfio-pci "$(basename "$(realpath "/sys/bus/pci/devices/$vf/driver")")"
expect_equal "driver of the physical function" pci-pf-stub "$(driver sriov)"
changed vfio unbind --device "$vf"
expect "it has no driver again" test ! -e "/sys/bus/pci/devices/$vf/driver"
expect_equal "its override" "(null)" "$(cat "/sys/bus/pci/devices/$vf/driver_override")"
echo 0 > "$pf/sriov_numvfs"
snapshot > /run/with-stub
changed vfio bind --device "$(dev sriov)"
on_vfio sriov
changed vfio unbind --device "$(dev sriov)"
expect_equal "driver and the administrator's override" "$(< /run/with-stub)" "$(snapshot)"

step "the boot display, with the console on its driver's framebuffer, goes only by force"
expect_equal "boot_vga" 1 "$(attribute screen boot_vga)"
console=$(dirname "$(grep -l 'frame buffer' /sys/class/vtconsole/*/name)")
expect_match "the framebuffer" "bochs" "$(< /proc/fb)"
expect_equal "the console is on it" 1 "$(< "$console/bind")"
refused "the firmware's screen" "$(dev screen) is in use: the host's boot display" vfio bind --device "$(dev screen)"
changed vfio bind --force --device "$(dev screen)"
on_vfio screen screen-audio
expect_equal "framebuffers that are left" "" "$(< /proc/fb)"
changed vfio unbind --device "$(dev screen)"
expect_match "the framebuffer again" "bochs" "$(< /proc/fb)"
expect_equal "the console is back on it" 1 "$(< "$console/bind")"
expect_equal "all as before" "$(< /run/with-stub)" "$(snapshot)"
ok
