# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
# The demo's job inside the node. Each step shows what Ferry prints and then looks for itself: in sysfs, in the
# stand-in's books, on the guests' consoles.
here=/mnt/tests/scenarios/demo
report=/mnt/state/report
plugins=/var/lib/kubelet/device-plugins
mkdir -p "$report" /run/demo $plugins
cp $here/*.yaml /run/demo
cd /run/demo # the commands are short, and the Node's labels can be changed

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

agent() { # WHAT REGEX: the node's labels are looked at; what it says
  expect_status "$1" 0 run ferry agent --once --node-file node.yaml --config vgpu-config.yaml
  expect_match "$1" "$2" "$REPLY"
}

answers() { # PHASE: whether hostd has said it of what the agent has asked for last
  jq -e --arg phase "$1" --slurpfile asked /var/lib/ferry/desired.json \
    '.phase == $phase and .desired.generation == $asked[0].generation' /run/ferry/status.json
}

settles() { # PHASE
  wait_for "answers $1 &> /dev/null" 400 || fail "hostd does not come to $1: $(cat /run/ferry/status.json hostd.log)"
}

advertised() { # what the kubelet may give out: resources and how many of each
  kubelet-standin resources --dir $plugins | jq -cS 'map_values(.allocatable) | map_values(select(. > 0))'
}

is_offered() { # RESOURCES: waited for and shown
  wait_for "[[ \$(advertised) == '$1' ]]" 60 || fail "the advertised devices are not $1: $(advertised; cat plugin.log)"
  echo "# the kubelet can allocate $(advertised)"
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

snapshot > before

step "status before"
run ferry status
ferry status -o json > status.json
for name in gpu-a gpu-b gpu-c gpu-d; do
  line=$(jq -r --arg a "$(dev $name)" '.accelerators[] | select(.address == $a) | "\(.iommu_group) \(.driver)"' status.json)
  bound=$(driver $name)
  expect_equal "status of $name" "$(group $name) ${bound:-null}" "$line"
  evidence "$(dev $name)" "$line"
done
expect_equal "accelerators" 4 "$(jq '.accelerators | length' status.json)"

step "plan: which GPUs would be bound, and which cannot be"
expect_status "plan with a group that cannot be bound" 4 run ferry vfio plan --all
ferry vfio plan --all -o json > plan.json || :
jq -r '.results[] | select(.status == "refused") | "\(.devices[0])\t\(.reasons | join("; "))"' plan.json > "$report/refused"
expect_equal "refused" "$(dev gpu-c)" "$(cut -f1 "$report/refused")"
expect_match "the reason names the other display" "$(dev display-c)" "$(cat "$report/refused")"
expect_equal "nothing was written" "$(cat before)" "$(snapshot)"

step "hostd and the device plugin start, and change nothing: the node has no label yet"
kubelet-standin serve --dir $plugins --pod-resources /var/lib/kubelet/pod-resources > standin.log 2>&1 &
wait_for "[[ -S $plugins/kubelet.sock ]]" 30 || fail "the kubelet's stand-in does not start: $(cat standin.log)"
echo "\$ ferry hostd &"
ferry hostd > hostd.log 2>&1 &
hostd=$!
echo "\$ ferry plugin &"
ferry plugin > plugin.log 2>&1 &
plugin=$!
wait_for "[[ \$(jq -r .phase /run/ferry/status.json 2> /dev/null) == idle ]]" 60 || fail "hostd does not start: $(cat hostd.log)"
expect_equal "nothing was written" "$(cat before)" "$(snapshot)"

step "a label asks for whole GPUs: their groups get vfio-pci, and hostd refuses a GPU without a change"
run grep nvidia.com/ node.yaml
agent "hostd is asked" "state: pending"
settles blocked
agent "hostd has answered" "state: blocked"
expect_match "an event names the GPU that stays" "event Warning Blocked: $(dev gpu-c) " "$REPLY"
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio gpu-d; do
  expect_driver $name vfio-pci
  dev $name >> "$report/bound"
done
for name in gpu-a gpu-b gpu-d; do
  expect "the group's node" test -c "/dev/vfio/$(group $name)"
done
snapshot > now
for name in board-display gpu-c display-c disk; do
  address=$(dev $name)
  was=$(grep "^$address " before)
  expect_equal "$name was not written to" "$was" "$(grep "^$address " now)"
  evidence "$address" "$was"
done
is_offered '{"nvidia.com/AD102_GEFORCE_RTX_4090":1,"nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER":1,"nvidia.com/GA102_GEFORCE_RTX_3090":1,"nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER":1,"nvidia.com/TU104GL_TESLA_T4":1}'

step "another label: one GPU gets its own driver back and has vGPUs, the others stay as they are"
run sed -i s/vm-passthrough/vm-vgpu/ node.yaml
agent "hostd is asked" "state: pending"
settles ready
agent "hostd has answered" "state: ready"
expect_driver gpu-d nvidia
expect_equal "nothing else changed" "$(grep -v "^$(dev gpu-d) " now)" "$(snapshot | grep -v "^$(dev gpu-d) ")"
vgpus > vgpus
cut -d' ' -f2- vgpus > "$report/vgpus"
evidence "/sys/bus/mdev/devices" "$(cat "$report/vgpus")"
expect_equal "three vGPUs of the type that the label asks for" "3 GRID T4-4Q" "$(cut -d' ' -f3- vgpus | sort | uniq -c | xargs)"
seen "/sys/bus/pci/devices/$(dev gpu-d)/mdev_supported_types/$(basename "$(readlink "/sys/bus/mdev/devices/$(head -n 1 "$report/vgpus" | cut -d' ' -f1)/mdev_type")")/available_instances"
expect_equal "room for one more" 1 "$REPLY"

step "commands agree with that, and write nothing"
run ferry vgpu types
run ferry assert -f vgpu-config.yaml -c T4-4Q
run ferry vgpu apply -f vgpu-config.yaml --node node.yaml
expect_status "bind: all that can be is on vfio-pci already" 4 run ferry vfio bind --all
expect_equal "the very same vGPUs" "$(cat vgpus)" "$(vgpus)"
expect_status "another profile differs" 3 run ferry assert -f vgpu-config.yaml -c default

step "pods get a GPU and a vGPU"
is_offered '{"nvidia.com/AD102_GEFORCE_RTX_4090":1,"nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER":1,"nvidia.com/GA102_GEFORCE_RTX_3090":1,"nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER":1,"nvidia.com/GRID_T4-4Q":3}'
advertised > "$report/resources.json"
evidence "/proc/$plugin/status" "$(grep VmRSS /proc/$plugin/status)"
evidence "/proc/$hostd/status" "$(grep VmRSS /proc/$hostd/status)"
run kubelet-standin allocate --dir $plugins nvidia.com/AD102_GEFORCE_RTX_4090 1 > gpu.json
run kubelet-standin allocate --dir $plugins nvidia.com/GRID_T4-4Q 1 > vgpu.json
cat gpu.json vgpu.json
expect_equal "environment of the GPU" "$(dev gpu-a)" "$(jq -r '.envs.PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090' gpu.json)"
uuid=$(jq -r '.envs["MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-4Q"]' vgpu.json)
expect "environment of the vGPU" test -e "/sys/bus/mdev/devices/$uuid"
expect_equal "nodes of the GPU" "/dev/vfio/vfio /dev/vfio/$(group gpu-a)" "$(jq -r '[.devices[].host_path] | join(" ")' gpu.json)"

step "the GPU of a pod stays bound, though no VM has opened it yet"
expect_status "unbind between Allocate and the VM's start" 4 run ferry vfio unbind --device "$(dev gpu-a)"
expect_match "the refusal names the pod" "pod default/pod-1 holds nvidia.com/AD102_GEFORCE_RTX_4090" "$REPLY"
expect_status "nor is a vGPU" 4 run ferry vgpu delete --all
expect "the vGPU is there" test -e "/sys/bus/mdev/devices/$uuid"
expect_driver gpu-a vfio-pci

step "two VMs start with the devices of Allocate, and print the devices that they see"
mkdir -p /run/dbus /run/libvirt
dbus-daemon --system --nosyslog
printf 'user = "root"\ngroup = "root"\nsecurity_driver = "none"\nnamespaces = []\ncgroup_controllers = []\n' > /etc/libvirt/qemu.conf
start_virt_launcher gpu gpu.json
start_virt_launcher vgpu vgpu.json
for vm in gpu vgpu; do
  guest_wait $vm 300
  echo "the guest $vm prints:"
  guest_devices $vm
  keep "console of guest $vm" "$(guest_devices $vm)"
  guest_devices $vm > "$report/guest-$vm"
done
jq -r '.resource' gpu.json > "$report/guest-gpu.resource"
jq -r '.resource' vgpu.json > "$report/guest-vgpu.resource"
wanted="vendor=10de device=2684 class=030000 subsystem_vendor=10de subsystem_device=$(planned gpu-a subsystem_device)"
expect "this run's random subsystem ID $(planned gpu-a subsystem_device) in the guest" grep -q "$wanted" "$report/guest-gpu"
expect "a vGPU in the guest" grep -q "vendor=10de device=1eb8 " "$report/guest-vgpu"
expect "no whole GPU in the vGPU's guest" bash -c "! grep -q device=2684 $report/guest-vgpu"

step "the label asks for the host's drivers: the devices of the VMs stay as they are"
run sed -i s/vm-vgpu/container/ node.yaml
agent "hostd is asked" "state: pending"
settles blocked
agent "hostd has answered" "Blocked: $(dev gpu-a) .*VM gpu \(pid [0-9]+\) holds /dev/vfio/$(group gpu-a)"
expect_driver gpu-a vfio-pci
expect "the vGPU is there" test -e "/sys/bus/mdev/devices/$uuid"
for name in gpu-b gpu-b-audio; do
  expect_equal "$name, which nobody uses, is back" "$(planned $name driver)" "$(driver $name)"
done
run ferry status

step "the VMs end, and hostd finishes the change"
stop_virt_launcher gpu
stop_virt_launcher vgpu
kubelet-standin release --dir $plugins "$(dev gpu-a)" "$uuid" > released.json
wait_for "[[ \$(snapshot) == \$(cat before) && -z \$(vgpus) ]]" 400 || fail "hostd does not finish: $(snapshot; cat hostd.log)"
settles blocked # two GPUs have no driver of the host
agent "hostd has answered" "state: blocked"
run ferry status
expect_equal "no vGPU is left" "" "$(vgpus)"
expect_equal "every function is on the driver it had" "$(cat before)" "$(snapshot)"
keep "drivers and overrides" "$(snapshot)"
expect "no record is left" bash -c "! ls /run/ferry/hostd/moves/* 2> /dev/null"
kill -TERM $plugin $hostd
wait $plugin
wait $hostd
expect "the plugin's sockets are gone" bash -c "! ls $plugins/kubevirt-* 2> /dev/null"
echo yes > "$report/restored"
