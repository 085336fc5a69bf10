# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=hostd/lib.sh
. /mnt/tests/scenarios/hostd/lib.sh
mkdir -p /var/lib/ferry
gpu=$(dev gpu-a)
want() { # HOW: of `sanitize`
  jq -n --arg how "$1" '{version: 2, policy: $how,
      config: "version: v2\nsanitize: \($how)\npolicies:\n  \($how): [{model: \"10de:2684\", mode: passthrough}]\n"}' \
    > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/desired.json
}
sanitize() { state ".accelerators[] | select(.address == \"$gpu\") | .sanitize | \"\\($1)\""; }
becomes() { # STATE COUNT
  wait_for "[[ \$(sanitize '.state) \(.count') == '$1 $2' ]]" 60 ||
    fail "it does not become $1 $2: $(sanitize .; ferry history; cat /mnt/state/hostd.log /mnt/state/plugin.log)"
}

step "a GPU that was bound is sanitized first"
# A driver that leaves the function enabled: the kernel counts it as if a user had opened it.
if [ -e "/sys/bus/pci/devices/$gpu/driver" ]; then echo "$gpu" > "/sys/bus/pci/devices/$gpu/driver/unbind"; fi
echo 1 > "/sys/bus/pci/devices/$gpu/enable"
start
want best-effort
settles ready best-effort
becomes available 1
expect_equal "how" "hot-reset unproven" "$(sanitize '.method) \(.result')"
evidence "time" "$(sanitize .milliseconds) ms"
expect_equal "driver of gpu-a" vfio-pci "$(driver gpu-a)"
expect_equal "it is enabled without a user" 1 "$(cat "/sys/bus/pci/devices/$gpu/enable")"
expect "it is advertised" wait_for "[[ \$(advertised) == '$gpu' ]]" 30
resource=$(jq -r ".resources[] | select(.devices[].id == \"$gpu\") | .name" /run/ferry/plugin/advertised.json)
allocate() { kubelet-standin allocate --dir $plugins "$resource" 1 "$gpu"; }

step "a GPU is not reset while a VM has it"
allocate > /mnt/state/allocated.json
becomes in_use 1
qemu-system-x86_64 -name guest=tenant -S -accel tcg -machine q35 -m 64 -nodefaults -display none \
  -device "vfio-pci,host=$gpu" > /mnt/state/qemu.log 2>&1 &
vm=$!
expect "it has the group" wait_for "ls -l /proc/$vm/fd | grep -q vfio/$(group gpu-a)\$" 60
kubelet-standin release --dir $plugins "$gpu" > /mnt/state/released.json # as after a forced deletion of the pod
expect "the plugin has seen that its group is open" wait_for "[[ -z \$(advertised) ]]" 60
expect_equal "its state" "in_use 1" "$(sanitize '.state) \(.count')"
status=0
ferry sanitize "$gpu" 2> /mnt/state/refused || status=$?
expect_equal "exit status of a request meanwhile" 4 "$status"
expect "the VM runs" kill -0 "$vm"
kill "$vm"
becomes available 2
expect "it is advertised again" wait_for "[[ \$(advertised) == '$gpu' ]]" 30

step "a pod that comes too early waits"
allocate > /mnt/state/allocated.json
becomes in_use 2
kubelet-standin release --dir $plugins "$gpu" > /mnt/state/released.json
allocate > /mnt/state/allocated.json
expect_equal "sanitizings before it got the GPU" 3 "$(sanitize .count)"
becomes in_use 3
expect_equal "states of the GPU since" "in_use sanitizing available in_use" \
  "$(ferry history "$gpu" -o json | jq -r '[.gpus[0].events[-4:][].state] | join(" ")')"

step "a GPU without a proof is kept back until it is accepted"
want required
settles ready required
kubelet-standin release --dir $plugins "$gpu" > /mnt/state/released.json
becomes failed 4
expect "no pod gets it" wait_for "[[ -z \$(advertised) ]]" 30
status=0
ferry sanitize "$gpu" > /mnt/state/again || status=$?
expect_equal "exit status of another try" 1 "$status"
becomes failed 5
ferry sanitize "$gpu" --accept > /mnt/state/accepted
becomes available 6
expect "it is advertised again" wait_for "[[ \$(advertised) == '$gpu' ]]" 30
ferry history > /mnt/state/history
cat /mnt/state/history
ok
