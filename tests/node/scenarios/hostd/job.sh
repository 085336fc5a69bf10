# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
. /mnt/tests/scenarios/hostd/lib.sh
mkdir -p /var/lib/ferry
# A GPU of the host needs a driver.
echo "$(planned gpu-b vendor) $(planned gpu-b device)" > /sys/bus/pci/drivers/bochs-drm/new_id
expect_equal "driver of gpu-b" bochs-drm "$(driver gpu-b)"
start
cat > /run/policies.yaml << 'YAML'
version: v2
policies:
  away: [{devices: [0, 1], mode: passthrough}]
  home: [{devices: [0, 1], mode: host}]
  divided: # by model: a GPU that is not there gives no other one its number
  - {model: "10de:2684", mode: passthrough}
  - {model: "10de:2204", mode: passthrough}
  - {model: "10de:1eb8", mode: vgpu, vgpu-devices: {T4-4Q: 2}}
YAML
want() { # POLICY: written as the agent does it
  jq -n --arg policy "$1" --rawfile config /run/policies.yaml '{version: 2, policy: $policy, config: $config}' \
    > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/desired.json
}
of() { state ".accelerators[] | select(.address == \"$(dev "$1")\") | $2"; }
gpus="$(dev gpu-a) $(dev gpu-b)"

step "nothing is wanted, and nothing is changed"
wait_for "[[ \$(state .phase) == idle ]]" 60 || fail "$(cat /mnt/state/hostd.log)"
expect_equal "driver of gpu-a" bochs-drm "$(driver gpu-a)"

step "the desired state is applied, and advertised"
want away
settles ready away
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
expect "both are advertised" wait_for "[[ \$(advertised) == '$gpus' ]]" 30

step "the device of a VM stays as it is, and changes when the VM ends"
qemu-system-x86_64 -name guest=tenant -S -accel tcg -machine q35 -m 64 -nodefaults -display none \
  -device "vfio-pci,host=$(dev gpu-a)" > /mnt/state/qemu.log 2>&1 &
vm=$!
expect "it has the group" wait_for "ls -l /proc/$vm/fd | grep -q vfio/$(group gpu-a)\$" 60
want home
settles blocked home
expect_equal "who holds it" "virtual_machine tenant $vm" "$(of gpu-a '.users[0] | "\(.kind) \(.name) \(.pid)"')"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_equal "the other GPU did not wait" bochs-drm "$(driver gpu-b)"
kill "$vm"
settles ready home
expect_equal "driver of gpu-a" bochs-drm "$(driver gpu-a)"
expect_equal "driver of gpu-a-audio" snd_hda_intel "$(driver gpu-a-audio)"
expect "nothing is advertised" wait_for "[[ -z \$(advertised) ]]" 30

step "the device of a pod stays as it is, and changes when the pod ends"
want away
settles ready away
expect "both are advertised" wait_for "[[ \$(advertised) == '$gpus' ]]" 30
resource=$(jq -r ".resources[] | select(.devices[].id == \"$(dev gpu-a)\") | .name" /run/ferry/plugin/advertised.json)
kubelet-standin allocate --dir $plugins "$resource" 1 "$(dev gpu-a)" > /mnt/state/allocated.json
want home
settles blocked home
expect_equal "what holds it" pod "$(of gpu-a '.users[0].kind')"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_equal "nobody else is given it" "$(dev gpu-a)" "$(state '.unavailable[].id' | head -n 1)"
kubelet-standin release --dir $plugins "$(dev gpu-a)" > /mnt/state/released.json
settles ready home
expect_equal "driver of gpu-a" bochs-drm "$(driver gpu-a)"

step "killed in the middle and started again"
exec {lock}>> /run/ferry/hostd/lock # so that it is not over before it can be killed
flock "$lock"
want away
expect "it is in the middle" wait_for "[[ \$(state .phase) == applying ]]" 60
kill -9 $hostd
wait $hostd || true
exec {lock}>&-
expect "what it was making stays withdrawn" jq -e ".unavailable[] | select(.id == \"$(dev gpu-a)\")" /run/ferry/status.json
start_hostd
settles ready away
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
expect "both are advertised" wait_for "[[ \$(advertised) == '$gpus' ]]" 30

step "hostd repairs a change by another program as soon as the kernel reports it"
dev gpu-b > /sys/bus/pci/drivers/vfio-pci/unbind
expect "gpu-b is on vfio-pci again" wait_for "[[ \$(driver gpu-b) == vfio-pci ]]" 60
settles ready away
expect "both are advertised" wait_for "[[ \$(advertised) == '$gpus' ]]" 30

step "a GPU that comes is bound and advertised without a new request"
want divided
settles ready divided
expect "two GPUs and two vGPUs are advertised" wait_for '[[ $(advertised | wc -w) == 4 ]]' 30
resources > /mnt/state/resources
snapshot > /mnt/state/bindings
wanted=$(stat -c %i /var/lib/ferry/desired.json)
others() { stat -c '%n %i' /sys/bus/pci/devices/*/driver | grep -v "$(dev gpu-a | sed 's/.$//')"; }
others > /run/others
for name in gpu-a-audio gpu-a; do echo 1 > "/sys/bus/pci/devices/$(dev $name)/remove"; done
expect "nothing that is gone is advertised" wait_for "[[ \$(advertised | wc -w) == 3 && \$(advertised) != *$(dev gpu-a)* ]]" 60
echo 1 > /sys/bus/pci/rescan
expect "it comes, and is bound" wait_for "[[ \$(driver gpu-a) == vfio-pci && \$(driver gpu-a-audio) == vfio-pci ]]" 60
expect "it is advertised again" wait_for '[[ $(resources) == "$(< /mnt/state/resources)" ]]' 60
settles ready divided
expect_equal "drivers and overrides" "$(< /mnt/state/bindings)" "$(snapshot)"
expect_equal "what is asked for is the same file" "$wanted" "$(stat -c %i /var/lib/ferry/desired.json)"
expect_equal "no other function was bound anew" "$(< /run/others)" "$(others)"

step "it ends, and all stays"
kill $hostd
status=0
wait $hostd || status=$?
expect_equal "exit status" 0 "$status"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_equal "everything is still advertised" "$(< /mnt/state/resources)" "$(resources)"
cp -r /var/lib/ferry /mnt/state/ # for the boot that follows
ok
