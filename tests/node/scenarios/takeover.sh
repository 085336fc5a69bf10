# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
# docs/migration.md, on one node: what vfio-manage, vgpu-device-manager and the KubeVirt plugin leave is written here as
# they write it.
plugins=/var/lib/kubelet/device-plugins
mkdir -p $plugins /var/lib/kubelet/pod-resources
theirs=(gpu-a gpu-a-audio gpu-b gpu-b-audio)

vfio_manage_bind() { # NAME: each function by itself, and nothing that is on vfio-pci already
  local device
  device=/sys/bus/pci/devices/$(dev "$1")
  [[ $(driver "$1") != vfio-pci ]] || return 0
  echo > "$device/driver_override"
  [[ ! -e $device/driver ]] || dev "$1" > "$device/driver/unbind"
  echo vfio-pci > "$device/driver_override"
  dev "$1" > /sys/bus/pci/drivers/vfio-pci/bind
}
identity() { # of every binding and every vGPU: one that is made anew has another inode
  snapshot
  stat -c '%n %i' /sys/bus/pci/devices/*/driver
  stat -Lc '%n %i' /sys/bus/mdev/devices/*
}
vm() { # NAME DEVICE NODE: a VM that has the device; its console is /mnt/state/NAME.console
  mkfifo "/run/$1.in"
  qemu-system-x86_64 -name "guest=$1" -nodefaults -no-user-config -display none -no-reboot -machine q35 -accel tcg \
    -m "$(guest_memory)" -kernel /mnt/guest/kernel -initrd /mnt/guest/initrd -append "console=ttyS0 quiet no_timer_check" \
    -chardev "stdio,id=console,logfile=/mnt/state/$1.console" -serial chardev:console \
    -device "vfio-pci,rombar=0,$2" <> "/run/$1.in" > "/mnt/state/$1.log" 2>&1 &
  vms[$1]=$!
  expect "$1 has its device" wait_for "ls -l /proc/${vms[$1]}/fd | grep -q vfio/$3\$" 60
}
declare -A vms
asked=0
vms_run_on() { # each guest's kernel sends back what is typed at its terminal: its processor works, and so do interrupts
  local name
  asked=$((asked + 1))
  for name in "${!vms[@]}"; do echo "at work $asked" > "/run/$name.in"; done
  for name in "${!vms[@]}"; do
    wait_for "grep -q '^at work $asked' /mnt/state/$name.console" 60 ||
      fail "the guest $name does not answer: $(tail -n 3 "/mnt/state/$name.console" "/mnt/state/$name.log")"
  done
}
node() { # POLICY: the Node object, as the API server has it
  printf 'apiVersion: v1\nkind: Node\nmetadata:\n  name: gpu-node\n  labels: {gpu-ferry.io/policy: %s}\n' "$1"
}
agent() { node "$1" | ferry agent --once --node-file - --config /run/policies.yaml "${@:2}"; }
state() { jq -r "$1" /run/ferry/status.json 2> /dev/null; }
settles() { # POLICY
  wait_for "[[ \$(state '.phase + \" \" + .desired.policy') == 'ready $1' ]]" 60 ||
    fail "it does not become so: $(cat /run/ferry/status.json; cat /mnt/state/hostd.log)"
}
kubelet() { kubelet-standin "$1" --dir $plugins "${@:2}"; }
healthy() { # devices, and no places for their companions
  kubelet resources |
    jq -r '[.[].devices[] | select(.health == "Healthy") | .id | select(startswith("place-") | not)] | sort | join(" ")'
}
allocated() { kubelet resources | jq -r '[.[].allocated[]] | sort | join(" ")'; }

step "what NVIDIA's programs leave, and VMs that use it"
modprobe vfio-pci
for name in "${theirs[@]}"; do vfio_manage_bind "$name"; done
type=$(grep -lx 'GRID T4-4Q' "/sys/bus/pci/devices/$(dev gpu-d)"/mdev_supported_types/*/name)
for _ in 1 2; do cat /proc/sys/kernel/random/uuid > "$(dirname "$type")/create"; done
mapfile -t uuids < <(ls /sys/bus/mdev/devices)
kubelet-standin serve --dir $plugins --pod-resources /var/lib/kubelet/pod-resources > /mnt/state/standin.log 2>&1 &
expect "the kubelet listens" wait_for "test -S $plugins/kubelet.sock" 30
kubelet remember nvidia.com/AD102_GEFORCE_RTX_4090 virt-launcher-whole "$(dev gpu-a)" > /dev/null
kubelet remember nvidia.com/GRID_T4-4Q virt-launcher-part "${uuids[0]}" > /dev/null
vm whole "host=$(dev gpu-a)" "$(group gpu-a)"
vm part "sysfsdev=/sys/bus/mdev/devices/${uuids[0]}" \
  "$(basename "$(readlink "/sys/bus/mdev/devices/${uuids[0]}/iommu_group")")"
for name in "${!vms[@]}"; do guest_wait "$name" 300; done
expect "the guest has its GPU" grep -q "$(as_guest_line gpu-a)" /mnt/state/whole.console
expect "the guest has its vGPU" grep -q "vendor=10de device=1eb8 " /mnt/state/part.console
vms_run_on
identity > /run/theirs
cat > /run/policies.yaml << 'YAML'
version: v2
policies:
  as-it-is:
  - {devices: [0, 1], mode: passthrough}
  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}
  one-home:
  - {devices: [0], mode: passthrough}
  - {devices: [1], mode: host}
  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}
YAML

step "looking first: nothing would be written"
expect_status "a dry run" 0 ferry apply -f /run/policies.yaml -c as-it-is --dry-run
expect_status "it is so" 0 ferry assert -f /run/policies.yaml -c as-it-is
expect_status "the report that the cluster would get" 0 agent as-it-is --dry-run
expect_equal "nothing was written" "$(< /run/theirs)" "$(identity)"

step "Ferry comes, and nothing is written"
udevadm monitor --kernel --subsystem-match=pci --subsystem-match=mdev > /run/events &
monitor=$!
expect "events are heard" wait_for "grep -q KERNEL /run/events" 30
ferry plugin 2> /mnt/state/plugin.log &
plugin=$!
ferry --log-level info hostd 2> /mnt/state/hostd.log &
hostd=$!
expect_status "the agent" 0 agent as-it-is
settles as-it-is
expect_equal "bindings and vGPUs are the very same" "$(< /run/theirs)" "$(identity)"
expect_equal "the kernel has sent no event" "" "$(grep '^KERNEL\[' /run/events || :)"
kill $monitor
expect "no record of a bind, since there was none" bash -c '! ls /run/ferry/hostd/moves/* 2> /dev/null'
vms_run_on

step "the kubelet keeps its devices, also over its restart"
advertised=$(printf '%s\n' "$(dev gpu-a)" "$(dev gpu-b)" "${uuids[@]}" | sort | xargs)
given=$(printf '%s\n' "$(dev gpu-a)" "${uuids[0]}" | sort | xargs)
for when in "as Ferry came" "after the kubelet's restart"; do
  expect "all devices are healthy under their names, $when" wait_for "[[ \$(healthy) == '$advertised' ]]" 60
  expect_equal "the pods' devices $when" "$given" "$(allocated)"
  expect_status "the VM's GPU is given to nobody else, $when" 1 \
    kubelet allocate nvidia.com/AD102_GEFORCE_RTX_4090 1
  if [[ $when == as* ]]; then kubelet restart; fi
done
vms_run_on

step "what is asked for is then bound, and no more"
# A driver that takes gpu-b once it is the host's.
echo "$(planned gpu-b vendor) $(planned gpu-b device)" > /sys/bus/pci/drivers/bochs-drm/new_id
expect_status "the agent" 0 agent one-home
settles one-home
expect_equal "driver of gpu-b" bochs-drm "$(driver gpu-b)"
expect_equal "driver of gpu-b-audio" snd_hda_intel "$(driver gpu-b-audio)"
of_others() { identity | grep -v "$(dev gpu-b | sed 's/.$//')"; }
expect_equal "the others are the very same" "$(grep -v "$(dev gpu-b | sed 's/.$//')" /run/theirs)" "$(of_others)"
vms_run_on
expect_status "the agent" 0 agent as-it-is
settles as-it-is

step "Ferry goes, and all stays as their programs want it"
kill $hostd $plugin
wait $hostd $plugin || :
for name in "${theirs[@]}"; do
  expect_equal "driver of $name" vfio-pci "$(driver "$name")"
  expect_equal "override of $name" vfio-pci "$(< "/sys/bus/pci/devices/$(dev "$name")/driver_override")"
done
identity > /run/given-back
for name in "${theirs[@]}"; do vfio_manage_bind "$name"; done
expect_equal "vfio-manage has nothing to do" "$(< /run/given-back)" "$(identity)"
expect_equal "the kubelet's pods have what they had" "$given" "$(allocated)"
expect_equal "vGPUs" "$(printf '%s\n' "${uuids[@]}")" "$(ls /sys/bus/mdev/devices)"
vms_run_on
for name in "${!vms[@]}"; do
  echo "power off" > "/run/$name.in"
  wait "${vms[$name]}"
done
ok
