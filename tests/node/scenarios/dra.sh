# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR
# shellcheck source=dra/lib.sh
. /mnt/tests/scenarios/dra/lib.sh
faults=/sys/module/ferry_testgpu/parameters

kill_hostd() {
  kill -9 $hostd
  wait $hostd || :
}

hostd_answers() { unprepare unknown > /dev/null 2>&1; } # to undo an unknown claim succeeds

start_again() {
  start_hostd
  expect "hostd answers" wait_for hostd_answers 180
}

of() { state ".accelerators[] | select(.address == \"$(dev "$1")\") | $2"; }

uid() { echo "5be0c3aa-2f4d-4a3e-8d55-$(md5sum <<< "$1" | head -c 12)"; } # CLAIM

request() { # ACTION CLAIM [ADDRESS[=TYPE]]...
  jq -nc --arg action "$1" --arg name "$2" --arg uid "$(uid "$2")" \
    '{version: 2, action: $action, claim: $uid, namespace: "studio", name: $name,
      devices: [$ARGS.positional | to_entries[] | .key as $at | .value | split("=") |
        {gpu: .[0], type: .[1], placement: null, request: "card", pool: "node/gpu-ferry", name: "device-\($at)", attributes: []}]}' --args "${@:3}"
}

prepare() { request prepare "$@" | "${dra[@]}" claim-request; }           # CLAIM ADDRESS[=TYPE]...
leave() { request prepare "$@" | "${dra[@]}" claim-request --leave; }     # the same, without the answer
unprepare() { request unprepare "$1" | "${dra[@]}" claim-request; }       # CLAIM
answered() { jq -r "$1" <<< "$REPLY"; }                                   # FILTER: of the answer
nodes() { answered ".devices[$1].nodes | map(.path) | join(\" \")"; }     # NUMBER: of a device of the answer

type_of() { # NAME TYPE: its ID
  jq -r --arg gpu "$(dev "$1")" --arg name "$2" \
    '.gpus[] | select(.address == $gpu) | .types[] | select(.short_name == $name) | .id' $claims/gpus.json
}

identity() { # of all bindings, vGPUs and records: what is written or made anew has another inode
  snapshot
  vgpus
  stat -c '%n %i' /sys/bus/pci/devices/*/driver
  find /sys/bus/mdev/devices/ -mindepth 1 -printf '%f %i\n' | sort
  find /run/ferry/hostd/claims.json /run/ferry/hostd/moves/ -type f -printf '%p %i\n' | sort
}

start_vm() { # NAME NODE DEVICE: a VM that has not begun to run has the device; its process is left in $vm
  qemu-system-x86_64 -name "guest=$1" -S -accel tcg -machine q35 -m 64 -nodefaults -display none \
    -device "vfio-pci,$3" > "/mnt/state/$1.log" 2>&1 &
  vm=$!
  expect "$1 has its device" wait_for "ls -l /proc/$vm/fd | grep -q '$2\$'" 120
}

end_vm() {
  kill "$vm"
  wait "$vm" || :
}

mkdir -p /var/lib/ferry
for name in l40s-mdev l40s-vfio; do echo 2 > "$(pf $name)/sriov_numvfs"; done
cat > /run/policies.yaml << YAML
version: v2
policies:
  claims:
  - {address: "$(dev gpu-a)", allocation: dra}
  - {address: "$(dev t4)", allocation: dra, allow: [whole, "T4-*"]}
  - {address: "$(dev l40s-mdev)", allocation: dra}
  - {address: "$(dev l40s-vfio)", allocation: dra, allow: ["L40S-12*"]}
  - {address: "$(dev stubborn)", allocation: dra}
  - {address: "$(dev gpu-b)", mode: passthrough}
  plugin:
  - {address: "$(dev gpu-a)", mode: passthrough}
  - {address: "$(dev gpu-b)", mode: passthrough}
YAML
start

step "the GPUs of the policy are for claims, and the device plugin has the other one"
want claims
settles ready claims
expect "the GPUs for claims" claimable_become gpu-a t4 l40s-mdev l40s-vfio stubborn
expect_equal "their health" ready "$(jq -r '[.gpus[].health] | unique | join(" ")' $claims/gpus.json)"
for framework in gpu-a=none t4=mdev l40s-mdev=mdev l40s-vfio=vendor_vfio; do
  expect_equal "the framework of ${framework%=*}" "${framework#*=}" \
    "$(jq -r --arg gpu "$(dev "${framework%=*}")" '.gpus[] | select(.address == $gpu) | .framework' $claims/gpus.json)"
done
expect "the user of ferry dra reads them" "${dra[@]}" grep -q for_dra $claims/gpus.json
expect_status "another user does not" 2 setpriv --reuid=1000 --regid=1000 --clear-groups grep -q for_dra $claims/gpus.json
expect "the other GPU is advertised" wait_for "[[ \$(advertised) == '$(dev gpu-b)' ]]" 60
expect_equal "allocation of gpu-a" dra "$(of gpu-a .allocation)"
expect_equal "allocation of gpu-b" device-plugin "$(of gpu-b .allocation)"
for name in gpu-a gpu-a-audio; do
  expect "the device plugin may not advertise $name" \
    jq -e ".unavailable[] | select(.id == \"$(dev $name)\")" /run/ferry/status.json
done
expect_equal "driver of gpu-a" "$(planned gpu-a driver)" "$(driver gpu-a)"
snapshot > /run/before

step "a claim binds a whole GPU with its IOMMU group, and undoes it"
expect_status "prepare" 0 prepare whole "$(dev gpu-a)"
answer=$REPLY
evidence "answer" "$answer"
expect_equal "the function" "$(dev gpu-a)" "$(answered '.devices[0].function')"
expect_equal "no UUID" null "$(answered '.devices[0].mdev_uuid')"
expect_equal "the nodes" "/dev/vfio/vfio /dev/vfio/$(group gpu-a)" "$(nodes 0)"
for name in gpu-a gpu-a-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
expect "the node of the group" test -c "/dev/vfio/$(group gpu-a)"
expect_equal "the record" "whole done" "$(recorded)"
identity > /run/prepared
expect_status "a repeated request" 0 prepare whole "$(dev gpu-a)"
expect_equal "the same answer" "$answer" "$REPLY"
expect_equal "nothing is written" "$(< /run/prepared)" "$(identity)"
expect_status "the same claim with another device" 4 prepare whole "$(dev t4)"
expect_match "the reason" "prepared with other devices" "$REPLY"
expect_status "another claim for the GPU" 4 prepare second "$(dev gpu-a)"
expect_match "the claim that has it" "$(dev gpu-a) is in use by claim studio/whole" "$REPLY"
expect_equal "nothing is written" "$(< /run/prepared)" "$(identity)"
expect_equal "advertised" "$(dev gpu-b)" "$(advertised)"
expect_status "unprepare" 0 unprepare whole
expect_equal "no device" 0 "$(answered '.devices | length')"
as_before
expect_status "a repeated unprepare" 0 unprepare whole

step "a whole GPU loses its virtual functions for the claim, and gets them again"
expect_status "prepare" 0 prepare whole "$(dev l40s-mdev)"
expect_equal "driver" vfio-pci "$(driver l40s-mdev)"
expect_equal "virtual functions" "0 0 2" "$(vfs)"
expect_status "unprepare" 0 unprepare whole
expect_equal "virtual functions" "0 2 2" "$(vfs)"
as_before

step "a claim makes mediated devices by UUID"
type=$(type_of t4 T4-4Q)
expect_status "two vGPUs of a T4, and a third on a virtual function" 0 prepare mediated \
  "$(dev t4)=$type" "$(dev t4)=$type" "$(dev l40s-mdev)=$(type_of l40s-mdev L40S-12Q)"
answer=$REPLY
mapfile -t uuids < <(answered '.devices[].mdev_uuid')
expect_equal "UUIDs" 3 "$(printf '%s\n' "${uuids[@]}" | sort -u | wc -l)"
expect_equal "no function, which KubeVirt would take" null "$(answered '.devices[].function' | sort -u)"
for number in 0 1 2; do
  device=/sys/bus/mdev/devices/${uuids[number]}
  expect_equal "the type of ${uuids[number]}" "$( ((number < 2)) && echo "GRID T4-4Q" || echo "NVIDIA L40S-12Q")" \
    "$(< "$device/mdev_type/name")"
  expect_equal "the nodes of ${uuids[number]}" "/dev/vfio/vfio /dev/vfio/$(group_of "${uuids[number]}")" "$(nodes $number)"
done
vgpus > /mnt/state/mediated
evidence "vGPUs" "$(< /mnt/state/mediated)"
expect_equal "how many there are" 3 "$(wc -l < /mnt/state/mediated)"
identity > /run/prepared
expect_status "a repeated request" 0 prepare mediated \
  "$(dev t4)=$type" "$(dev t4)=$type" "$(dev l40s-mdev)=$(type_of l40s-mdev L40S-12Q)"
expect_equal "the same answer" "$answer" "$REPLY"
expect_equal "nothing is written" "$(< /run/prepared)" "$(identity)"
expect_status "another size on the same GPU" 4 prepare larger "$(dev t4)=$(type_of t4 T4-8Q)"
expect_match "the reason" "fits now; it carries 2 x T4-4Q" "$REPLY"
expect_status "the GPU whole" 4 prepare larger "$(dev t4)"
expect_match "the claim that has vGPUs of it" "is in use by claim studio/mediated" "$REPLY"
expect_status "one more of that size by another claim" 0 prepare beside "$(dev t4)=$type"
expect_equal "vGPUs of the T4" 3 "$(vgpus | grep -c "^$(dev t4) ")"
expect_equal "advertised" "$(dev gpu-b)" "$(advertised)"
expect_status "unprepare" 0 unprepare beside
expect_equal "the others stay" "$(< /mnt/state/mediated)" "$(vgpus)"

step "a vGPU that a VM has stays until the VM has ended"
start_vm part "vfio/$(group_of "${uuids[0]}")" "sysfsdev=/sys/bus/mdev/devices/${uuids[0]}"
expect_status "unprepare" 4 unprepare mediated
expect_match "the VM" "VM part \(pid $vm\)" "$REPLY"
expect "the VM's vGPU" test -e "/sys/bus/mdev/devices/${uuids[0]}"
expect "the VM runs on" kill -0 "$vm"
expect_match "the record" "mediated intent" "$(recorded)"
end_vm
expect_status "unprepare" 0 unprepare mediated
as_before
expect_status "prepare" 0 prepare mediated "$(dev t4)=$type"
expect_equal "the UUID is by the claim" "${uuids[0]}" "$(answered '.devices[0].mdev_uuid')"
expect_status "unprepare" 0 unprepare mediated
as_before

step "a vGPU of vendor-specific VFIO"
vendor="$(dev l40s-vfio)=$(type_of l40s-vfio L40S-12Q)"
expect_status "prepare" 0 prepare first "$vendor"
answer=$REPLY
function=$(answered '.devices[0].function')
expect_equal "the first virtual function" "$(vf l40s-vfio 0)" "$function"
expect_equal "its vGPU type" "${vendor#*=}" "$(< "/sys/bus/pci/devices/$function/nvidia/current_vgpu_type")"
expect_equal "the nodes" "/dev/vfio/vfio /dev/vfio/$(group_of "$function")" "$(nodes 0)"
identity > /run/prepared
expect_status "a repeated request" 0 prepare first "$vendor"
expect_equal "the same answer" "$answer" "$REPLY"
expect_equal "nothing is written" "$(< /run/prepared)" "$(identity)"
expect_status "another claim" 0 prepare second "$vendor"
expect_equal "the next virtual function" "$(vf l40s-vfio 1)" "$(answered '.devices[0].function')"
start_vm tenant "vfio/$(group_of "$function")" "host=$function"
expect_status "a repeated request while the VM runs" 0 prepare first "$vendor"
expect_equal "the same answer" "$answer" "$REPLY"
expect_status "unprepare" 4 unprepare first
expect_match "the VM" "VM tenant \(pid $vm\)" "$REPLY"
expect_equal "its vGPU type" "${vendor#*=}" "$(< "/sys/bus/pci/devices/$function/nvidia/current_vgpu_type")"
end_vm
for claim in first second; do expect_status "unprepare $claim" 0 unprepare $claim; done
as_before

step "a device in use is refused, and the message names the user"
cards=("/sys/bus/pci/devices/$(dev gpu-a)/drm/card"*)
# shellcheck disable=SC2217 # it does not read the node, and has it open
sleep 1000 < "/dev/dri/${cards[0]##*/}" &
user=$!
expect "it runs" wait_for "[[ \$(< /proc/$user/comm) == sleep ]]" 60
expect_status "a process has the GPU's node open" 4 prepare whole "$(dev gpu-a)"
expect_match "the process" "$(dev gpu-a) is in use: process sleep \(pid $user\)" "$REPLY"
as_before
expect_status "a claim with another device beside it" 4 prepare both "$vendor" "$(dev gpu-a)"
expect_match "the process" "process sleep \(pid $user\)" "$REPLY"
as_before # the vGPU is undone
kill $user
wait $user || :
expect_status "prepare" 0 prepare whole "$(dev gpu-a)"
start_vm whole "vfio/$(group gpu-a)" "host=$(dev gpu-a)"
expect_status "unprepare" 4 unprepare whole
expect_match "the VM" "VM whole \(pid $vm\)" "$REPLY"
for name in gpu-a gpu-a-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
end_vm
expect_status "unprepare" 0 unprepare whole
as_before

step "other GPUs, types and users are refused"
expect_status "a GPU of the device plugin" 4 prepare other "$(dev gpu-b)"
expect_match "the reason" "$(dev gpu-b) is not for claims" "$REPLY"
expect_status "a GPU that the policy does not name" 4 prepare other "$(dev gpu-d)"
expect_match "the reason" "$(dev gpu-d) is not for claims" "$REPLY"
expect_status "a disk" 2 prepare other "$(dev disk)"
expect_match "the reason" "there is no GPU $(dev disk)" "$REPLY"
expect_status "a GPU that claims cannot have whole" 4 prepare other "$(dev l40s-vfio)"
expect_match "the reason" "no claim can have GPU $(dev l40s-vfio) as a whole" "$REPLY"
expect_status "a type that the policy does not allow" 4 prepare other "$(dev l40s-vfio)=$(type_of l40s-vfio L40S-24Q)"
expect_match "the reason" "allows no vGPU of type $(type_of l40s-vfio L40S-24Q)" "$REPLY"
request prepare other "$(dev gpu-a)" > /run/request
for number in 0 1000; do
  expect_status "user $number in the group" 4 \
    setpriv --reuid=$number --regid=64712 --clear-groups claim-request < /run/request
  expect_match "the reason" "user $number may not ask about claims" "$REPLY"
done
expect_status "a user outside the group" 1 setpriv --reuid=1000 --regid=1000 --clear-groups claim-request < /run/request
expect_match "the errno" "Permission denied" "$REPLY"
expect_status "no request" 1 "${dra[@]}" claim-request <<< "{}"
expect_match "the fault" "the request: version" "$REPLY"
as_before

step "hostd is killed while a driver hangs, and the repeated request goes on"
hung_at() { # ADDRESS: a record names it, and the process of the write, left in $hung, is in the kernel
  local file
  for file in /run/ferry/stuck-writes/*.json; do
    hung=${file##*/} hung=${hung%.json}
    if grep -qs "\"value\": \"$1\"" "$file" && grep -qs '^State:.D' "/proc/$hung/status"; then return 0; fi
  done
  return 1
}
dev stubborn > $faults/hang_remove
prepare hanging "$(dev stubborn)" > /run/hanging 2>&1 || exit $? & # its status is looked at below
client=$!
expect "the driver hangs" wait_for "hung_at $(dev stubborn)" 120
kill_hostd
status=0
wait $client || status=$?
expect_equal "the client has no answer" "1 claim-request: hostd has closed the connection without an answer" \
  "$status $(grep ^claim-request: /run/hanging)"
expect_equal "the record" "hanging intent" "$(recorded)"
start_again
if prepare hanging "$(dev stubborn)" > /run/hanging 2>&1; then fail "it is prepared although its driver hangs"; fi
evidence "while the driver hangs" "$(cat /run/hanging)"
expect_match "the GPU is named" "$(dev stubborn)" "$(< /run/hanging)"
expect_status "other GPUs are served" 0 prepare beside "$(dev t4)=$type"
expect_status "unprepare" 0 unprepare beside
echo > $faults/hang_remove
expect "the write returns" wait_for "! grep -qs '^State:.[^Z]' /proc/$hung/status" 60
expect_status "the repeated request" 0 prepare hanging "$(dev stubborn)"
expect_equal "driver" vfio-pci "$(driver stubborn)"
expect_equal "the record" "hanging done" "$(recorded)"
expect_status "unprepare" 0 unprepare hanging
as_before

step "hostd is killed at any moment, and the claim has one vGPU"
for delay in 0.2 1 2.5; do
  leave killed "$vendor" "$(dev t4)=$type"
  read -rt $delay <> <(:) || :
  kill_hostd
  evidence "after $delay s" "$(vgpus; cat $record)"
  start_again
  expect_status "the repeated request" 0 prepare killed "$vendor" "$(dev t4)=$type"
  expect_equal "vGPUs" 2 "$(vgpus | wc -l)"
  leave killed "$vendor" "$(dev t4)=$type"
  expect_status "unprepare" 0 unprepare killed
  as_before
done
for delay in 0.2 1.5; do
  expect_status "prepare" 0 prepare killed "$(dev gpu-a)"
  request unprepare killed | "${dra[@]}" claim-request --leave
  read -rt $delay <> <(:) || :
  kill_hostd
  start_again
  expect_status "unprepare" 0 unprepare killed
  as_before
done

step "claims outlive a restart of hostd"
for claim in "whole $(dev gpu-a)" "mediated $(dev t4)=$type" "first $vendor"; do
  # shellcheck disable=SC2086 # the claim's name and its device
  expect_status "prepare" 0 prepare $claim
  echo "$REPLY" >> /run/answers
done
identity > /run/prepared
kill $hostd
status=0
wait $hostd || status=$?
expect_equal "exit status" 0 "$status"
expect_status "without hostd" 1 unprepare whole
expect_match "the reason" "No such file or directory" "$REPLY"
expect_equal "all stays" "$(< /run/prepared)" "$(identity)"
start_again
settles ready claims
for claim in "whole $(dev gpu-a)" "mediated $(dev t4)=$type" "first $vendor"; do
  # shellcheck disable=SC2086 # the claim's name and its device
  expect_status "a repeated request" 0 prepare $claim
  echo "$REPLY" >> /run/answers-again
done
expect_equal "the same answers" "$(< /run/answers)" "$(< /run/answers-again)"
expect_equal "nothing is written" "$(< /run/prepared)" "$(identity)"
expect_equal "advertised" "$(dev gpu-b)" "$(advertised)"
for claim in whole mediated first; do expect_status "unprepare $claim" 0 unprepare $claim; done
as_before

step "a GPU goes back to the device plugin once its claim has ended"
expect_status "prepare" 0 prepare whole "$(dev gpu-a)"
want plugin
settles blocked plugin
expect_equal "allocation" dra "$(of gpu-a .allocation)"
expect_equal "the reason" "a ResourceClaim has it" "$(of gpu-a .reason)"
expect_equal "the GPUs for claims" "" "$(claimable)"
expect_equal "advertised" "$(dev gpu-b)" "$(advertised)"
expect_status "another claim" 4 prepare second "$(dev t4)=$type"
expect_match "the reason" "is not for claims" "$REPLY"
expect_status "the claim's own request" 0 prepare whole "$(dev gpu-a)"
expect_status "unprepare" 0 unprepare whole
settles ready plugin
expect_equal "allocation" device-plugin "$(of gpu-a .allocation)"
for name in gpu-a gpu-a-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
expect "both GPUs are advertised" wait_for "[[ \$(advertised) == '$(addresses gpu-a gpu-b)' ]]" 60
expect_equal "GPUs for claims" 0 "$(jq ".gpus | length" $claims/gpus.json)"

step "a GPU of the device plugin goes to claims once its pod has ended, and keeps its driver"
resource=$(jq -r ".resources[] | select(.devices[].id == \"$(dev gpu-a)\") | .name" /run/ferry/plugin/advertised.json)
kubelet-standin allocate --dir $plugins "$resource" 1 "$(dev gpu-a)" > /mnt/state/allocated.json
want claims
settles blocked claims
expect_equal "the user" pod "$(of gpu-a '.users[0].kind')"
expect_equal "allocation" device-plugin "$(of gpu-a .allocation)"
expect "the GPUs for claims" claimable_become t4 l40s-mdev l40s-vfio stubborn
expect_status "a claim" 4 prepare whole "$(dev gpu-a)"
expect_match "the reason" "$(dev gpu-a) is not for claims" "$REPLY"
kubelet-standin release --dir $plugins "$(dev gpu-a)" > /mnt/state/released.json
settles ready claims
expect "the GPUs for claims" claimable_become gpu-a t4 l40s-mdev l40s-vfio stubborn
expect "only the other GPU is advertised" wait_for "[[ \$(advertised) == '$(dev gpu-b)' ]]" 60
snapshot > /run/before
expect_status "prepare" 0 prepare whole "$(dev gpu-a)"
expect_equal "driver" vfio-pci "$(driver gpu-a)"
expect_status "unprepare" 0 unprepare whole
as_before
expect_equal "driver" vfio-pci "$(driver gpu-a)"
ok
