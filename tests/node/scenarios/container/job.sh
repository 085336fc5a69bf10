# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
PATH=/mnt/kubernetes:$PATH # its ctr can choose a user, which that of containerd 1.6 cannot
. /mnt/tests/scenarios/container/lib.sh
begin_api_server # which takes its time

plugins=/var/lib/kubelet/device-plugins
in_its_container='del(.args[] | select(. == "--own-scope"))'
cat > /run/policies.yaml << YAML
version: v2
policies:
  away: [{address: "$(dev lone)", mode: passthrough}]
  home: [{address: "$(dev lone)", mode: host}]
  divided: [{address: "$(dev t4)", mode: vgpu, vgpu-devices: {T4-4Q: 1}}]
YAML
# How vfio's drivers are to be loaded.
echo "options vfio-pci disable_idle_d3=1" > /etc/modprobe.d/vfio.conf
snapshot > /run/start

step "without a systemd to ask it binds, and does not take back"
want away
expect "no vfio-pci" test ! -e /sys/bus/pci/drivers/vfio-pci
expect_status "away" 0 hostd "$in_its_container" --once
expect_equal "driver" vfio-pci "$(driver lone)"
snapshot > /run/away
want home
expect_status "home" 1 hostd "$in_its_container" --once
expect_match "why" "open /dev/vfio/.*: Operation not permitted" "$REPLY"
expect_equal "drivers and overrides" "$(< /run/away)" "$(snapshot)"
evidence "in the container's control group" "$(grep -m1 'Operation not permitted' <<< "$REPLY")"

step "as the chart has it: both ways, with the module loaded"
expect_status "home" 0 hostd . --once
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"
modprobe -r vfio_pci
want away
begin hostd
settles ready away
expect_equal "the module was loaded, as modprobe.d has it" Y "$(< /sys/module/vfio_pci/parameters/disable_idle_d3)"
expect_equal "driver" vfio-pci "$(driver lone)"
mapfile -t processes < <(pgrep -x ferry)
expect_equal "two processes" 2 "${#processes[@]}"
expect_match "the one that stays" "/hostd$" "$(cat "/proc/${processes[0]}/cgroup")"
expect_match "the one that works" "ferry-hostd-${processes[1]}.scope" "$(cat "/proc/${processes[1]}/cgroup")"
for one in "${processes[@]}"; do
  expect_match "its capabilities" "CapEff:.0000010000090004" "$(grep CapEff "/proc/$one/status")"
  expect_match "its filter" "Seccomp:.2" "$(grep Seccomp: "/proc/$one/status")"
  expect_match "no more rights to be had" "NoNewPrivs:.1" "$(grep NoNewPrivs "/proc/$one/status")"
done
evidence "the one that works" "$(cat "/proc/${processes[1]}/cgroup")"
expect_equal "what it can write to below its read-only mounts" "" "$(writable_below_read_only hostd)"
want home
settles ready home
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"

step "the container's end is hostd's, and changes nothing"
want away
settles ready away
snapshot > /run/away
end hostd
expect "nobody is left" wait_for "! pgrep -x ferry" 30
expect_equal "drivers and overrides" "$(< /run/away)" "$(snapshot)"

step "where Kubernetes makes no recursive read-only mounts hostd can write below /dev"
begin hostd "$not_recursive"
expect "it runs" wait_for "ctr tasks ls | grep -q '^hostd .*RUNNING'" 60
expect_match "what it can write to" "^/host/dev/shm$" "$(writable_below_read_only hostd)"
end hostd

step "each capability is needed"
for one in SYS_PTRACE DAC_READ_SEARCH CHECKPOINT_RESTORE; do
  want home
  # Those whom it has to look into: root's, another user's, one that maps a file shared (see privileges.sh).
  [[ -n ${mapping-} ]] || {
    setpriv --reuid=1000 --regid=1000 --clear-groups sleep 1000 &
    qemu-system-x86_64 -machine none -nodefaults -display none \
      -object memory-backend-file,id=shared,share=on,size=64K,mem-path=/dev/shm/shared &
    mapping=$!
    expect "a shared mapping" wait_for "grep -qs 'rw-s.*/dev/shm/shared' /proc/$mapping/maps" 120
  }
  expect_status "without $one" 4 hostd "$(without_capability $one)" --once
  expect_match "why" "could not be looked into: not permitted" "$REPLY"
  expect_equal "drivers and overrides" "$(< /run/away)" "$(snapshot)"
done
expect_status "with all" 0 hostd . --once
modprobe -r vfio_pci
want away
expect_status "without SYS_MODULE" 1 hostd "$(without_capability SYS_MODULE)" --once
expect_match "why" "load module vfio_pci: Operation not permitted" "$REPLY"
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"

step "without a mount of hostd's the way that needs it fails"
lacks() { # STATUS REGEX MOUNT...: what hostd says without it; nothing is bound
  local status=$1 regex=$2
  shift 2
  expect_status "without $*" "$status" hostd "$(without "$@")" --once
  expect_match "without $*" "$regex" "$REPLY"
  expect_equal "drivers and overrides without $*" "$(< /run/start)" "$(snapshot)"
  evidence "without $*" "$(tail -n 2 <<< "$REPLY")"
}
lacks 1 "open /sys/bus/pci/devices: No such file or directory" sys
lacks 1 "load module vfio_pci: No such file or directory" modules
lacks 1 "open /proc/.*: No such file or directory" proc
lacks 1 "make directory /var/lib/ferry: Read-only file system" desired
lacks 1 "/run/ferry.*: Read-only file system" ferry
modprobe -r vfio_pci # which was loaded before it was found that there is no /proc
expect_status "without modprobe-0" 0 hostd "$(without modprobe-0)" --once
expect_equal "the module, as nobody has it" N "$(< /sys/module/vfio_pci/parameters/disable_idle_d3)"
snapshot > /run/start # from here on
want home
lacks 1 "/dev/vfio/" dev
lacks 1 "the container's device rules stay" systemd

step "where systemd's own socket is not there D-Bus leads to it"
for unit in dbus.socket dbus.service; do
  mkdir /run/systemd/system/$unit.d
  printf '[Unit]\nDefaultDependencies=no\n' > /run/systemd/system/$unit.d/alone.conf
done
systemctl daemon-reload
systemctl start dbus.socket dbus.service
expect "systemd is there" wait_for "busctl status org.freedesktop.systemd1 > /dev/null 2>&1" 60
lacks 1 "the container's device rules stay" systemd dbus
expect_status "with D-Bus alone" 0 hostd "$(without systemd)" --once
expect_equal "driver" nvidia "$(driver lone)"
snapshot > /run/start

step "without the machine's ID no vGPU is made"
want divided
vgpus() { find /sys/bus/mdev/devices -mindepth 1; }
lacks 1 "open /etc/machine-id: No such file or directory" machine-id
expect_equal "vGPUs" "" "$(vgpus)"
expect_status "with it" 0 hostd . --once
evidence "the vGPU" "$(vgpus)"

step "without pod resources a pod's GPU is bound"
want away
expect_status "away" 0 hostd . --once
kubelet-standin serve --dir $plugins --pod-resources /var/lib/kubelet/pod-resources > $logs/kubelet 2>&1 &
expect "the kubelet listens" wait_for "test -S $plugins/kubelet.sock" 30
kubelet-standin remember --dir $plugins nvidia.com/GPU owner "$(dev lone)" > /dev/null
want home
expect_status "with all" 4 hostd . --once
expect_match "who has it" "pod default/owner" "$REPLY"
expect_equal "driver" vfio-pci "$(driver lone)"
expect_status "without pod-resources" 0 hostd "$(without pod-resources)" --once
expect_equal "driver" nvidia "$(driver lone)"
kubelet-standin release --dir $plugins "$(dev lone)" > /dev/null

# --- the three of them ------------------------------------------------------------------------------------------------

former=/var/run/cdi/nvidia.com-FORMER.yaml
mkdir -p /var/run/cdi
leave_former() { # as a plugin for Kata left it
  printf '# Made by `ferry plugin`, and removed by it.\ncdiVersion: "0.5.0"\nkind: nvidia.com/FORMER\n' > $former
}
health() { # of the GPU, as the kubelet has it
  kubelet-standin resources --dir $plugins | jq -r ".[].devices[] | select(.id == \"$(dev lone)\") | .health"
}
advertised() { jq -r "$1" /run/ferry/plugin/advertised.json 2> /dev/null; }
allocate() { # the GPU for a pod
  kubelet-standin allocate --dir $plugins "$(kubelet-standin resources --dir $plugins |
    jq -r "to_entries[] | select(.value.devices[].id == \"$(dev lone)\").key")" 1 "$(dev lone)"
}

step "together: a label gives the GPU away, and a pod gets it"
expect "the API server is ready" wait_for "kubectl get --raw /readyz > /dev/null 2>&1" 600
printf agent > $token/token
printf ferry > $token/namespace
cp $certificates/apiserver.crt $token/ca.crt
jq -n --rawfile config /run/policies.yaml '{apiVersion: "v1", kind: "List", items: [
  {apiVersion: "v1", kind: "Namespace", metadata: {name: "ferry"}},
  {apiVersion: "v1", kind: "Node", metadata: {name: "node", labels: {"gpu-ferry.io/policy": "away"}}},
  {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "ferry-policies", namespace: "ferry"}, data: {"config.yaml": $config}}]}' |
  kubectl create --validate=false -f -
leave_former
begin hostd
for one in plugin agent; do begin $one "$not_recursive"; done
settles ready away
expect_equal "driver" vfio-pci "$(driver lone)"
expect "it is advertised" wait_for '[[ $(health) == Healthy ]]' 60
expect_status "a pod gets it" 0 allocate
kubelet-standin release --dir $plugins "$(dev lone)" > /dev/null
expect "without the operator nothing is made for it" test ! -e /run/nvidia/validations
expect "a plugin for KubeVirt does not have CDI's folder" test -e $former
rm $former
plugin_root=$(root_of plugin)
expect "hostd has its records" test -e /run/ferry/hostd/hostd.lock
expect_equal "what the plugin sees of hostd's records" "" "$(ls "$plugin_root/host/run/ferry/hostd")"
for one in hostd.lock stopped-services.json; do
  expect_status "$one there, by root with all rights" 1 touch "$plugin_root/host/run/ferry/hostd/$one"
  expect_match "$one there" "Read-only file system" "$REPLY"
done
mkdir -p /run/ferry/stuck-writes
# Of this boot, or hostd removes it. No GPU has the address, so that hostd spares none.
printf '{"version": 1, "pid": 1, "act": "write /x", "value": "0000:ff:1f.7", "boot_id": "%s"}\n' \
  "$(< /proc/sys/kernel/random/boot_id)" > /run/ferry/stuck-writes/1.json
expect "it sees a write that hangs" test -s "$plugin_root/host/run/ferry/stuck-writes/1.json"
rm -f /run/ferry/stuck-writes/1.json
of_node() { kubectl get node node -o json | jq -r ".metadata.labels[\"gpu-ferry.io/$1\"]"; }
expect "the cluster has the report" wait_for '[[ $(of_node state) == ready ]]' 120
for one in plugin agent; do
  expect_equal "what the $one can write to below its read-only mounts" "" "$(writable_below_read_only $one)"
  expect_equal "the host's control groups and its debugfs in the container of the $one" "" \
    "$(ls -d "$(root_of $one)/host/sys/"{fs/cgroup,kernel/debug} 2> /dev/null || true)"
done

step "the plugin, taken over, sees no process of the node"
expect_equal "what it sees" 1 "$(cd "$plugin_root/proc" && printf '%s\n' [0-9]*)"
for one in pid net; do
  expect "its namespace: $one" test "$(readlink "${plugin_root%/root}/ns/$one")" != "$(readlink /proc/1/ns/$one)"
done
expect "no /proc of the node by a mount" test ! -e "$plugin_root/host/proc"

step "the kernel's device events reach its network namespace"
nsenter --net="${plugin_root%/root}/ns/net" udevadm monitor --kernel --subsystem-match=pci > /run/events &
monitor=$!
told() { echo change > "/sys/bus/pci/devices/$(dev lone)/uevent" && grep -q "change .*$(dev lone) (pci)" /run/events; }
expect "an event" wait_for told 30
kill $monitor

step "root without capabilities reads nothing of the agent's, and does not end it"
agent=$(pgrep -x ferry-agent)
user=$(jq '.containers[] | select(.name == "agent") | .securityContext.runAsUser' $spec)
expect_match "its user" "^Uid:.$user.$user.$user.$user$" "$(grep Uid: "/proc/$agent/status")"
expect_match "its capabilities" "CapEff:.0000000000000000" "$(grep CapEff: "/proc/$agent/status")"
expect "a PID namespace of its own" test "$(readlink "/proc/$agent/ns/pid")" != "$(readlink /proc/1/ns/pid)"
bare() { setpriv --bounding-set=-all --inh-caps=-all --clear-groups --no-new-privs "$@"; }
for one in environ mem root/var/run/secrets/kubernetes.io/serviceaccount/token; do
  expect_status "read $one" 1 bare head -c 1 "/proc/$agent/$one"
  expect_match "read $one" "Permission denied" "$REPLY"
done
expect_status "a signal" 1 bare kill -KILL "$agent"
expect_match "a signal" "[Nn]ot permitted" "$REPLY"
expect_equal "the folder's group" "root 64711 2775" "$(stat -c '%U %g %a' /var/lib/ferry)"
expect_equal "whose file it is" "$user" "$(stat -c %u /var/lib/ferry/desired.json)"
for one in agent plugin; do end $one; done

step "with metrics the agent sees the node's GPUs, and can write to no more"
choose_spec metrics
viable() { # whether the GPU's IOMMU group can be given away, as Prometheus is shown it
  {
    printf 'GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n' >&3
    grep "^ferry_gpu_group_viable{pci_bus_id=\"$(dev lone)\"}" <&3
  } 3<> /dev/tcp/127.0.0.1/9417
}
begin agent "$not_recursive"
expect "the GPU is shown" wait_for 'viable > /run/viable 2> /dev/null' 60
expect_match "its group" " 1$" "$(< /run/viable)"
expect_equal "what it can write to below its read-only mounts" "" "$(writable_below_read_only agent)"
end agent
begin agent "$(without sys-groups)"
expect "it shows metrics" wait_for '{ true > /dev/tcp/127.0.0.1/9417; } 2> /dev/null' 60
expect_status "the group's without sys-groups" 1 viable
end agent
spec=$pods
end hostd

step "an agent whose hostd gives it no folder waits, and says so"
rm -f /var/lib/ferry/agent.lock # an agent that has its own lock from before needs no folder for it
chgrp root /var/lib/ferry
chmod 755 /var/lib/ferry
begin agent
expect "it says so" wait_for "grep -q 'hostd has not given /var/lib/ferry to group $user' $logs/agent" 60
expect "it runs on" kill -0 "${running[agent]}"
begin hostd
expect "it goes on" wait_for "grep -q 'this agent serves the node now' $logs/agent" 60
for one in agent hostd; do end $one; done

step "without a mount of the plugin's the way that needs it fails"
serves() { # MOUNT: the plugin goes on without it
  rm -f /run/ferry/plugin/advertised.json
  begin plugin "$(without "$1")"
}
refuses() { # NAME STATUS REGEX MOUNT...: the container ends at once without it
  expect_status "$1 without ${*:4}" "$2" container "$1" "$(without "${@:4}")"
  expect_match "$1 without ${*:4}" "$3" "$REPLY"
  evidence "$1 without ${*:4}" "$(tail -n 2 <<< "$REPLY")"
}
refuses plugin 1 "open /sys/bus/pci/devices: No such file or directory" sys-bus
serves sys-devices
expect "it offers nothing" wait_for '[[ $(advertised ".resources | length") == 0 ]]' 60
end plugin
for type in "/sys/class/mdev_bus/$(dev t4)/mdev_supported_types/"*; do
  [[ $(< "$type/name") != "GRID T4-4Q" ]] || cat /proc/sys/kernel/random/uuid > "$type/create"
done
vgpu_advertised() { [[ $(advertised ".resources[].name") == *T4-4Q* ]]; }
begin plugin
expect "the vGPU is advertised" wait_for vgpu_advertised 60
end plugin
serves sys-class
expect "the GPU is advertised" wait_for '[[ $(health) == Healthy ]]' 60
expect_status "and the vGPU" 1 vgpu_advertised
end plugin
serves sys-groups
expect_status "a pod gets nothing" 1 wait_for '[[ $(health) == Healthy ]] && allocate' 10
end plugin
refuses plugin 2 "the kubelet's directory .* does not exist" plugins
serves vfio
unfit() { [[ $(advertised ".resources[].devices[] | select(.id == \"$(dev lone)\").reason") == *"are not both there" ]]; }
expect "its node is missed" wait_for unfit 60
expect_status "a pod gets nothing" 1 allocate
end plugin
cp /run/ferry/status.json /run/report
jq --arg id "$(dev lone)" '.unavailable = [{id: $id, reason: "it is being bound"}]' /run/report > /run/ferry/status.json
unavailable() { [[ $(advertised ".not_advertised[] | select(.id == \"$(dev lone)\").reason") == *"it is being bound"* ]]; }
begin plugin
expect "it withdraws what hostd's report names" wait_for unavailable 60
expect_match "what the kubelet gets" "^(Unhealthy)?$" "$(health)"
end plugin
serves ferry
expect "it advertises what hostd's report withdraws" wait_for '[[ $(health) == Healthy ]]' 60
end plugin
cp /run/report /run/ferry/status.json
serves plugin-files
expect "it is advertised" wait_for '[[ $(health) == Healthy ]]' 60
end plugin 1
expect "no other program gets the list" test ! -e /run/ferry/plugin/advertised.json
expect_match "why" "/run/ferry" "$(< $logs/plugin)"
serves pod-resources
expect "it is advertised" wait_for '[[ $(health) == Healthy ]]' 60
expect_status "a pod gets nothing" 1 allocate
expect_match "why" "the users of devices are not known: there is no /var/lib/kubelet/pod-resources/kubelet.sock" "$REPLY"
end plugin

step "without a mount of the agent's the way that needs it fails"
refuses agent 2 "read .*/serviceaccount/token: No such file or directory" token
refuses agent 1 "/var(/lib/ferry)?: Read-only file system" desired
refuses agent 1 "/run(/ferry)?: Read-only file system" ferry plugin-files

step "where /dev/vfio is removed the plugin ends, so that its container gets the next one"
ends_by_the_removed_folder() {
  local ended=0
  wait "${running[plugin]}" || ended=$?
  expect_equal "its end" 2 "$ended"
  expect_match "why" "/dev/vfio was removed" "$(< $logs/plugin)"
}
begin plugin
expect "it is advertised" wait_for '[[ $(health) == Healthy ]]' 60
expect_status "a pod gets it" 0 allocate
expect "it says so" wait_for '[[ $(advertised "[.resources[].devices[] | select(.allocated)] | length") == 1 ]]' 60
end plugin
cp /run/ferry/plugin/advertised.json /run/allocated
cp -a /dev/vfio /run/vfio
exec {lock}>> /run/ferry/plugin/advertised.lock # so that its first scan comes after the removal
flock "$lock"
begin plugin
expect "it waits" wait_for "grep -q 'waiting for its end' $logs/plugin" 60
rm -r /dev/vfio
flock --unlock "$lock"
ends_by_the_removed_folder
expect_equal "what its predecessor has allocated" "$(< /run/allocated)" "$(< /run/ferry/plugin/advertised.json)"
exec {lock}>&-
cp -a /run/vfio /dev/vfio
begin plugin
expect "it is advertised" wait_for '[[ $(health) == Healthy ]]' 60
rm -r /dev/vfio
ends_by_the_removed_folder
ok
