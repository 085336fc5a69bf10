# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh

. /mnt/tests/scenarios/release/lib.sh

card_of() { # NAME: the node of its DRM card
  local cards
  cards=("/sys/bus/pci/devices/$(dev "$1")/drm/card"*)
  echo "/dev/dri/${cards[0]##*/}"
}
card=$(card_of gpu-a)
unit() { # NAME COMMAND: a unit that runs it in a shell
  printf '[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sh -c "%s"\n' "$2" > "/run/systemd/system/$1.service"
}
unit nvidia-persistenced "exec sleep 100000 <$card"
unit other-holder "exec sleep 100001 <$card"
systemctl daemon-reload
pid_of() { systemctl show -P MainPID "$1"; }
holds() { [[ $(readlink "/proc/$(pid_of "$1")/fd/0") == "$card" ]]; }

step "a service that may be stopped"
systemctl start nvidia-persistenced
expect "it holds the GPU" wait_for "holds nvidia-persistenced" 60
before=$(pid_of nvidia-persistenced)
expect_status "off the list" 4 ferry vfio bind --device "$(dev gpu-a)" --release none
expect_match "who holds it" "of nvidia-persistenced.service holds $card" "$REPLY"
expect_status "on it" 0 ferry vfio bind --device "$(dev gpu-a)"
expect_equal "driver" vfio-pci "$(driver gpu-a)"
expect_match "it was started again" "nvidia-persistenced.service was stopped and is started again" "$REPLY"
expect "the one that held the GPU is gone" test ! -e "/proc/$before"
expect "nothing is owed" test ! -e /run/ferry/hostd/stopped-services.json

step "a service that a policy names"
expect_status "back" 0 ferry vfio unbind --device "$(dev gpu-a)"
systemctl stop nvidia-persistenced
systemctl start other-holder
expect "it holds the GPU" wait_for "holds other-holder" 60
policy() { printf 'version: v2\n%s\npolicies:\n  a: [{devices: [0], mode: passthrough}]\n' "$1" > /run/policy.yaml; }
policy "release: []"
expect_status "off the list" 4 ferry apply -f /run/policy.yaml
policy "release: [other-holder]"
expect_status "on it" 0 ferry apply -f /run/policy.yaml
expect_equal "driver" vfio-pci "$(driver gpu-a)"
expect_status "back" 0 ferry vfio unbind --device "$(dev gpu-a)"
systemctl stop other-holder

step "the unit of a host without Kubernetes"
ln -s /mnt/bin/ferry /usr/bin/ferry
cp /mnt/configs/systemd/ferry-apply.service /run/systemd/system/
systemctl daemon-reload
expect_status "without a policy" 0 systemctl start ferry-apply
expect_equal "driver" "$(planned gpu-a driver)" "$(driver gpu-a)"
mkdir -p /etc/ferry
policy "release: []"
cp /run/policy.yaml /etc/ferry/policy.yaml
systemctl start other-holder
expect "it holds the GPU" wait_for "holds other-holder" 60
expect_status "while a service has the GPU" 1 systemctl start ferry-apply
expect_equal "ferry's own status" 4 "$(systemctl show -P ExecMainStatus ferry-apply)"
systemctl stop other-holder
expect_status "with one" 0 systemctl start ferry-apply
expect_equal "driver" vfio-pci "$(driver gpu-a)"
expect_equal "it is done" "active exited" "$(systemctl show -P ActiveState ferry-apply) $(systemctl show -P SubState ferry-apply)"
expect_status "stopped" 0 systemctl stop ferry-apply
expect_equal "what is bound stays bound" vfio-pci "$(driver gpu-a)"
expect_status "back" 0 ferry vfio unbind --device "$(dev gpu-a)"

step "that unit loads vfio-pci and binds within its bounds, and can do nothing else to the host"
is_bounded ferry-apply
modprobe -r vfio_pci
mkdir -p /run/systemd/system/ferry-apply.service.d
# More commands in the same bounds.
printf '[Service]\nExecStartPost=-/bin/sh -c "%s"\n' \
  "mount -t tmpfs tmpfs /opt 2> /run/ferry/mounting" "unshare --mount true 2> /run/ferry/unsharing" "touch /etc/written 2> /run/ferry/writing" \
  "touch /var/lib/written" "touch /run/written" > /run/systemd/system/ferry-apply.service.d/more.conf
systemctl daemon-reload
expect_status "start" 0 systemctl start ferry-apply
expect_equal "driver" vfio-pci "$(driver gpu-a)"
expect_match "a mount" "[Pp]ermission denied|not permitted" "$(< /run/ferry/mounting)"
expect_match "a mount namespace" "not permitted" "$(< /run/ferry/unsharing)"
expect_match "a file elsewhere" "Read-only file system" "$(< /run/ferry/writing)"
for file in /etc/written /var/lib/written /run/written; do expect "no $file" test ! -e $file; done
systemctl stop ferry-apply
rm -r /run/systemd/system/ferry-apply.service.d /run/ferry/{mounting,unsharing,writing} /etc/ferry/policy.yaml
expect_status "back" 0 ferry vfio unbind --device "$(dev gpu-a)"

step "hostd's unit binds a GPU within its bounds, and can write nothing else of the host"
cp /mnt/configs/systemd/ferry-hostd.service /run/systemd/system/
systemctl daemon-reload
is_bounded ferry-hostd
modprobe -r vfio_pci
rm -rf /var/lib/ferry /var/lib/ferry-hostd /run/ferry
expect_status "start, with none of its folders" 0 systemctl start ferry-hostd
systemctl start other-holder
expect "a service holds the GPU" wait_for "holds other-holder" 60
want() { # MODE [WRITER...]
  jq -n --arg mode "$1" '{version: 2, policy: "a", config: "version: v2\nrelease: [other-holder]\npolicies:\n  a: [{devices: [0], mode: \($mode)}]\n"}' \
    > /run/desired.json
  "${@:2}" sh -c 'cat /run/desired.json > /var/lib/ferry/.wanted && mv /var/lib/ferry/.wanted /var/lib/ferry/desired.json'
}
settled() { [[ $(jq -r .phase /run/ferry/status.json) == ready && $(driver gpu-a) == "$1" ]]; } 2> /dev/null
want passthrough
expect "away: the module is loaded, the service stopped" wait_for "settled vfio-pci" 120
hostd=$(pid_of ferry-hostd)
is_confined "$hostd"
mkdir -p /opt /home
cannot_write "$hostd" etc usr/bin opt home tmp run var/lib root
for folder in run/ferry var/lib/ferry var/lib/ferry-hostd; do
  expect "a write to /$folder" touch "/proc/$hostd/root/$folder/written"
done
systemctl stop other-holder
want host
expect "back" wait_for "settled $(planned gpu-a driver)" 120
expect_status "stop" 0 systemctl stop ferry-hostd
for folder in run/ferry var/lib/ferry var/lib/ferry-hostd; do
  expect "/$folder stays" test -e "/$folder/written"
  rm "/$folder/written"
done

step "with the drop-in of the page for the gpu-operator the agent's folders are the agent's, over every start of the unit"
rm /var/lib/ferry/desired.json
echo "gpu-ferry-agent:x:64711:" >> /etc/group # as groupadd does
mkdir -p /run/systemd/system/ferry-hostd.service.d
cat /mnt/tests/scenarios/release/{agent,operator}.conf > /run/systemd/system/ferry-hostd.service.d/agent.conf
systemctl daemon-reload
agent=(setpriv --reuid=64711 --regid=64711 --clear-groups)
folders() { stat -c '%U %g %a' /var/lib/ferry /run/nvidia/validations | paste -sd,; }
for start in first second; do
  expect_status "the $start start" 0 systemctl restart ferry-hostd
  expect "the folders" wait_for '[[ $(folders) == "root 64711 2775,root 0 755" ]]' 60
  # Files of the agent's own, which no start may give to root.
  expect "the agent writes there" "${agent[@]}" touch /var/lib/ferry/agents
  expect_status "and not where root runs scripts" 1 "${agent[@]}" touch /run/nvidia/validations/driver-ready
  want passthrough "${agent[@]}"
  expect "away, as the agent asks" wait_for "settled vfio-pci" 120
  expect "the operator's pods learn it" wait_for "test -e /run/nvidia/validations/vfio-pci-ready" 60
  want host "${agent[@]}"
  expect "back" wait_for "settled $(planned gpu-a driver)" 120
  expect_equal "the agent's files" "64711:64711" \
    "$(stat -c %u:%g /var/lib/ferry/agents /var/lib/ferry/desired.json | sort -u)"
done
is_confined "$(pid_of ferry-hostd)"
cannot_write "$(pid_of ferry-hostd)" etc run/nvidia
expect_status "stop" 0 systemctl stop ferry-hostd
rm -r /run/systemd/system/ferry-hostd.service.d /var/lib/ferry/desired.json
systemctl daemon-reload

step "nvidia-persistenced closes one of two GPUs on request"
echo "$(planned gpu-b vendor) $(planned gpu-b device)" > /sys/bus/pci/drivers/bochs-drm/new_id
expect_equal "driver of gpu-b" bochs-drm "$(driver gpu-b)"
second=$(card_of gpu-b)
orders=/run/nvidia-persistenced/orders
mkdir -p /run/nvidia-persistenced
cp /mnt/bin/persistenced-standin /usr/bin/nvidia-persistenced
unit nvidia-persistenced "exec nvidia-persistenced /run/nvidia-persistenced/socket $orders $(dev gpu-a)=$card $(dev gpu-b)=$second"
systemctl daemon-reload
systemctl start nvidia-persistenced
before=$(pid_of nvidia-persistenced)
has_open() { [[ -n $(find "/proc/$before/fd" -lname "$1") ]]; }
expect "it has both open" wait_for "has_open $card && has_open $second && test -S /run/nvidia-persistenced/socket" 60
expect_status "bind" 0 ferry vfio bind --device "$(dev gpu-b)" --explain
expect_match "the step" "switch persistence of $(dev gpu-b) off" "$REPLY"
expect_equal "driver" vfio-pci "$(driver gpu-b)"
expect "it has the other open" has_open "$card"
expect_equal "the service runs on" "$before" "$(pid_of nvidia-persistenced)"
expect_status "again" 0 ferry vfio bind --device "$(dev gpu-b)"
expect_status "back" 0 ferry vfio restore
expect_match "the note" "persistence of $(dev gpu-b) was switched off by an earlier run" "$REPLY"
expect_equal "its orders" "$(dev gpu-b) off,$(dev gpu-b) on" "$(paste -sd, $orders)"
expect "it has both open again" has_open "$(card_of gpu-b)"
expect "nothing is owed" test ! -e /run/ferry/hostd/stopped-services.json
ok
