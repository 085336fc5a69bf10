# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
. /mnt/tests/scenarios/vgpu/lib.sh

apply() { # PROFILE
  expect_status "apply $1" 0 ferry vgpu apply -f $profiles -c "$1"
}

counts() { # how many vGPUs there are of each type, by function's bus
  vgpus | sed -E 's/^0000:(..):..\.. (.*)$/\1 \2/; s/ [0-9a-f]{8}-[0-9a-f-]+$//' | sort | uniq -c | sed 's/^ *//'
}

step "before there are virtual functions"
expect_status "types" 0 ferry vgpu types
expect_match "the GPU that needs none offers its types" "GRID T4-4Q" "$REPLY"
expect_status "a dry run" 0 ferry vgpu apply --dry-run -f $profiles -c three-gpus
expect_equal "virtual functions" "0 0 0" "$(vfs)"
expect_equal "vGPUs" "" "$(vgpus)"

step "virtual functions by sysfs, where the driver brings no tool"
apply one-gpu
expect_equal "virtual functions" "0 16 0" "$(vfs)"
expect_equal "vGPUs" "1 02 NVIDIA L40S-12Q" "$(counts)"

step "virtual functions by the driver's tool, and vGPUs of every framework"
install_sriov_manage
mark
expect_status "sysfs is of no use now" 1 bash -c "echo 16 > $(pf l40s-vfio)/sriov_numvfs"
apply three-gpus
expect_equal "virtual functions" "0 16 16" "$(vfs)"
expect_equal "vGPUs" "3 01 GRID T4-4Q
3 02 NVIDIA L40S-12Q
3 03 1153" "$(counts)"
expect_equal "the one that fits has stayed" 1 "$(marked | wc -l)"
vgpus > /mnt/state/vgpus
evidence "vGPUs" "$(cat /mnt/state/vgpus)"
ferry vgpu types

step "an equal value is not written"
mark
expect_status "assert" 0 ferry vgpu assert -f $profiles -c three-gpus
apply three-gpus
expect_equal "vGPUs" "$(< /mnt/state/vgpus)" "$(vgpus)"
expect_equal "their marks" 9 "$(marked | wc -l)"
expect_status "another profile differs" 3 ferry vgpu assert -f $profiles -c larger
ferry vgpu export > /run/exported.yaml
cat /run/exported.yaml
expect_status "what is exported is so" 0 ferry vgpu assert -f /run/exported.yaml

step "a VM takes a vGPU of each framework"
t4_uuid=$(vgpus | sed -n 's/^.* GRID T4-4Q //p' | sed -n 2p)
mdev_uuid=$(vgpus | sed -n 's/^.* NVIDIA L40S-12Q //p' | sed -n 2p)
held_vf=$(vf l40s-vfio 1)
mkfifo /run/part.in
qemu-system-x86_64 -name guest=part -nodefaults -no-user-config -display none -no-reboot -machine q35 -accel tcg \
  -m "$(guest_memory)" -kernel /mnt/guest/kernel -initrd /mnt/guest/initrd -append "console=ttyS0 quiet no_timer_check" \
  -chardev stdio,id=console,logfile=/mnt/state/part.console -serial chardev:console \
  -device "vfio-pci,sysfsdev=/sys/bus/mdev/devices/$t4_uuid" -device "vfio-pci,sysfsdev=/sys/bus/mdev/devices/$mdev_uuid" \
  -device "vfio-pci,host=$held_vf" <> /run/part.in > /run/part.out 2>&1 &
vm=$!
has_all() { [[ $(readlink /proc/$vm/fd/* | grep -c vfio-device) == 3 ]]; }
wait_for has_all 60 || fail "the VM does not start: $(< /run/part.out)"
held=$(printf '%s\n' "$t4_uuid" "$mdev_uuid" "$held_vf" | sort)

step "the vGPU of the VM stays while all others change"
apply other-series
expect_equal "vGPUs" "2 01 GRID T4-4C
1 01 GRID T4-4Q
2 02 NVIDIA L40S-12C
1 02 NVIDIA L40S-12Q
1 03 1153
2 03 1182" "$(counts)"
expect_equal "those with their mark" "$held" "$(marked | sort)"

step "a change that would remove it is refused"
vgpus > /run/before
for command in "apply -f $profiles -c larger" "delete --all --foreign"; do
  # shellcheck disable=SC2086 # the command's words
  expect_status "$command" 4 ferry vgpu $command
  expect_equal "the VM is named for each GPU" 3 "$(grep -c "VM part (pid $vm)" <<< "$REPLY")"
  expect_equal "nothing is written" "$(< /run/before)" "$(vgpus)"
done
expect_equal "those with their mark" "$held" "$(marked | sort)"
expect_status "the driver refuses too" 1 bash -c "echo 0 > /sys/bus/pci/devices/$held_vf/nvidia/current_vgpu_type"
expect_match "its errno" "Operation not permitted" "$REPLY"
for name in "${gpus[@]}"; do
  lock=/proc/driver/nvidia/gpus/$(dev "$name")/unbindLock
  echo 1 > "$lock"
  expect_equal "unbind lock of $name" 0 "$(< "$lock")"
done

step "the guest sees the three"
guest_wait part 250
evidence "guest" "$(guest_devices part)"
expect_equal "display devices" "10de:1eb8 10de:130e
10de:26b9 10de:1891
10de:26b9 10de:1891" "$(guest_devices part | sed -nE \
  's/.*vendor=(10de) device=(....) class=030000 subsystem_vendor=(10de) subsystem_device=(....)/\1:\2 \3:\4/p' | sort)"
echo "power off" > /run/part.in
wait $vm

step "once the VM has ended it can go"
apply larger
expect_equal "vGPUs" "2 01 GRID T4-8Q
2 02 NVIDIA L40S-24Q
2 03 1155" "$(counts)"

step "the driver is reloaded: the same vGPUs come back"
for name in "${gpus[@]}"; do
  dev "$name" > /sys/bus/pci/drivers/nvidia/unbind
  dev "$name" > /sys/bus/pci/drivers/nvidia/bind
done
expect_equal "vGPUs" "" "$(vgpus)"
expect_equal "virtual functions" "0 0 0" "$(vfs)"
expect_status "it is noticed" 3 ferry vgpu assert -f $profiles -c three-gpus
apply three-gpus
expect_equal "UUIDs and functions" "$(< /mnt/state/vgpus)" "$(vgpus)"

step "hostd hears that the driver is back, and makes them again"
ferry convert -f $profiles > /run/policies.yaml
mkdir -p /var/lib/ferry
jq -n --rawfile config /run/policies.yaml '{version: 2, policy: "three-gpus", config: $config}' > /var/lib/ferry/desired.json
ferry --log-level info hostd 2> /mnt/state/hostd.log &
hostd=$!
expect "it finds them as they should be" wait_for "[[ \$(jq -r .phase /run/ferry/status.json) == ready ]]" 60
for name in "${gpus[@]}"; do
  dev "$name" > /sys/bus/pci/drivers/nvidia/unbind
  dev "$name" > /sys/bus/pci/drivers/nvidia/bind
done
expect "UUIDs and functions are as before" wait_for "[[ \$(vgpus) == \"\$(< /mnt/state/vgpus)\" ]]" 120
kill $hostd
wait $hostd
rm /var/lib/ferry/desired.json

step "a policy moves vGPUs that are at another place"
expect_equal "places, the first ones free" "0 0 1 1 2 2" "$(places)"
mark
expect_status "it is noticed" 3 ferry assert -f $placed
expect_status "apply" 0 ferry apply -f $placed
expect_equal "places" "1 1 3 3" "$(places)"
expect_equal "nothing was made anew" 7 "$(marked | wc -l)"
expect_status "assert" 0 ferry assert -f $placed

step "all go"
expect_status "delete" 0 ferry vgpu delete --all --foreign
expect_equal "vGPUs" "" "$(vgpus)"

step "vGPUs of another program stay, unless --foreign is set"
stranger=5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10
for type in "$(pf t4)"/mdev_supported_types/*; do
  [[ $(< "$type/name") != "GRID T4-4Q" ]] || echo $stranger > "$type/create"
done
expect_equal "vGPUs" "$(dev t4) GRID T4-4Q $stranger" "$(vgpus)"
expect_status "apply" 4 ferry vgpu apply -f $profiles -c larger
expect_match "it is named" "not made by Ferry: $stranger" "$REPLY"
expect_equal "it is there" 1 "$(vgpus | grep -c $stranger)"
expect_status "delete" 0 ferry vgpu delete --all
expect_equal "it is there" 1 "$(vgpus | grep -c $stranger)"
expect_status "apply" 0 ferry vgpu apply -f $profiles -c larger --foreign
expect_equal "vGPUs" "2 01 GRID T4-8Q
2 02 NVIDIA L40S-24Q
2 03 1155" "$(counts)"
expect_status "delete" 0 ferry vgpu delete --all --foreign
ok
