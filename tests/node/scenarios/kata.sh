# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
socket=/run/containerd/containerd.sock
main=/etc/containerd/config.toml
logs=/mnt/state/logs
mkdir -p $logs /etc/containerd

step "containerd is a service of systemd, and runs a container"
# The node's systemd as a manager of units beside our init (see release.sh); Ferry reads its units where the one that is
# PID 1 has them.
mkdir -p /run/systemd/system /run/systemd/user
unit() { # EXECSTARTPRE
  tee /run/systemd/system/containerd.service > /run/systemd/user/containerd.service << UNIT
[Service]
Type=notify
Slice=system.slice
KillMode=process
Delegate=yes
TimeoutStartSec=120
ExecStartPre=$1
ExecStart=/usr/bin/containerd
StandardError=append:$logs/containerd
UNIT
}
unit /bin/true
printf '# the site'\''s own\nversion = 2\nroot = "/run/containerd-root"\n' > $main
original=$(md5sum < $main)
XDG_RUNTIME_DIR=/run /lib/systemd/systemd --user --log-target=console &
expect "systemd listens" wait_for "test -S /run/systemd/private" 60
manage() { XDG_RUNTIME_DIR=/run systemctl --user "$@"; }
pid_of_containerd() { manage show -P MainPID containerd; }
manage start containerd
ctr -a $socket images import /mnt/kubernetes/image.tar > /dev/null
ctr -a $socket run --detach --net-host localhost/busybox:1 stays sleep 100000
shim=$(pgrep -f "containerd-shim-runc-v2.*stays")
alive() { [[ $(pgrep -f "containerd-shim-runc-v2.*stays") == "$shim" ]] && pgrep -f "sleep 100000" > /dev/null; }
expect "the container runs" wait_for alive 60

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

step "a runtime comes in, and containerd is restarted for it over D-Bus"
classes kata-a > /run/classes.yaml
before=$(pid_of_containerd)
expect_status "plan" 0 ferry kata plan -f /run/classes.yaml
expect_match "what would come" "restart containerd.service" "$REPLY"
expect_equal "nothing is written" "$original" "$(md5sum < $main)"
expect_status "install" 0 ferry kata install -f /run/classes.yaml
expect_match "it is proven" "was asked: it is as it shall be" "$REPLY"
expect_equal "containerd knows it" "kata-a=true" "$(known)"
after=$(pid_of_containerd)
expect "containerd is another process" test "$before" != "$after"
expect "the container runs on" alive
expect_status "verify" 0 ferry kata verify -f /run/classes.yaml
expect_status "again" 0 ferry kata install -f /run/classes.yaml
expect_equal "and nothing is restarted" "$after" "$(pid_of_containerd)"

step "containerd does not start with the new file: the old one is back, and it runs"
held=$(md5sum < $main)
unit "/bin/sh -c '! grep -q kata-b $main'"
manage daemon-reload
classes kata-a kata-b > /run/both.yaml
expect_status "install" 1 ferry kata install -f /run/both.yaml
expect_match "what became of it" "the files from before are back, and it runs with them" "$REPLY"
expect_equal "the file" "$held" "$(md5sum < $main)"
expect_equal "containerd knows what it knew" "kata-a=true" "$(known)"
expect "the container runs on" alive
expect "nothing waits for a proof" test ! -e /var/lib/ferry/kata/unproven.json

step "killed between the writing and the proof: the next run brings it about, or back"
unit "/bin/sh -c 'if grep -q kata-b $main; then kill -9 \$(pgrep -x ferry); fi'"
manage daemon-reload
ferry kata install -f /run/both.yaml || true
expect "something waits for a proof" test -e /var/lib/ferry/kata/unproven.json
unit /bin/true
manage daemon-reload
expect_status "install" 0 ferry kata install -f /run/both.yaml
expect_equal "containerd knows both" "kata-a=true kata-b=true" "$(known)"
expect "nothing waits for a proof" test ! -e /var/lib/ferry/kata/unproven.json
expect "the container runs on" alive

step "a containerd that no unit is known of"
rm -f {/run,/usr/lib,/lib}/systemd/system/containerd.service
expect_status "without a unit" 1 ferry kata install -f /run/classes.yaml
expect_match "what is missing" "has no systemd unit" "$REPLY"
expect_equal "containerd knows both" "kata-a=true kata-b=true" "$(known)"
expect_status "its files alone" 0 ferry kata install -f /run/classes.yaml --no-restart
expect_match "who reads them" "until its next start" "$REPLY"
unit /bin/true

step "all of it leaves"
expect_status "uninstall" 0 ferry kata uninstall
expect_equal "the file" "$original" "$(md5sum < $main)"
expect_equal "containerd knows none" "" "$(known)"
expect "the container runs on" alive
expect "no configuration stays" test ! -e /etc/ferry/kata/kata-a
ok
