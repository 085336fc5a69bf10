# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
# user 0 throughout; what is left of its capabilities is said for each command

with() { # CAPABILITIES COMMAND...: with these alone ("sys_ptrace,..."; empty: none)
  local names=${1:+,+${1//,/,+}}
  shift
  setpriv --bounding-set="-all$names" --inh-caps=-all "$@"
}

step "vfio-pci is not loaded without CAP_SYS_MODULE, and then nothing is written"
snapshot > /run/start
expect_status "all capabilities but one" 1 \
  setpriv --bounding-set=-sys_module --inh-caps=-all ferry vfio bind --device "$(dev lone)"
expect_match "what fails" "load module vfio_pci: Operation not permitted" "$REPLY"
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"
expect_equal "records" "" "$(ls /run/ferry/hostd/moves 2> /dev/null || :)"
expect "no vfio-pci" test ! -e /sys/bus/pci/drivers/vfio-pci

step "with CAP_SYS_MODULE alone it is loaded, and the GPU is bound"
expect_match "it alone is left" "CapEff:.0000000000010000" "$(with sys_module grep CapEff /proc/self/status)"
expect_status "that capability alone" 0 with sys_module ferry vfio bind --device "$(dev lone)"
expect "vfio-pci" test -e /sys/bus/pci/drivers/vfio-pci
expect_equal "driver" vfio-pci "$(driver lone)"
ferry vfio unbind --device "$(dev lone)" # by root with all capabilities: looking first needs some
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"

step "writing needs user 0 and no capability"
expect_match "none is left" "CapEff:.0000000000000000" "$(with "" grep CapEff /proc/self/status)"
expect_status "a GPU that no node leads to" 0 with "" ferry vfio bind --device "$(dev lone)"
expect_equal "driver" vfio-pci "$(driver lone)"

# Those whom ferry looks into: root's processes that may do all, another user's, and one that maps a file shared.
setpriv --reuid=1000 --regid=1000 --clear-groups sleep 1000 &
qemu-system-x86_64 -machine none -nodefaults -display none -object memory-backend-file,id=shared,share=on,size=64K,mem-path=/dev/shm/shared &
mapping=$!
expect "a shared mapping" wait_for "grep -qs 'rw-s.*/dev/shm/shared' /proc/$mapping/maps" 120
look=sys_ptrace,dac_read_search,checkpoint_restore

step "looking who uses a device needs three, and each of them"
snapshot > /run/bound
expect_status "the three" 0 with $look ferry vfio unbind --dry-run --device "$(dev lone)"
for lacking in sys_ptrace dac_read_search checkpoint_restore; do
  rest=$(tr , '\n' <<< $look | grep -vx $lacking | paste -sd,)
  expect_status "without $lacking" 4 with "$rest" ferry vfio unbind --device "$(dev lone)"
  expect_match "why" "Ferry cannot find out whether $(dev lone) is in use: .*could not be looked into: not permitted" "$REPLY"
  evidence "without $lacking" "$(grep "cannot find out whether" <<< "$REPLY")"
  expect_equal "drivers and overrides without $lacking" "$(< /run/bound)" "$(snapshot)"
done
expect_status "CAP_SYS_ADMIN in the place of CAP_CHECKPOINT_RESTORE" 0 \
  with sys_ptrace,dac_read_search,sys_admin ferry vfio unbind --dry-run --device "$(dev lone)"

step "with the three another user's hold is seen"
exec {node}<> "/dev/vfio/$(group lone)"
setpriv --reuid=1000 --regid=1000 --clear-groups sleep 1001 &
holder=$!
exec {node}>&-
expect "it runs" wait_for "[[ \$(< /proc/$holder/comm) == sleep ]]" 60
expect_status "held" 4 with $look ferry vfio unbind --device "$(dev lone)"
expect_match "by whom" "$(dev lone) is in use: process sleep \(pid $holder\) holds /dev/vfio/$(group lone)" "$REPLY"
kill $holder
wait $holder || :

step "with the three groups are bound and unbound"
for verb in bind unbind; do
  expect_status "$verb" 0 with $look ferry vfio $verb --device "$(dev card)" --device "$(dev lone)"
done
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"

step "without CAP_SYS_ADMIN a firmware's framebuffer is not seen, and that is said"
expect_status "with the three" 0 with $look ferry vfio plan --device "$(dev card)"
expect_match "the note" "note: firmware framebuffers: /proc/iomem hides all addresses" "$REPLY"
expect_status "and CAP_SYS_ADMIN" 0 with $look,sys_admin ferry vfio plan --device "$(dev card)"
expect_equal "notes" "" "$(grep iomem <<< "$REPLY" || :)"
ok
