# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
. /mnt/tests/scenarios/release/lib.sh
socket=/run/containerd/containerd.sock
main=/etc/containerd/config.toml
manifests=/run/manifests
PATH=/mnt/kubernetes:$PATH # its containerd, and not the node's
logs=/mnt/state/logs
mkdir -p $logs /etc/containerd

step "containerd is a service of systemd, and runs a pod"
expect_equal "the first process" systemd "$(cat /proc/1/comm)"
unit() { # EXECSTARTPRE [KILLMODE]
  cat > /run/systemd/system/containerd.service << UNIT
[Unit]
DefaultDependencies=no
[Service]
Type=notify
KillMode=${2-process}
Delegate=yes
TimeoutStartSec=120
ExecStartPre=$1
Environment=PATH=$PATH
ExecStart=/mnt/kubernetes/containerd
StandardError=append:$logs/containerd
UNIT
}
unit /bin/true
cat > $main << CONF
# the site's own
version = 2
root = "/run/containerd-root"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/busybox:1"
CONF
original=$(md5sum < $main)
pid_of_containerd() { systemctl show -P MainPID containerd; }
systemctl daemon-reload
systemctl start containerd
ctr -a $socket -n k8s.io images import /mnt/kubernetes/image.tar > /dev/null

mkdir -p /var/lib/kubelet $manifests
mount -t tmpfs tmpfs /var/lib/kubelet
cat > /run/kubelet.yaml << CONF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
readOnlyPort: 10255
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$socket
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
resolvConf: ""
staticPodPath: $manifests
fileCheckFrequency: 1s
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, imagefs.available: 0%}
CONF
kubelet --config=/run/kubelet.yaml --hostname-override=node > $logs/kubelet 2>&1 &
pod() { # NAME SECONDS
  cat > "/run/$1.yaml" << POD
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default}
spec:
  hostNetwork: true
  containers:
  - {name: $1, image: "localhost/busybox:1", imagePullPolicy: Never, command: [sleep, "$2"]}
POD
  mv "/run/$1.yaml" $manifests
}
runs() { [[ $(pgrep -fc "^sleep $1") == 1 ]]; } # SECONDS
pod stays 100000
wait_for "runs 100000" 180 || fail "the pod does not run: $(tail -n 20 $logs/kubelet)"
processes() { pgrep -f "containerd-shim-runc-v2 -namespace k8s.io|^sleep 100000" | paste -sd' '; }
its=$(processes)
alive() { [[ $(processes) == "$its" ]]; }
evidence "its processes" "$its"

mkdir -p /opt/kata/bin /srv/gpu
install -m 755 /bin/true /opt/kata/bin/containerd-shim-kata-v2
touch /srv/gpu/vmlinuz /srv/gpu/image
printf '[hypervisor.qemu]\npath = "/usr/bin/qemu-system-x86_64"\nkernel = "/x/vmlinuz"\nimage = "/x/image"\nmachine_type = "q35"\n' \
  > /srv/gpu/configuration.toml
classes() { # NAME...
  printf 'version: v2\nartifactsDir: /run/artifacts\nloadModules: false\nruntimeClasses:\n'
  printf -- '- name: %s\n  artifacts: {url: "file:///srv/gpu"}\n' "$@"
}
known() { ferry -o json kata status | jq -r '.handlers[] | "\(.name)=\(.known)"' | paste -sd' '; }

step "a folder of the host that another user can write is refused"
classes kata-a > /run/classes.yaml
chmod 0666 /srv/gpu/configuration.toml
expect_status "plan" 4 ferry kata plan -f /run/classes.yaml
expect_match "the reason" "/srv/gpu/configuration.toml can be written by others" "$REPLY"
expect_match "what to do" "chmod -R go-w /srv/gpu" "$REPLY"
chmod 0644 /srv/gpu/configuration.toml

step "a runtime comes in, and containerd is restarted for it over D-Bus"
before=$(pid_of_containerd)
expect_status "plan" 0 ferry kata plan -f /run/classes.yaml
expect_match "what would come" "restart containerd.service" "$REPLY"
expect_equal "nothing is written" "$original" "$(md5sum < $main)"
expect_status "install" 0 ferry kata install -f /run/classes.yaml
expect_match "it is proven" "has read its files; its handlers match the class file" "$REPLY"
expect_equal "containerd knows it" "kata-a=true" "$(known)"
after=$(pid_of_containerd)
expect "containerd is another process" test "$before" != "$after"
expect "the pod runs on" alive
expect_status "verify" 0 ferry kata verify -f /run/classes.yaml
expect_status "again" 0 ferry kata install -f /run/classes.yaml
expect_equal "and nothing is restarted" "$after" "$(pid_of_containerd)"

step "hostd's unit installs and removes a runtime within its bounds"
ln -sf /mnt/bin/ferry /usr/bin/ferry
cp /mnt/configs/systemd/ferry-hostd.service /run/systemd/system/
mkdir -p /run/systemd/system/ferry-hostd.service.d
cp /mnt/tests/scenarios/release/kata.conf /run/systemd/system/ferry-hostd.service.d/
systemctl daemon-reload
is_bounded ferry-hostd
want_classes() { # GENERATION UNLABELLED NAME...
  classes "${@:3}" | sed 's,^artifactsDir:.*,artifactsDir: /opt/ferry/kata,' > /run/wanted.yaml
  jq -n --rawfile config /run/wanted.yaml --argjson generation "$1" --argjson unlabelled "$2" \
    '{version: 2, generation: $generation, config: $config, classes: $ARGS.positional, permitted: true, unlabelled: $unlabelled}' \
    --args "${@:3}" > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/kata-classes.json
}
said() { jq -r "$1" /run/ferry/kata.json 2> /dev/null; }
# A refused installation makes no link, and hostd makes those that are missing.
mkdir -p /opt/ferry/kata
ln -s /srv/gpu /opt/ferry/kata/kata-a
classes kata-a kata-d | sed 's,^artifactsDir:.*,artifactsDir: /opt/ferry/kata,' > /run/fetched.yaml
unit /bin/true control-group
systemctl daemon-reload
expect_status "an installation that would end the pod" 4 ferry kata install -f /run/fetched.yaml
unit /bin/true
systemctl daemon-reload
expect_status "start" 0 systemctl start ferry-hostd
before=$(pid_of_containerd)
want_classes 1 '[]' kata-a kata-d
installed() { [[ $(said .generation) == 1 && $(said '.handlers[].name' | sort | paste -sd' ') == "kata-a kata-d" ]]; }
wait_for installed 180 || fail "it is not installed: $(cat /run/ferry/kata.json; journalctl -u ferry-hostd | tail -n 30)"
expect_equal "containerd knows both" "kata-a=true kata-d=true" "$(known)"
expect_equal "hostd has made the link" /srv/gpu "$(readlink /opt/ferry/kata/kata-d)"
expect "containerd is another process" test "$before" != "$(pid_of_containerd)"
expect "the pod runs on" alive
is_confined "$(systemctl show -P MainPID ferry-hostd)"
want_classes 2 '["kata-d"]' kata-a
removed() { [[ $(said .generation) == 2 && $(known) == "kata-a=true" && $(said .applying) != true ]]; }
wait_for removed 180 || fail "it is not removed: $(cat /run/ferry/kata.json; journalctl -u ferry-hostd | tail -n 30)"
expect "the pod runs on" alive
expect_status "stop" 0 systemctl stop ferry-hostd
rm /var/lib/ferry/kata-classes.json
after=$(pid_of_containerd)

step "a restart that would end the pod is refused, and so is one of a unit that systemd has not read"
classes kata-a kata-b > /run/both.yaml
held=$(md5sum < $main)
unit /bin/true control-group
expect_status "a unit that was changed since" 4 ferry kata install -f /run/both.yaml
expect_match "why" "containerd.service was changed, and systemd has not read it since" "$REPLY"
systemctl daemon-reload
expect_status "the plan" 4 ferry kata plan -f /run/both.yaml
expect_match "why" "would end the pods that run: containerd.service has KillMode=control-group" "$REPLY"
expect_status "the installation" 4 ferry kata install -f /run/both.yaml
expect_match "why" "would end the pods that run: containerd.service has KillMode=control-group" "$REPLY"
expect_equal "the file" "$held" "$(md5sum < $main)"
expect_equal "containerd is the same process" "$after" "$(pid_of_containerd)"
expect_equal "and knows what it knew" "kata-a=true" "$(known)"
expect "nothing of the class is there" test ! -e /etc/ferry/kata/kata-b
expect "the pod runs on" alive
unit /bin/true
systemctl daemon-reload

step "the administrator's own command restarts containerd"
{
  classes kata-a kata-b
  echo 'restart: {command: [/usr/bin/systemctl, restart, containerd]}'
} > /run/command.yaml
expect_status "install" 0 ferry kata install -f /run/command.yaml
expect_match "what was run" "run /usr/bin/systemctl restart containerd" "$REPLY"
expect_match "it is proven" "has read its files; its handlers match the class file" "$REPLY"
expect_equal "containerd knows both" "kata-a=true kata-b=true" "$(known)"
expect "containerd is another process" test "$after" != "$(pid_of_containerd)"
expect "the pod runs on" alive
expect_status "one goes again" 0 ferry kata install -f /run/classes.yaml
expect_equal "containerd knows the other" "kata-a=true" "$(known)"

step "systemd reloads a unit over D-Bus, as CRI-O's"
# CRI-O's unit alone is played. Who answers in its place is the containerd that knows the runtime already.
cat > /run/systemd/system/crio.service << UNIT
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecReload=/bin/sh -c 'echo reloaded > /run/crio-reloaded'
UNIT
systemctl daemon-reload
systemctl start crio
{
  classes kata-a
  echo "runtime: {name: cri-o, socket: $socket}"
} > /run/crio.yaml
expect_status "install" 0 ferry kata install -f /run/crio.yaml
expect_match "what was done" "reload crio.service" "$REPLY"
expect_match "it is proven" "has read its files; its handlers match the class file" "$REPLY"
expect_equal "systemd has done it" reloaded "$(cat /run/crio-reloaded)"
expect "CRI-O's file is there" test -e /etc/crio/crio.conf.d/60-ferry-kata.conf
systemctl stop crio
rm -r /run/systemd/system/crio.service /etc/crio
systemctl daemon-reload

step "containerd does not start with the new file: the old one is back, and it runs"
held=$(md5sum < $main)
unit "/bin/sh -c '! grep -q kata-b $main'"
systemctl daemon-reload
expect_status "install" 1 ferry kata install -f /run/both.yaml
expect_match "what became of it" "the files from before are back, and it runs with them" "$REPLY"
expect_equal "the file" "$held" "$(md5sum < $main)"
expect_equal "containerd knows what it knew" "kata-a=true" "$(known)"
expect "the pod runs on" alive
expect "nothing waits for a proof" test ! -e /var/lib/ferry-hostd/kata/unproven.json

step "killed between the writing and the proof: the next run brings it about, or back"
unit "/bin/sh -c 'if grep -q kata-b $main; then kill -9 \$(pgrep -x ferry); fi'"
systemctl daemon-reload
ferry kata install -f /run/both.yaml || true
expect "something waits for a proof" test -e /var/lib/ferry-hostd/kata/unproven.json
unit /bin/true
systemctl daemon-reload
expect_status "install" 0 ferry kata install -f /run/both.yaml
expect_equal "containerd knows both" "kata-a=true kata-b=true" "$(known)"
expect "nothing waits for a proof" test ! -e /var/lib/ferry-hostd/kata/unproven.json
expect "the pod runs on" alive

step "a containerd that no unit is known of"
rm -f {/run,/usr/lib,/lib}/systemd/system/containerd.service
systemctl daemon-reload
expect_status "without a unit" 1 ferry kata install -f /run/classes.yaml
expect_match "what is missing" "has no systemd unit" "$REPLY"
expect_equal "containerd knows both" "kata-a=true kata-b=true" "$(known)"
expect_status "its files alone" 0 ferry kata install -f /run/classes.yaml --no-restart
expect_match "who reads them" "until its next start" "$REPLY"
unit /bin/true
systemctl daemon-reload

step "containerd's file would leave the node without CRI after a restart"
held=$(cat $main)
before=$(pid_of_containerd)
cat >> $main << CONF
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
  endpoint = ["https://mirror.example"]
CONF
edited=$(md5sum < $main)
classes kata-a kata-c > /run/more.yaml
expect_status "the plan" 4 ferry kata plan -f /run/more.yaml
expect_status "install" 4 ferry kata install -f /run/more.yaml
expect_match "where, and why" "CRI does not load: $main:[0-9]+: registry.mirrors and registry.config_path are both given" "$REPLY"
expect_status "uninstall" 4 ferry kata uninstall
expect_equal "the file" "$edited" "$(md5sum < $main)"
expect "nothing of the class is there" test ! -e /etc/ferry/kata/kata-c
expect "no trial stays" test ! -e /var/lib/ferry-hostd/kata/trial
expect_equal "containerd is the same process" "$before" "$(pid_of_containerd)"
expect_equal "and knows what it knew" "kata-a=true" "$(known)"
printf '%s\n' "$held" > $main

step "all of it leaves"
expect_status "uninstall" 0 ferry kata uninstall
expect_equal "the file" "$original" "$(md5sum < $main)"
expect_equal "containerd knows none" "" "$(known)"
expect "the pod runs on" alive
expect "no configuration stays" test ! -e /etc/ferry/kata/kata-a
# One that comes now shows that the kubelet has looked at what runs since the last restart of containerd; neither of the
# two has begun the first one anew.
restarts() {
  local connection
  exec {connection}<> /dev/tcp/127.0.0.1/10255
  printf 'GET /pods HTTP/1.0\r\n\r\n' >&"$connection"
  sed '1,/^\r$/d' <&"$connection" | jq -r '.items[].status.containerStatuses[] | "\(.name) \(.restartCount) \(.state | keys[0])"'
  exec {connection}>&-
}
pod comes 200000
expect "another pod runs" wait_for "runs 200000" 180
both() { [[ $(restarts | sort | paste -sd,) == "comes 0 running,stays 0 running" ]]; }
expect "both, to the kubelet" wait_for both 60
expect "the first one is the same" runs 100000
expect "by its process" test "$(pgrep -f "^sleep 100000")" == "${its##* }"
ok
