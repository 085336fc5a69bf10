# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
faults=/sys/module/ferry_testgpu/parameters
stuck=/run/ferry/stuck-writes
card=(card card-audio card-usb card-ucsi)

# A ferry in the background, in a session of its own as in a terminal: Ctrl-C reaches it and its group.
start() { # NAME ARGUMENT...: its process is left in $pid, its output goes to /run/NAME
  setsid env --default-signal=INT ferry "${@:2}" > "/run/$1" 2>&1 &
  pid=$!
}

finish() { # NAME STATUS [PID]: waits for it ($pid), which must end with this
  local status=0
  wait "${3-$pid}" || status=$?
  cat "/run/$1"
  expect_equal "exit status of $1" "$2" "$status"
}

insist() { # NAME PID ARGUMENT...: as finish, with 0; begun again where another had the host for longer than it waits
  local name=$1 tries=5 status
  pid=$2
  shift 2
  while :; do
    status=0
    wait "$pid" || status=$?
    if ((status != 1 || --tries == 0)) || ! grep -q 'another ferry is changing this host' "/run/$name"; then break; fi
    start "$name" "$@"
  done
  cat "/run/$name"
  expect_equal "exit status of $name" 0 "$status"
}

on() { # DRIVER NAME...: each of these has it
  local name wanted=$1
  shift
  for name in "$@"; do expect_equal "driver of $name" "$wanted" "$(driver "$name")"; done
}

whole() { # NAME...: the functions of one group are all at home or all on vfio-pci; says which
  local name state='' found
  for name in "$@"; do
    found=home
    [[ $(driver "$name") != vfio-pci ]] || found=vfio
    [[ $found == vfio || $(driver "$name") == "$(planned "$name" driver)" ]] || fail "$name is on $(driver "$name")"
    [[ -z $state || $state == "$found" ]] || fail "$name is on another side than $1"
    state=$found
  done
  echo "$state"
}

recorded() { # the addresses in the undo journal, one line
  jq -r '.devices | keys[]' /run/ferry/hostd/moves/*.json 2> /dev/null | sort | xargs || :
}

addresses() { # NAME...
  local name
  for name in "$@"; do dev "$name"; done | sort | xargs
}

named_stuck() { # ADDRESS: a record names it, and the process of the write, left in $hung, is in the kernel
  local record
  for record in "$stuck"/*.json; do
    hung=${record##*/} hung=${hung%.json}
    if grep -qs "\"value\": \"$1\"" "$record" && grep -qs '^State:.D' "/proc/$hung/status"; then return 0; fi
  done
  return 1
}

released() { # the driver goes on; until the process of the write has ended
  echo > $faults/hang_remove
  expect "the write returns" wait_for "! grep -qs '^State:.[^Z]' /proc/$hung/status" 60
}

basename "$(dirname "$(realpath "/sys/bus/pci/devices/$(dev first)")")" > /sys/bus/pci/drivers/shpchp/unbind
snapshot > /run/start

step "a GPU is unplugged between ferry's look and its first write"
# vfio-pci is loaded by a command that waits: the first look is over then, and nothing is written yet.
cat > /etc/modprobe.d/slow.conf <<'CONF'
install vfio-pci /bin/bash -c '. /mnt/tests/lib/node.sh; > /run/loading; wait_for "[[ -e /run/go ]]" 200; /sbin/modprobe --ignore-install vfio-pci'
CONF
start unplugged vfio bind --all
expect "ferry loads vfio-pci" wait_for "[[ -e /run/loading ]]" 60
expect "a slow load is recorded" wait_for "grep -qs 'load module vfio_pci' $stuck/*.json" 60
expect_equal "nothing is written yet" "$(< /run/start)" "$(snapshot)"
echo "READY: unplug leaving"
expect "it goes" wait_for "[[ ! -e /sys/bus/pci/devices/$(dev leaving) ]]" 120
touch /run/go
finish unplugged 1
expect_match "the one that is gone" "$(dev leaving) .*: failed"$'\n'".*"$'\n'".*no PCI function $(dev leaving) any more" "$(< /run/unplugged)"
on vfio-pci "${card[@]}" lone stubborn first second
expect_equal "the slow load's record is gone" "" "$(ls $stuck)"
expect_equal "records" "$(addresses "${card[@]}" lone stubborn first second)" "$(recorded)"
rm /etc/modprobe.d/slow.conf
expect_status "all back" 0 ferry vfio unbind --all
grep -v "^$(dev leaving) " /run/start > /run/left
expect_equal "all others as before" "$(< /run/left)" "$(snapshot)"
expect_equal "records" "" "$(recorded)"

step "a group's node may be held over the unbind of its last member"
expect_status "bind" 0 ferry vfio bind --device "$(dev lone)"
exec {held}<> "/dev/vfio/$(group lone)"
expect_status "a second opener" 1 bash -c "exec 9<> /dev/vfio/$(group lone)"
expect_match "the errno" "Device or resource busy" "$REPLY"
dev lone > /sys/bus/pci/drivers/vfio-pci/unbind
expect "the node is gone" test ! -e "/dev/vfio/$(group lone)"
dev lone > /sys/bus/pci/drivers/vfio-pci/bind
exec {another}<> "/dev/vfio/$(group lone)"
exec {held}>&- {another}>&-
expect_status "unbind" 0 ferry vfio unbind --device "$(dev lone)"
expect_equal "as before" "$(< /run/left)" "$(snapshot)"

step "a GPU is removed in the middle of its group's bind"
dev first > $faults/hang_remove
start removed vfio bind --device "$(dev first)" --device "$(dev second)"
expect "the first one's driver hangs" wait_for "named_stuck $(dev first)" 60
echo 1 > "/sys/bus/pci/devices/$(dev second)/remove"
echo > $faults/hang_remove
finish removed 1
on nvidia first
expect_equal "override of the first" "(null)" "$(attribute first driver_override)"
expect_equal "records" "" "$(recorded)"
echo 1 > /sys/bus/pci/rescan
expect "the second is back" wait_for "[[ \$(driver second) == nvidia ]]" 60
expect_equal "all as before" "$(< /run/left)" "$(snapshot)"

step "a ferry that is killed while a driver hangs leaves the record"
for signal in KILL INT; do
  dev stubborn > $faults/hang_remove
  start killed vfio bind --device "$(dev stubborn)"
  expect "the record" wait_for "named_stuck $(dev stubborn)" 60
  if [[ $signal == INT ]]; then
    kill -INT -- "-$pid"
    expect "the first Ctrl-C is answered" wait_for "grep -q 'finishing what has begun' /run/killed" 60
    kill -INT -- "-$pid"
  else
    kill -KILL "$pid"
  fi
  finish killed $((128 + $(kill -l $signal)))
  expect "the record after SIG$signal" named_stuck "$(dev stubborn)"
  evidence "after SIG$signal" "$(cat "$stuck/$hung.json")"
  expect "the lock is free" flock --nonblock /run/ferry/hostd/lock true
  expect_status "looking is not kept up" 0 within 60 ferry status
  expect_status "the device is left alone" 4 within 60 ferry vfio bind --device "$(dev stubborn)"
  expect_match "and named" "an earlier write to $(dev stubborn) has not returned" "$REPLY"
  released
  expect_status "the next run" 0 ferry vfio bind --device "$(dev stubborn)"
  on vfio-pci stubborn
  expect_status "and back" 0 ferry vfio unbind --device "$(dev stubborn)"
  expect_equal "as before" "$(< /run/left)" "$(snapshot)"
done

step "what has begun is ended before a ferry that gets a signal to end"
for signal in INT TERM HUP; do
  dev second > $faults/hang_remove
  start told vfio bind --device "$(dev first)" --device "$(dev second)"
  expect "a write that takes long" wait_for "named_stuck $(dev second)" 60
  kill "-$signal" -- "-$pid"
  expect "SIG$signal is answered" wait_for "grep -q 'finishing what has begun' /run/told" 60
  echo > $faults/hang_remove
  finish told 0
  on vfio-pci first second
  expect_status "and back" 0 ferry vfio restore
  expect_equal "as before" "$(< /run/left)" "$(snapshot)"
done

step "a driver that never returns costs its own group alone"
dev stubborn > $faults/hang_remove
start stuck vfio bind --device "$(dev stubborn)" --device "$(dev lone)"
expect "the other group is bound" wait_for "[[ \$(driver lone) == vfio-pci ]]" 60
expect "the write is recorded" wait_for "named_stuck $(dev stubborn)" 60
expect "while ferry still waits" kill -0 "$pid"
evidence "record" "$(cat "$stuck/$hung.json")"
before=$(snapshot "$(dev stubborn)")
expect_status "another ferry does not change the host meanwhile" 1 ferry vfio bind --device "$(dev card)"
expect_match "and says who does" "another ferry is changing this host \(process $pid\)" "$REPLY"
expect_equal "nothing is written" "$before" "$(snapshot "$(dev stubborn)")"
expect_status "looking is not kept up" 0 within 60 ferry status
finish stuck 1
expect_match "the one that hangs" "$(dev stubborn) .*: failed"$'\n'".*"$'\n'".*still in the kernel after 90000 ms" "$(< /run/stuck)"
expect_match "the other one" "$(dev lone) .*: done" "$(< /run/stuck)"
expect_equal "records" "$(addresses stubborn lone)" "$(recorded)"
expect "the lock is free" flock --nonblock /run/ferry/hostd/lock true
expect_status "the next ferry serves another group" 4 within 60 ferry vfio bind --device "$(dev stubborn)" --device "$(dev card)"
expect_match "and leaves the stuck one alone" "an earlier write to $(dev stubborn) has not returned" "$REPLY"
on vfio-pci "${card[@]}" lone
released
expect_status "then it is bound" 0 ferry vfio bind --device "$(dev stubborn)"
on vfio-pci stubborn
expect_status "all back" 0 ferry vfio restore
expect_equal "as before" "$(< /run/left)" "$(snapshot)"
expect_equal "records" "" "$(recorded)"

step "a driver that hangs in another program's unbind, which no record names, costs its own group alone"
dev stubborn > $faults/hang_remove
dev stubborn > /sys/bus/pci/drivers/nvidia/unbind &
hung=$!
expect "it hangs" wait_for "grep -qs '^State:.D' /proc/$hung/status" 60
expect_status "looking is not kept up" 0 within 60 ferry status
expect_status "nor in all detail" 0 within 60 ferry status -o json
problem=$(jq -r ".accelerators[] | select(.address == \"$(dev stubborn)\") | .problem.message" <<< "$REPLY")
expect_match "the one that hangs" "read /sys/bus/pci/devices/$(dev stubborn)/driver_override" "$problem"
expect_status "another group is served" 4 within 60 ferry vfio bind --device "$(dev stubborn)" --device "$(dev lone)"
expect_match "and this one left alone" "$(dev stubborn) .*: refused" "$REPLY"
on vfio-pci lone
released
wait
dev stubborn > /sys/bus/pci/drivers/nvidia/bind
expect_status "back" 0 ferry vfio unbind --device "$(dev lone)"
expect_equal "as before" "$(< /run/left)" "$(snapshot)"

step "two ferries at once end with each group whole"
start one vfio bind --all
one=$pid
start two vfio bind --all
insist two "$pid" vfio bind --all
insist one "$one" vfio bind --all
on vfio-pci "${card[@]}" lone stubborn first second
expect_equal "records" "$(addresses "${card[@]}" lone stubborn first second)" "$(recorded)"
for round in 1 2 3; do
  start one vfio unbind --all
  one=$pid
  start two vfio bind --all
  insist two "$pid" vfio bind --all
  insist one "$one" vfio unbind --all
  sides=$(for name in lone stubborn; do whole $name; done; whole "${card[@]}"; whole first second)
  evidence "round $round" "$(xargs <<< "$sides")"
  expect_equal "all on one side" 1 "$(sort -u <<< "$sides" | wc -l)"
  case $sides in
    vfio*) expect_equal "records" "$(addresses "${card[@]}" lone stubborn first second)" "$(recorded)" ;;
    *) expect_equal "as before" "$(< /run/left)" "$(snapshot)"
      expect_equal "records" "" "$(recorded)" ;;
  esac
done
expect_status "all back" 0 ferry vfio restore
expect_equal "as before" "$(< /run/left)" "$(snapshot)"
ok
