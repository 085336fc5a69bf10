# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
profiles=/mnt/tests/scenarios/whole-vfs.yaml
gpu=$(dev flex)
pf=/sys/bus/pci/devices/$gpu

vf() { # NUMBER: the address of a virtual function
  basename "$(readlink "$pf/virtfn$1")"
}

drivers() { # of the virtual functions, one line
  local function
  for function in "$pf"/virtfn*; do
    [[ -e $function ]] || continue
    basename "$(readlink "$function/driver" || echo none)"
  done | xargs
}

apply() { # PROFILE
  expect_status "apply $1" 0 ferry vgpu apply -f $profiles -c "$1"
}

refused() { # ARGUMENT...: ferry vgpu refuses, names the VM and writes nothing
  local before
  before=$(snapshot)
  expect_status "$*" 4 ferry vgpu "$@"
  expect_match "the VM is named" "VM part \\(pid $vm\\)" "$REPLY"
  expect_equal "drivers and overrides" "$before" "$(snapshot)"
}

step "before there are virtual functions"
expect_status "types" 0 ferry vgpu types
expect_match "the type that they will have" "8086:0010" "$REPLY"
expect_status "a dry run" 0 ferry vgpu apply --dry-run -f $profiles -c two
expect_status "more than it can have" 4 ferry vgpu validate --host -f $profiles -c too-many
expect_equal "virtual functions" "" "$(drivers)"

step "a profile makes them and binds them"
apply two
expect_equal "their drivers" "vfio-pci vfio-pci" "$(drivers)"
expect_equal "the GPU's driver" xe "$(driver flex)"
expect_equal "the setting of probes" 1 "$(< "$pf/sriov_drivers_autoprobe")"
expect_status "what KubeVirt has to permit" 0 ferry kubevirt-cr
expect_match "the functions" "8086:0010" "$REPLY"

step "an equal value is not written"
before=$(snapshot)
inode=$(stat -L -c %i "$pf/virtfn0/driver_override")
apply two
expect_equal "drivers and overrides" "$before" "$(snapshot)"
expect_equal "the same function" "$inode" "$(stat -L -c %i "$pf/virtfn0/driver_override")"
expect_status "assert" 0 ferry vgpu assert -f $profiles -c two
expect_status "another profile differs" 3 ferry vgpu assert -f $profiles -c four
ferry vgpu export > /run/exported.yaml
cat /run/exported.yaml
expect_status "what is exported is so" 0 ferry vgpu assert -f /run/exported.yaml

step "a VM takes one"
held=$(vf 1)
mkfifo /run/part.in
qemu-system-x86_64 -name guest=part -nodefaults -no-user-config -display none -no-reboot -machine q35 -accel tcg \
  -m "$(guest_memory)" -kernel /mnt/guest/kernel -initrd /mnt/guest/initrd -append "console=ttyS0 quiet no_timer_check" \
  -chardev stdio,id=console,logfile=/mnt/state/part.console -serial chardev:console \
  -device "vfio-pci,host=$held" <> /run/part.in > /run/part.out 2>&1 &
vm=$!
has_it() { [[ $(readlink /proc/$vm/fd/* | grep -c vfio-device) == 1 ]]; }
wait_for has_it 60 || fail "the VM does not start: $(< /run/part.out)"

step "a change that would remove it is refused"
refused apply -f $profiles -c four
refused apply -f $profiles -c none
refused delete --device "$gpu" --foreign

step "the guest sees the function"
guest_wait part 250
evidence "guest" "$(guest_devices part)"
expect_match "its IDs" "vendor=8086 device=0010" "$(guest_devices part)"
echo "power off" > /run/part.in
wait $vm

step "another number makes them anew"
apply four
expect_equal "their drivers" "vfio-pci vfio-pci vfio-pci vfio-pci" "$(drivers)"
expect_status "delete" 0 ferry vgpu delete --device "$gpu" --foreign
expect_equal "their drivers" "none none none none" "$(drivers)"

step "those of the host are taken over, and go back"
echo 0 > "$pf/sriov_numvfs"
echo 2 > "$pf/sriov_numvfs"
expect_equal "their drivers" "xe xe" "$(drivers)"
apply two
expect_equal "their drivers" "vfio-pci vfio-pci" "$(drivers)"
apply none
expect_equal "their drivers" "xe xe" "$(drivers)"

step "the GPU goes to a VM whole, and the functions go first"
printf 'version: v2\npolicies:\n  whole:\n  - {address: "%s", mode: passthrough}\n' "$gpu" > /run/whole.yaml
apply two
expect_status "apply" 0 ferry apply -f /run/whole.yaml
expect_equal "virtual functions" "" "$(drivers)"
expect_equal "the GPU's driver" vfio-pci "$(driver flex)"
ok
