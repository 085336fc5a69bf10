# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=hostd/lib.sh
. /mnt/tests/scenarios/hostd/lib.sh
mkdir -p /var/lib/ferry
modprobe vfio-pci

# A VM without firmware, whose guest is this job: it writes to ports and memory by QEMU's qtest.
vm_begins() { # NAME
  coproc VM { exec qemu-system-x86_64 -name guest=tenant -S -accel tcg -machine q35 -m 64 -nodefaults -display none \
    -device "vfio-pci,host=$(dev "$1"),addr=4.0" -qtest stdio -qtest-log none 2>> /mnt/state/qemu.log; }
  vm=$VM_PID
  config 0x10 0xe0000000 # BAR 0, BAR 2, and the memory bit of the command register
  config 0x14 0
  config 0x18 0xe2000000
  config 0x1c 0
  config 0x04 2
}
guest() { # WORD...: its answer in $REPLY
  echo "$*" >&"${VM[1]}"
  read -r -t 60 REPLY <&"${VM[0]}" || fail "the VM does not answer $*: $(cat /mnt/state/qemu.log)"
  [[ $REPLY == OK* ]] || fail "the VM answers $* with $REPLY"
  REPLY=${REPLY#OK }
}
config() { # OFFSET VALUE
  guest outl 0xcf8 "$(printf '0x%x' $((0x80002000 | $1)))"
  guest outl 0xcfc "$2"
}
vm_writes() { guest writel 0xe2000040 "$1"; }
vm_reads() {
  guest readl 0xe2000040
  printf '0x%x\n' "$REPLY"
}
vm_ends() {
  kill "$vm"
  wait "$vm" || :
}
resets() { sort "/mnt/state/$1.log" | uniq -c | awk '{printf "%s%s %s", sep, $1, $2; sep = ", "}'; }
power() { cat "/sys/bus/pci/devices/$(dev "$1")/power_state"; }

want() { # HOW: of `sanitize`
  jq -n --arg how "$1" '{version: 2, policy: $how,
      config: "version: v2\nregisters: all\nsanitize: \($how)\npolicies:\n  \($how): [{devices: all, mode: passthrough}]\n"}' \
    > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/desired.json
}
of_gpu() { state ".accelerators[] | select(.address == \"$(dev "$1")\") | $2"; }
becomes() { # NAME STATE COUNT
  wait_for "[[ \$(of_gpu $1 '.sanitize | \"\(.state) \(.count)\"') == '$2 $3' ]]" 60 ||
    fail "$1 does not become $2 $3: $(of_gpu "$1" .; ferry history; cat /mnt/state/hostd.log /mnt/state/plugin.log)"
}
allocate() { # NAME
  local resource
  resource=$(jq -r ".resources[] | select(.devices[].id == \"$(dev "$1")\") | .name" /run/ferry/plugin/advertised.json)
  kubelet-standin allocate --dir $plugins "$resource" 1 "$(dev "$1")" > /mnt/state/allocated.json
}
release() { kubelet-standin release --dir $plugins "$(dev "$1")" > /mnt/state/released.json; }

step "without Ferry the second VM reads the pattern"
to_vfio gpu
vm_begins gpu
vm_writes 0x600dcafe
expect_equal "the first VM reads what it wrote" 0x600dcafe "$(vm_reads)"
vm_ends
vm_begins gpu
expect_equal "the second VM reads" 0x600dcafe "$(vm_reads)"
vm_ends
evidence "resets" "$(resets gpu)"
before=$(resets gpu | grep -o '[0-9]* bus-reset')

step "hostd reads the registers of a GPU that sleeps"
expect_equal "it sleeps" D3hot "$(power gpu)"
start
want required
settles ready required
expect "its facts are published" wait_for "[[ \$(of_gpu gpu .registers.cc_mode) == off ]]" 60
evidence "facts" "$(of_gpu gpu '.registers | tojson')"
becomes gpu available 1
expect_equal "the proof" "hot-reset proven" "$(of_gpu gpu '.sanitize | "\(.method) \(.result)"')"
expect "it sleeps again" wait_for "[[ \$(power gpu) == D3hot ]]" 30
expect "its bus was reset" test "$before" != "$(resets gpu | grep -o '[0-9]* bus-reset')"

step "the second VM does not read it"
expect "it is advertised" wait_for "advertised | grep -q $(dev gpu)" 30
allocate gpu
becomes gpu in_use 1
vm_begins gpu
expect_equal "the first VM reads" 0x0 "$(vm_reads)"
vm_writes 0x600dcafe
expect_equal "the first VM reads what it wrote" 0x600dcafe "$(vm_reads)"
vm_ends
release gpu
becomes gpu available 2
allocate gpu
becomes gpu in_use 2
vm_begins gpu
expect_equal "the second VM reads" 0x0 "$(vm_reads)"
vm_ends
release gpu
becomes gpu available 3

step "a GPU that does not prove its reset is kept back"
echo "scrubbed 0" > /mnt/state/gpu.control
allocate gpu
becomes gpu in_use 3
release gpu
becomes gpu failed 4
evidence "the reason" "$(ferry history "$(dev gpu)" -o json | jq -r '.gpus[0].events[-1].text')"
expect "no pod gets it" wait_for "! advertised | grep -q $(dev gpu)" 30
echo "scrubbed 1" > /mnt/state/gpu.control
ferry sanitize "$(dev gpu)" > /mnt/state/again
becomes gpu available 5

step "two GPUs of a group"
becomes pair available 1
becomes pair-second available 1
allocate pair
becomes pair in_use 1
becomes pair-second in_use 1
vm_begins pair-second
vm_writes 0x600dcafe
vm_ends
release pair
becomes pair available 2
becomes pair-second available 2
vm_begins pair-second
expect_equal "the second VM reads" 0x0 "$(vm_reads)"
vm_ends
ok
