# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
spec=/mnt/tests/scenarios/container/hostd.json # tests/chart keeps it as the chart renders it
root=/run/image
logs=/mnt/state/logs
mkdir -p $logs /etc/containerd /run/dbus /etc/modprobe.d \
  /var/lib/{ferry,kubelet/pod-resources} /run/ferry # as the kubelet does
systemd-machine-id-setup > /dev/null 2>&1 || :

# As images/build does it.
mkdir -p $root/{usr/bin,usr/lib64,usr/lib,host,proc,sys,dev,run,tmp,etc}
ln -s usr/lib $root/lib
ln -s usr/lib64 $root/lib64
cp /mnt/bin/ferry $root/usr/bin/
later=(/lib/x86_64-linux-gnu/{libkmod.so.2,libsystemd.so.0})
{ ldd /mnt/bin/ferry "${later[@]}"; printf '%s\n' "${later[@]}"; } | grep -v ':$' |
  grep -oE '/lib[^ ]+' | sort -u | while read -r library; do install -D "$library" "$root$library"; done

printf 'version = 2\nroot = "/run/containerd-root"\n' > /etc/containerd/config.toml
printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\nDelegate=yes\nKillMode=process\nTimeoutStartSec=120\nExecStart=/usr/bin/containerd\nStandardError=append:%s/containerd\n' \
  $logs > /run/systemd/system/containerd.service
systemctl daemon-reload
systemctl start containerd

# What a runtime of pods gives besides.
usual=(CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE)
count=0
hostd() { # CHANGE WORD...: the container, its specification changed by jq, with more words for hostd
  local words flags one change=$1
  shift
  mapfile -t flags < <(jq -r "$change"' | . as $all |
    (.container.securityContext.capabilities.add[] | "--cap-add=CAP_\(.)"),
    (.container.volumeMounts[] | "--mount=type=bind,src=\($all.volumes[.name]),dst=\(.mountPath),options=rbind:" +
      (if .readOnly then "ro" else "rw" end))' $spec)
  mapfile -t words < <(jq -r "$change | .container | .command[], .args[]" $spec)
  for one in "${usual[@]}"; do flags+=("--cap-drop=CAP_$one"); done
  count=$((count + 1))
  ctr run --rm --rootfs --read-only --net-host --with-ns pid:/proc/1/ns/pid --seccomp "${flags[@]}" \
    $root "hostd-$count" "${words[@]}" "$@"
}
without_mount() { echo "del(.container.volumeMounts[] | select(.name == \"$1\"))"; }
without_capability() { echo "del(.container.securityContext.capabilities.add[] | select(. == \"$1\"))"; }
in_its_container='del(.container.args[] | select(. == "--own-scope"))'
cat > /run/policies.yaml << YAML
version: v2
policies:
  away: [{address: "$(dev lone)", mode: passthrough}]
  home: [{address: "$(dev lone)", mode: host}]
YAML
want() { # POLICY
  jq -n --arg policy "$1" --rawfile config /run/policies.yaml '{version: 1, policy: $policy, config: $config}' \
    > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/wanted.json
}
state() { jq -r "$1" /run/ferry/state.json 2> /dev/null; }
settles() { # PHASE POLICY
  wait_for "[[ \$(state '.phase + \" \" + (.wanted.policy // \"-\")') == '$1 $2' ]]" 90 ||
    fail "it does not become $1: $(cat /run/ferry/state.json; cat $logs/hostd)"
}
snapshot > /run/start

step "without a systemd to ask it binds, and does not take back"
want away
expect "no vfio-pci" test ! -e /sys/bus/pci/drivers/vfio-pci
expect_status "away" 0 hostd "$in_its_container" --once
expect_equal "driver" vfio-pci "$(driver lone)"
snapshot > /run/away
want home
expect_status "home" 1 hostd "$in_its_container" --once
expect_match "why" "open /dev/vfio/.*: Operation not permitted" "$REPLY"
expect_equal "drivers and overrides" "$(< /run/away)" "$(snapshot)"
evidence "in the container's control group" "$(grep -m1 'Operation not permitted' <<< "$REPLY")"

step "as the chart has it: both ways, with the module loaded"
expect_status "home" 0 hostd . --once
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"
modprobe -r vfio_pci
want away
hostd . > $logs/hostd 2>&1 &
running=$!
settles as_wanted away
expect "the module was loaded" test -e /sys/bus/pci/drivers/vfio-pci
expect_equal "driver" vfio-pci "$(driver lone)"
mapfile -t processes < <(pgrep -x ferry)
expect_equal "two processes" 2 "${#processes[@]}"
expect_match "the one that stays" "/hostd-[0-9]" "$(cat "/proc/${processes[0]}/cgroup")"
expect_match "the one that works" "ferry-hostd-${processes[1]}.scope" "$(cat "/proc/${processes[1]}/cgroup")"
for one in "${processes[@]}"; do
  expect_match "its capabilities" "CapEff:.0000010000090004" "$(grep CapEff "/proc/$one/status")"
  expect_match "its filter" "Seccomp:.2" "$(grep Seccomp: "/proc/$one/status")"
  expect_match "no more rights to be had" "NoNewPrivs:.1" "$(grep NoNewPrivs "/proc/$one/status")"
done
evidence "the one that works" "$(cat "/proc/${processes[1]}/cgroup")"
want home
settles as_wanted home
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"

step "the container's end is hostd's, and changes nothing"
want away
settles as_wanted away
snapshot > /run/away
kill "${processes[0]}"
wait $running || fail "it ends badly: $(cat $logs/hostd)"
expect "nobody is left" wait_for "! pgrep -x ferry" 30
expect_equal "drivers and overrides" "$(< /run/away)" "$(snapshot)"

step "each capability is needed"
for one in SYS_PTRACE DAC_READ_SEARCH CHECKPOINT_RESTORE; do
  want home
  # Those whom it has to look into: root's, another user's, one that maps a file shared (see privileges.sh).
  [[ -n ${mapping-} ]] || {
    setpriv --reuid=1000 --regid=1000 --clear-groups sleep 1000 &
    qemu-system-x86_64 -machine none -nodefaults -display none \
      -object memory-backend-file,id=shared,share=on,size=64K,mem-path=/dev/shm/shared &
    mapping=$!
    expect "a shared mapping" wait_for "grep -qs 'rw-s.*/dev/shm/shared' /proc/$mapping/maps" 120
  }
  expect_status "without $one" 4 hostd "$(without_capability $one)" --once
  expect_match "why" "could not be looked into: not permitted" "$REPLY"
  expect_equal "drivers and overrides" "$(< /run/away)" "$(snapshot)"
done
expect_status "with all" 0 hostd . --once
modprobe -r vfio_pci
want away
expect_status "without SYS_MODULE" 1 hostd "$(without_capability SYS_MODULE)" --once
expect_match "why" "load module vfio_pci: Operation not permitted" "$REPLY"
expect_equal "drivers and overrides" "$(< /run/start)" "$(snapshot)"

step "without a mount the way that needs it fails"
lacks() { # MOUNT STATUS REGEX: what hostd says without it; nothing is moved
  expect_status "without $1" "$2" hostd "$(without_mount "$1")" --once
  expect_match "without $1" "$3" "$REPLY"
  expect_equal "drivers and overrides without $1" "$(< /run/start)" "$(snapshot)"
  evidence "without $1" "$(tail -n 2 <<< "$REPLY")"
}
lacks sys 1 "open /sys/bus/pci/devices: No such file or directory"
lacks modules 1 "load module vfio_pci: No such file or directory"
lacks proc 1 "open /proc/.*: No such file or directory"
lacks wanted 0 "nothing_wanted"
lacks ferry 1 "/run/ferry"
expect_status "away" 0 hostd . --once
snapshot > /run/start # from here on
want home
lacks dev 1 "/dev/vfio/"
lacks systemd 1 "the container's device rules stay"
ok
