# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
vgpu=5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10

virt() { # NAME: asks ferry-virt for the domains; its answer goes to /mnt/state/NAME.json, its status is left in $status
  status=0
  /mnt/bin/ferry-virt domains > "/mnt/state/$1.json" || status=$?
  cat "/mnt/state/$1.json"
}

answer() { # NAME FILTER: of the answer
  jq -r "$2" "/mnt/state/$1.json"
}

step "without libvirt"
virt unreachable
expect_equal "exit status" 1 "$status"
expect_equal "code" unreachable "$(answer unreachable .error.code)"
expect_match "hint" "systemctl start libvirtd" "$(answer unreachable .error.hint)"

step "a guest sees the GPU that Ferry bound, and the vGPU"
expect_status "bind" 0 ferry vfio bind --device "$(dev gpu-b)"
for name in gpu-b gpu-b-audio; do expect_equal "$name" vfio-pci "$(driver "$name")"; done
echo "$vgpu" > "/sys/bus/pci/devices/$(dev gpu-d)/mdev_supported_types/nvidia-230/create"
start_libvirt
virt none
expect_equal "no domain" '{"domains":[]}' "$(cat /mnt/state/none.json)"
guest_start holder "pci=$(dev gpu-b)" "pci=$(dev gpu-b-audio)" "mdev=$vgpu"
guest_wait holder 300
for name in gpu-b gpu-b-audio; do
  evidence "$name" "$(guest_devices holder | grep "$(as_guest_line "$name")")"
done
evidence vgpu "$(guest_devices holder | grep "vendor=10de .*subsystem_vendor=10de subsystem_device=130c")"

step "running domains are listed"
virt one
expect_equal "exit status" 0 "$status"
expect_equal "domain" "holder $(dev gpu-b) $(dev gpu-b-audio) $vgpu" \
  "$(answer one '.domains[] | [.name, .pci[], .mdev[]] | join(" ")')"
expect_equal "pid" "$(pgrep -f guest=holder)" "$(answer one '.domains[0].pid')"
evidence "domains" "$(cat /mnt/state/one.json)"

step "the GPU goes back when its guest has ended"
expect_status "unbind" 4 ferry vfio unbind --device "$(dev gpu-b)"
expect_match "reason" holder "$REPLY"
guest_stop holder
expect_status "unbind" 0 ferry vfio unbind --device "$(dev gpu-b)"
expect_equal "gpu-b-audio" snd_hda_intel "$(driver gpu-b-audio)"
ok
