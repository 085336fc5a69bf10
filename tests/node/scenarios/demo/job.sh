# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
# The demo's job inside the node. Each step shows what Ferry prints and then looks for itself: in sysfs, in the
# stand-in's books, on the guests' consoles.
here=/mnt/tests/scenarios/demo
report=/mnt/state/report
mkdir -p "$report" /run/demo

run() { # COMMAND...: shown as it would be typed
  echo "\$ $*" >&2
  "$@"
}

keep() { # KEY VALUE: evidence that has been shown already
  _record evidence key "$1" value "$2"
}

seen() { # PATH: what is there, read by this shell, kept as evidence
  local text
  if [[ -L $1 ]]; then text=$(basename "$(readlink "$1")"); elif [[ -e $1 ]]; then text=$(< "$1"); else text="(nothing there)"; fi
  evidence "$1" "$text"
  REPLY=$text
}

expect_driver() { # NAME DRIVER
  seen "/sys/bus/pci/devices/$(dev "$1")/driver"
  expect_equal "driver of $1" "$2" "$REPLY"
}

vgpus() { # inode, UUID and type of each mediated device: another inode is another device
  local device
  for device in /sys/bus/mdev/devices/*; do
    [[ -e $device ]] || continue
    echo "$(stat -Lc %i "$device") ${device##*/} $(< "$device/mdev_type/name")"
  done
}

declare -A launchers
start_virt_launcher() { # NAME ANSWER
  unshare --mount --fork "$here/virt-launcher" "$1" "$2" &
  launchers[$1]=$!
}

stop_virt_launcher() { # NAME
  touch "/run/demo/$1.stop"
  wait "${launchers[$1]}" || fail "the launcher of $1 failed"
}

snapshot > /run/demo/before

step "status before"
run ferry status
ferry status -o json > /run/demo/status.json
for name in gpu-a gpu-b gpu-c gpu-d; do
  line=$(jq -r --arg a "$(dev $name)" '.accelerators[] | select(.address == $a) | "\(.iommu_group) \(.driver)"' /run/demo/status.json)
  bound=$(driver $name)
  expect_equal "status of $name" "$(group $name) ${bound:-null}" "$line"
  evidence "$(dev $name)" "$line"
done
expect_equal "accelerators" 4 "$(jq '.accelerators | length' /run/demo/status.json)"

step "plan: what would move, and what cannot"
expect_status "plan with a group that cannot move" 4 run ferry vfio plan --all
ferry vfio plan --all -o json > /run/demo/plan.json || :
jq -r '.results[] | select(.status == "refused") | "\(.devices[0])\t\(.reasons | join("; "))"' /run/demo/plan.json > "$report/refused"
expect_equal "refused" "$(dev gpu-c)" "$(cut -f1 "$report/refused")"
expect_match "the reason names the other display" "$(dev display-c)" "$(cat "$report/refused")"
expect_equal "nothing was written" "$(cat /run/demo/before)" "$(snapshot)"

step "bind: whole groups go to vfio-pci, one is refused untouched"
expect_status "bind with one refusal" 4 run ferry vfio bind --all
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do
  expect_driver $name vfio-pci
  dev $name >> "$report/bound"
done
for name in gpu-a gpu-b; do
  expect "the group's node" test -c "/dev/vfio/$(group $name)"
done
for name in board-display gpu-c display-c gpu-d disk; do
  was=$(grep "^$(dev $name) " /run/demo/before)
  expect_equal "$name was not written to" "$was" "$(snapshot | grep "^$(dev $name) ")"
  evidence "$(dev $name)" "$was"
done

step "bind again: nothing is left to do"
snapshot > /run/demo/bound
expect_status "bind again" 4 run ferry vfio bind --all
expect_equal "nothing moved" "$(cat /run/demo/bound)" "$(snapshot)"

step "the node's label chooses a profile, and its vGPUs come to exist"
run grep vgpu.config $here/node.yaml
run ferry vgpu types
run ferry vgpu apply -f $here/vgpu-config.yaml --node $here/node.yaml --explain
vgpus > /run/demo/vgpus
cut -d' ' -f2- /run/demo/vgpus > "$report/vgpus"
evidence "/sys/bus/mdev/devices" "$(cat "$report/vgpus")"
expect_equal "three vGPUs of the type that the label asks for" "3 GRID T4-4Q" "$(cut -d' ' -f3- /run/demo/vgpus | sort | uniq -c | xargs)"
seen "/sys/bus/pci/devices/$(dev gpu-d)/mdev_supported_types/$(basename "$(readlink "/sys/bus/mdev/devices/$(head -n 1 "$report/vgpus" | cut -d' ' -f1)/mdev_type")")/available_instances"
expect_equal "room for one more" 1 "$REPLY"

step "assert agrees, and a second apply writes nothing"
run ferry vgpu assert -f $here/vgpu-config.yaml --node $here/node.yaml
run ferry vgpu apply -f $here/vgpu-config.yaml --node $here/node.yaml
expect_equal "the very same vGPUs" "$(cat /run/demo/vgpus)" "$(vgpus)"
expect_status "another profile differs" 3 ferry vgpu assert -f $here/vgpu-config.yaml -c default

step "the kubelet is offered GPUs and vGPUs"
plugins=/var/lib/kubelet/device-plugins
mkdir -p $plugins
kubelet-standin serve --dir $plugins --pod-resources /var/lib/kubelet/pod-resources > /run/demo/standin.log 2>&1 &
wait_for "[[ -S $plugins/kubelet.sock ]]" 30 || fail "the kubelet's stand-in does not start: $(cat /run/demo/standin.log)"
echo "\$ ferry plugin &"
ferry plugin > /run/demo/plugin.log 2>&1 &
plugin=$!
ready() { [[ $(kubelet-standin resources --dir $plugins | jq '[.[] | select(.allocatable > 0)] | length') == 3 ]]; }
wait_for ready 30 || fail "the plugin registers not what it should: $(kubelet-standin resources --dir $plugins; cat /run/demo/plugin.log)"
echo "\$ kubelet-standin resources --dir $plugins"
kubelet-standin resources --dir $plugins | jq -c 'to_entries[] | {(.key): {capacity: .value.capacity, allocatable: .value.allocatable}}'
kubelet-standin resources --dir $plugins | jq 'map_values(.allocatable)' > "$report/resources.json"
expect_equal "resources" '{"nvidia.com/AD102_GEFORCE_RTX_4090":1,"nvidia.com/GA102_GEFORCE_RTX_3090":1,"nvidia.com/GRID_T4-4Q":3}' \
  "$(jq -cS . "$report/resources.json")"
evidence "/proc/$plugin/status" "$(grep VmRSS /proc/$plugin/status)"
run kubelet-standin allocate --dir $plugins nvidia.com/AD102_GEFORCE_RTX_4090 1 > /run/demo/gpu.json
run kubelet-standin allocate --dir $plugins nvidia.com/GRID_T4-4Q 1 > /run/demo/vgpu.json
cat /run/demo/gpu.json /run/demo/vgpu.json
expect_equal "environment of the GPU" "$(dev gpu-a)" "$(jq -r '.envs.PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090' /run/demo/gpu.json)"
uuid=$(jq -r '.envs["MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-4Q"]' /run/demo/vgpu.json)
expect "environment of the vGPU" test -e "/sys/bus/mdev/devices/$uuid"
expect_equal "nodes of the GPU" "/dev/vfio/vfio /dev/vfio/$(group gpu-a)" "$(jq -r '[.devices[].host_path] | join(" ")' /run/demo/gpu.json)"

step "a GPU that a pod was given is not taken away, though no VM has it yet"
expect_status "unbind between Allocate and the VM's start" 4 run ferry vfio unbind --device "$(dev gpu-a)"
expect_match "the refusal names the pod" "pod default/pod-1 holds nvidia.com/AD102_GEFORCE_RTX_4090" "$REPLY"
expect_status "nor is a vGPU" 4 run ferry vgpu delete --all
expect "the vGPU is there" test -e "/sys/bus/mdev/devices/$uuid"
expect_driver gpu-a vfio-pci

step "two VMs start from what Allocate answered, and say what they see"
mkdir -p /run/dbus /run/libvirt
dbus-daemon --system --nosyslog
printf 'user = "root"\ngroup = "root"\nsecurity_driver = "none"\nnamespaces = []\ncgroup_controllers = []\n' > /etc/libvirt/qemu.conf
start_virt_launcher gpu /run/demo/gpu.json
start_virt_launcher vgpu /run/demo/vgpu.json
for vm in gpu vgpu; do
  guest_wait $vm 400
  echo "the guest $vm prints:"
  guest_devices $vm
  keep "console of guest $vm" "$(guest_devices $vm)"
  guest_devices $vm > "$report/guest-$vm"
done
jq -r '.resource' /run/demo/gpu.json > "$report/guest-gpu.resource"
jq -r '.resource' /run/demo/vgpu.json > "$report/guest-vgpu.resource"
wanted="vendor=10de device=2684 class=030000 subsystem_vendor=10de subsystem_device=$(planned gpu-a subsystem_device)"
expect "this run's random subsystem ID $(planned gpu-a subsystem_device) in the guest" grep -q "$wanted" "$report/guest-gpu"
expect "a vGPU in the guest" grep -q "vendor=10de device=1eb8 " "$report/guest-vgpu"
expect "no whole GPU in the vGPU's guest" bash -c "! grep -q device=2684 $report/guest-vgpu"

step "a GPU in use is not taken away"
expect_status "unbind under a running VM" 4 run ferry vfio unbind --device "$(dev gpu-a)"
expect_match "the refusal names the VM" "VM gpu \(pid [0-9]+\) holds /dev/vfio/$(group gpu-a)" "$REPLY"
expect_driver gpu-a vfio-pci
expect_status "a vGPU in use stays too" 4 run ferry vgpu delete --all
expect "the vGPU is there" test -e "/sys/bus/mdev/devices/$uuid"
run ferry status
stop_virt_launcher gpu
stop_virt_launcher vgpu
kubelet-standin release --dir $plugins "$(dev gpu-a)" "$uuid" > /run/demo/released.json

step "everything is put back"
kill -TERM $plugin
wait $plugin
expect "the plugin's sockets are gone" bash -c "! ls $plugins/kubevirt-* 2> /dev/null"
# What was given so lately that no pod may be listed with it yet counts as in use.
wait_for "ferry vgpu delete --all --dry-run &> /dev/null && ferry vfio restore --dry-run &> /dev/null" 60 || :
run ferry vgpu delete --all
run ferry vfio restore
run ferry status
expect_equal "no vGPU is left" "" "$(vgpus)"
expect_equal "every function is on the driver it had" "$(cat /run/demo/before)" "$(snapshot)"
keep "drivers and overrides" "$(snapshot)"
expect "no record is left" bash -c "! ls /run/ferry/moves/* 2> /dev/null"
echo yes > "$report/restored"
