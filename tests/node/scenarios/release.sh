# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh

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
rm /etc/ferry/policy.yaml
expect_status "back" 0 ferry vfio unbind --device "$(dev gpu-a)"

step "nvidia-persistenced lets go of one of two GPUs, asked through a tool below another root directory"
echo "$(planned gpu-b vendor) $(planned gpu-b device)" > /sys/bus/pci/drivers/bochs-drm/new_id
expect_equal "driver of gpu-b" bochs-drm "$(driver gpu-b)"
second=$(card_of gpu-b)
unit nvidia-persistenced "sleep 100002 <$second & exec sleep 100000 <$card"
systemctl daemon-reload
systemctl start nvidia-persistenced
expect "it holds the GPU" wait_for "holds nvidia-persistenced" 60
mkdir -p /run/nvidia-persistenced
true > /run/nvidia-persistenced/socket
# In the daemon's place: what holds the second GPU ends.
cat > /usr/bin/nvidia-smi <<'TOOL'
#!/bin/sh
echo "$*" >> /run/asked
[ "$4" = 1 ] || kill "$(pgrep -f 'sleep 100002')"
TOOL
chmod +x /usr/bin/nvidia-smi
mount --rbind / /srv
before=$(pid_of nvidia-persistenced)
expect_status "bind" 0 ferry --host-root /srv vfio bind --device "$(dev gpu-b)" --explain
expect_match "the step" "switch persistence of $(dev gpu-b) off" "$REPLY"
expect_equal "driver" vfio-pci "$(driver gpu-b)"
expect_equal "the service runs on" "$before" "$(pid_of nvidia-persistenced)"
expect_status "again" 0 ferry --host-root /srv vfio bind --device "$(dev gpu-b)"
expect_status "back" 0 ferry --host-root /srv vfio restore
expect_match "the note" "persistence of $(dev gpu-b) was switched off by an earlier run" "$REPLY"
expect_equal "what was asked" "-i $(dev gpu-b) -pm 0,-i $(dev gpu-b) -pm 1" \
  "$(paste -sd, /run/asked)"
expect "nothing is owed" test ! -e /run/ferry/hostd/stopped-services.json
ok
