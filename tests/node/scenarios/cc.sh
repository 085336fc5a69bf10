# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=hostd/lib.sh
. /mnt/tests/scenarios/hostd/lib.sh
mkdir -p /var/lib/ferry
modprobe vfio-pci
to_vfio one
to_vfio two

modes() { # as the registers show them
  ferry cc plan off -o json | jq -r '[.devices[].mode] | join(" ")'
}
obey() { # NAME LINE
  echo "$2" > "/mnt/state/$1.control"
}
resets() { wc -l < "/mnt/state/$1.log"; }

step "a mode is set, and again nothing is written"
expect_equal "modes" "off off" "$(modes)"
expect_status "set" 0 ferry cc set on
expect_equal "modes" "on on" "$(modes)"
before="$(resets one) $(resets two)"
expect_status "set again" 0 ferry cc set on
expect_match "the second time" unchanged "$REPLY"
expect_equal "resets" "$before" "$(resets one) $(resets two)"
expect_equal "a GPU in a mode that blocks its registers sleeps again" D3hot "$(attribute one power_state)"
evidence "plan" "$(ferry cc plan off)"

step "a VM keeps its mode"
qemu-system-x86_64 -name guest=tenant -S -accel tcg -machine q35 -m 64 -nodefaults -display none \
  -device "vfio-pci,host=$(dev two)" > /mnt/state/qemu.log 2>&1 &
vm=$!
expect "it has the group" wait_for "ls -l /proc/$vm/fd | grep -q vfio/$(group two)\$" 60
before=$(resets one) # the start of the VM resets the other
expect_status "set" 4 ferry cc set off
expect_match "the reason names the VM" tenant "$REPLY"
expect_equal "resets" "$before" "$(resets one)"
expect "the VM runs" kill -0 "$vm"
kill "$vm"
wait "$vm" || :

step "a VM starts while the registers are read"
touch /run/reads
while [ -e /run/reads ]; do
  status=0
  ferry cc plan off > /dev/null 2>> /mnt/state/plan.log || status=$?
  echo "$status"
done > /mnt/state/statuses &
reader=$!
for _ in 1 2 3 4 5; do
  qemu-system-x86_64 -name guest=tenant -S -accel tcg -machine q35 -m 64 -nodefaults -display none \
    -device "vfio-pci,host=$(dev two)" > /mnt/state/qemu.log 2>&1 &
  vm=$!
  expect "it has the GPU" wait_for "[[ \$(attribute two enable) == 1 ]]" 60
  expect "the VM runs" kill -0 "$vm"
  expect_equal "its QEMU says" "" "$(cat /mnt/state/qemu.log)"
  kill "$vm"
  wait "$vm" || :
done
rm /run/reads
wait "$reader"
evidence "readings" "$(sort /mnt/state/statuses | uniq -c | xargs)"
expect_equal "each is done or refused" "" "$(grep -vx '0\|4' /mnt/state/statuses || :)"

step "a reset that does not take is made once more"
obey one "keeps 1"
expect_status "set" 0 ferry cc set off
evidence "answer" "$REPLY"
expect_equal "modes" "off off" "$(modes)"
expect_match "the second reset" bus-reset "$(tail -n 1 /mnt/state/one.log)"

step "one GPU that fails keeps all back"
obey two "keeps 2"
expect_status "set" 1 ferry cc set devtools
evidence "answer" "$REPLY"
expect_equal "modes" "off off" "$(modes)"
expect "no change is interrupted" test ! -e /var/lib/ferry-hostd/gpus/mode-change.json
obey two "keeps 0"

step "hostd undoes what a killed command left"
obey one "polls 100000000"
obey two "keeps 9"
before=$(resets one)
ferry cc set on > /mnt/state/killed 2>&1 &
expect "it has begun" wait_for "test -e /var/lib/ferry-hostd/gpus/mode-change.json" 60
expect "the first GPU is reset" wait_for "((\$(resets one) > before))" 60
pkill -KILL -x 'ferry|exe' || : # and its child, which the kernel calls exe
wait || :
obey one "polls 0"
obey two "keeps 0"
expect_equal "modes" "on off" "$(modes)"
expect "the change is interrupted" test -e /var/lib/ferry-hostd/gpus/mode-change.json
expect_match "ferry status" interrupted "$(ferry status)"
start
expect "it is undone" wait_for "test ! -e /var/lib/ferry-hostd/gpus/mode-change.json" 60
expect_equal "modes" "off off" "$(modes)"
ok
