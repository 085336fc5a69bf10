# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
guest=(--kernel /mnt/guest/kernel --initrd /mnt/guest/initrd --timeout 400)
vgpu=5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10

virt() { # NAME ARGUMENT...: ferry-virt; its answer goes to /mnt/state/NAME.json, its status is left in $status
  local name=$1
  shift
  status=0
  /mnt/bin/ferry-virt "$@" > "/mnt/state/$name.json" || status=$?
  cat "/mnt/state/$name.json"
}

answer() { # NAME FILTER: of the answer
  jq -r "$2" "/mnt/state/$1.json"
}

nothing_left() {
  expect_equal "test VMs" "" "$(virsh -q -c qemu:///system list --all --name | grep ^ferry-selftest || :)"
  expect_equal "console sockets" "" "$(ls /run/ferry)"
}

step "without libvirt"
virt unreachable domains
expect_equal "exit status" 1 "$status"
expect_equal "code" unreachable "$(answer unreachable .error.code)"
expect_match "hint" "systemctl start libvirtd" "$(answer unreachable .error.hint)"

step "a test VM sees the GPU and the vGPU"
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do to_vfio "$name"; done
echo "$vgpu" > "/sys/bus/pci/devices/$(dev gpu-d)/mdev_supported_types/nvidia-230/create"
start_libvirt
virt test selftest --device "$(dev gpu-a)" --device "$(dev gpu-a-audio)" --device "$vgpu" "${guest[@]}"
expect_equal "exit status" 0 "$status"
inside() { # DEVICE: what the guest has in its place
  local seen
  seen=$(answer test ".devices[] | select(.device == \"$1\") | .seen_as")
  answer test ".guest[] | select(.address == \"$seen\") | \"vendor=\(.vendor) device=\(.device) class=\(.class)
    subsystem_vendor=\(.subsystem_vendor) subsystem_device=\(.subsystem_device)\"" | xargs
}
for name in gpu-a gpu-a-audio; do
  expect_equal "$name" "$(as_guest_line "$name")" "$(inside "$(dev "$name")")"
  evidence "$name" "$(inside "$(dev "$name")")"
done
expect_match "the vGPU has its type's subsystem" "^vendor=10de .*subsystem_device=130c$" "$(inside "$vgpu")"
evidence "vgpu" "$(inside "$vgpu")"
evidence "seconds" "$(answer test .seconds) with $(answer test .accelerator)"
nothing_left

step "running domains are listed"
virt none domains
expect_equal "no domain" '{"domains":[]}' "$(cat /mnt/state/none.json)"
guest_start holder "pci=$(dev gpu-b)" "mdev=$vgpu"
virt one domains
expect_equal "exit status" 0 "$status"
expect_equal "domain" "holder $(dev gpu-b) $vgpu" "$(answer one '.domains[] | "\(.name) \(.pci[]) \(.mdev[])"')"
expect_equal "pid" "$(pgrep -f guest=holder)" "$(answer one '.domains[0].pid')"
evidence "domains" "$(cat /mnt/state/one.json)"

step "a device in use cannot be tested"
virt used selftest --device "$(dev gpu-b)" "${guest[@]}"
expect_equal "exit status" 1 "$status"
expect_match "reason" "holder" "$(answer used .error.message)"
evidence "in use" "$(answer used .error.message)"
virt unbound selftest --device "$(dev gpu-c)" "${guest[@]}"
expect_equal "exit status" 4 "$status"
nothing_left
virsh -q -c qemu:///system destroy holder

step "a killed test leaves no VM behind"
/mnt/bin/ferry-virt selftest --device "$(dev gpu-a)" "${guest[@]}" > /dev/null &
test_pid=$!
wait_for "virsh -q -c qemu:///system list --name | grep -q ^ferry-selftest" 200
kill -KILL "$test_pid"
expect "the VM goes" wait_for "! virsh -q -c qemu:///system list --all --name | grep -q ^ferry-selftest" 120
ok
