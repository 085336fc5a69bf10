# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
plugins=/var/lib/kubelet/device-plugins
mkdir -p $plugins /var/lib/kubelet/pod-resources /var/lib/ferry
kubelet-standin serve --dir $plugins --pod-resources /var/lib/kubelet/pod-resources > /mnt/state/standin.log 2>&1 &
expect "the kubelet listens" wait_for "test -S $plugins/kubelet.sock" 30
ferry plugin 2> /mnt/state/plugin.log &
start_hostd() {
  ferry --log-level info hostd 2>> /mnt/state/hostd.log &
  hostd=$!
}
start_hostd
cat > /run/policies.yaml << 'YAML'
version: v2
policies:
  away: [{devices: [0, 1], mode: passthrough}]
  home: [{devices: [0, 1], mode: host}]
YAML
want() { # POLICY: written as the agent does it
  jq -n --arg policy "$1" --rawfile config /run/policies.yaml '{version: 1, policy: $policy, config: $config}' \
    > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/wanted.json
}
state() { jq -r "$1" /run/ferry/state.json 2> /dev/null; }
of() { state ".accelerators[] | select(.address == \"$(dev "$1")\") | $2"; }
settles() { # PHASE POLICY
  wait_for "[[ \$(state '.phase + \" \" + (.wanted.policy // \"-\")') == '$1 $2' ]]" 60 ||
    fail "it does not become $1: $(cat /run/ferry/state.json; cat /mnt/state/hostd.log)"
}
offered() { # the GPUs that the kubelet may give out
  kubelet-standin resources --dir $plugins | jq -r '[.[].devices[] | select(.health == "Healthy") | .id] | sort | join(" ")'
}
gpus="$(dev gpu-a) $(dev gpu-b)"

step "nothing is wanted, and nothing is changed"
wait_for "[[ \$(state .phase) == nothing_wanted ]]" 60 || fail "$(cat /mnt/state/hostd.log)"
expect_equal "driver of gpu-a" bochs-drm "$(driver gpu-a)"

step "what is wanted is done, and offered"
want away
settles as_wanted away
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
expect "the kubelet is offered both" wait_for "[[ \$(offered) == '$gpus' ]]" 30

step "what a VM has is left, and done when the VM ends"
qemu-system-x86_64 -name guest=tenant -S -accel tcg -machine q35 -m 64 -nodefaults -display none \
  -device "vfio-pci,host=$(dev gpu-a)" > /mnt/state/qemu.log 2>&1 &
vm=$!
expect "it has the group" wait_for "ls -l /proc/$vm/fd | grep -q vfio/$(group gpu-a)\$" 60
want home
settles refused home
expect_equal "who holds it" "virtual_machine tenant $vm" "$(of gpu-a '.holders[0] | "\(.kind) \(.name) \(.pid)"')"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_equal "the other GPU did not wait" "$(planned gpu-b driver)" "$(driver gpu-b)"
kill "$vm"
settles as_wanted home
expect_equal "driver of gpu-a" bochs-drm "$(driver gpu-a)"
expect_equal "driver of gpu-a-audio" snd_hda_intel "$(driver gpu-a-audio)"
expect "the kubelet is offered nothing" wait_for "[[ -z \$(offered) ]]" 30

step "what a pod has is left, and done when the pod ends"
want away
settles as_wanted away
expect "the kubelet is offered both" wait_for "[[ \$(offered) == '$gpus' ]]" 30
resource=$(jq -r ".resources[] | select(.devices[].id == \"$(dev gpu-a)\") | .name" /run/ferry/offered.json)
kubelet-standin allocate --dir $plugins "$resource" 1 "$(dev gpu-a)" > /mnt/state/allocated.json
want home
settles refused home
expect_equal "what holds it" pod "$(of gpu-a '.holders[0].kind')"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_equal "nobody else is given it" "$(dev gpu-a)" "$(state '.withdraw[].id' | head -n 1)"
kubelet-standin release --dir $plugins "$(dev gpu-a)" > /mnt/state/released.json
settles as_wanted home
expect_equal "driver of gpu-a" bochs-drm "$(driver gpu-a)"

step "killed in the middle and started again"
exec {lock}>> /run/ferry/lock # so that it is not over before it can be killed
flock "$lock"
want away
expect "it is in the middle" wait_for "[[ \$(state .phase) == changing ]]" 60
kill -9 $hostd
wait $hostd || true
exec {lock}>&-
expect "what it was making stays withdrawn" jq -e ".withdraw[] | select(.id == \"$(dev gpu-a)\")" /run/ferry/state.json
start_hostd
settles as_wanted away
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
expect "the kubelet is offered both" wait_for "[[ \$(offered) == '$gpus' ]]" 30

step "what somebody else undoes is done again, as soon as the kernel tells it"
dev gpu-b > /sys/bus/pci/drivers/vfio-pci/unbind
expect "gpu-b is on vfio-pci again" wait_for "[[ \$(driver gpu-b) == vfio-pci ]]" 60
settles as_wanted away
expect "the kubelet is offered both" wait_for "[[ \$(offered) == '$gpus' ]]" 30

step "it ends, and all stays"
kill $hostd
status=0
wait $hostd || status=$?
expect_equal "exit status" 0 "$status"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_equal "the kubelet is still offered both" "$gpus" "$(offered)"
ok
