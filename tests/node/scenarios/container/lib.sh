# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
# The containers of the chart's pods, by containerd and runc, and an API server for the agent.
pods=/mnt/tests/scenarios/container/pod.json # tests/chart keeps it as the chart renders it
spec=$pods
image=/run/image
token=/run/token
# shellcheck source=../api-server/lib.sh
. /mnt/tests/scenarios/api-server/lib.sh

mapfile -t folders < <(jq -r '.volumes | del(.["machine-id"])[]' $spec)
mkdir -p $logs $token /etc/containerd "${folders[@]}" # as the kubelet does

# As images/build does it.
mkdir -p $image/{usr/bin,usr/lib64,usr/lib,host,proc,sys,dev,run,tmp,etc,var/run}
ln -s usr/lib $image/lib
ln -s usr/lib64 $image/lib64
cp /mnt/bin/ferry{,-agent} $image/usr/bin/
later=(/lib/x86_64-linux-gnu/{libkmod.so.2,libsystemd.so.0,libtirpc.so.3})
{ ldd /mnt/bin/ferry{,-agent} "${later[@]}"; printf '%s\n' "${later[@]}"; } | grep -v ':$' |
  grep -oE '/lib[^ ]+' | sort -u | while read -r library; do install -D "$library" "$image$library"; done

printf 'version = 2\nroot = "/run/containerd-root"\n' > /etc/containerd/config.toml
if [[ -d /run/systemd/system ]]; then
  printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\nDelegate=yes\nKillMode=process\nTimeoutStartSec=120\nExecStart=/usr/bin/containerd\nStandardError=append:%s/containerd\n' \
    $logs > /run/systemd/system/containerd.service
  systemctl daemon-reload
  systemctl start containerd
else
  containerd 2> $logs/containerd &
  wait_for "ctr version > /dev/null 2>&1" 120 || fail "containerd does not answer: $(< $logs/containerd)"
fi

# From here on the containers are as the chart's values of that name change them. tests/chart holds the result against the chart.
choose_spec() { # NAME
  spec=/run/$1.json
  jq -f "${pods%/*}/$1.jq" $pods > "$spec"
}
# What a runtime of pods gives besides.
usual=(CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE)
# Nothing makes networks of pods here: the agent has the node's, and the plugin has one without a way out. Runs in a subshell,
# which it ends: the container's status is for the one who waits for it, and fails no step by itself.
container() { # NAME CHANGE WORD...: one of the pods', its specification changed by jq, with more words for its program
  local name=$1 words flags one
  local changed=".volumes as \$volumes | .containers[] | select(.name == \"$name\") | $2"
  shift 2
  mapfile -t flags < <(jq -r --arg token $token "$changed"' |
    {"spec.nodeName": "node", "metadata.namespace": "ferry", "metadata.name": "ferry"} as $fields |
    (.securityContext.capabilities.add[]? | "--cap-add=CAP_\(.)"),
    (if .securityContext.privileged then "--privileged" else "--seccomp" end),
    (.securityContext | "--user=\(.runAsUser)" + (if .runAsGroup then ":\(.runAsGroup)" else "" end)),
    (if .hostPID then "--with-ns=pid:/proc/1/ns/pid" else empty end),
    (if .hostNetwork or .name == "agent" then "--net-host" else empty end),
    (.env[]? | "--env=\(.name)=\($fields[.valueFrom.fieldRef.fieldPath])"),
    (.volumeMounts[] | "--mount=type=bind,src=\($volumes[.name] // $token),dst=\(.mountPath),options=rbind:" +
      (if .recursiveReadOnly then "rro" elif .readOnly then "ro" else "rw" end) + (if .mountPropagation == "HostToContainer" then ":rslave" else ":rprivate" end))' $spec)
  mapfile -t words < <(jq -r "$changed | .command[], .args[]" $spec)
  for one in "${usual[@]}"; do
    [[ " ${flags[*]} " == *" --cap-add=CAP_$one "* || " ${flags[*]} " == *" --privileged "* ]] || flags+=("--cap-drop=CAP_$one")
  done
  # Its own root, in which runc makes places for mounts: what is not mounted is not there.
  rm -rf "$image-$name"
  cp -al $image "$image-$name"
  # Where ctr looks for the supplementary groups of a user.
  echo "root:x:0:0:root:/:/none" > "$image-$name/etc/passwd"
  jq -r "$changed"' | .securityContext.supplementalGroups[] | "group\(.):x:\(.):root"' $spec > "$image-$name/etc/group"
  ctr run --rm --rootfs --read-only "${flags[@]}" \
    --env=KUBERNETES_SERVICE_HOST=127.0.0.1 --env=KUBERNETES_SERVICE_PORT=6443 \
    "$image-$name" "$name" "${words[@]}" "$@" || exit $?
}
root_of() { # NAME: the root of the running container
  local root
  root=/proc/$(ctr tasks ls | awk -v name="$1" '$1 == name {print $2}')/root
  [[ -d $root ]] || fail "the container $1 does not run"
  echo "$root"
}
# Prints the paths below a container's read-only mounts that take a write: a file is made in each folder, and each file that
# its mode lets root write is opened for writing. By /proc/PID/root the container's own mounts count.
writable_below_read_only() { # NAME
  local mine=".containers[] | select(.name == \"$1\") | .volumeMounts[]" read_only writable root path others=()
  root=$(root_of "$1")
  mapfile -t read_only < <(jq -r "$mine | select(.readOnly and .mountPropagation == null) | .mountPath" $spec)
  mapfile -t writable < <(jq -r "$mine | select(.readOnly | not) | .mountPath" $spec)
  for path in "${writable[@]}"; do others+=(-path "$root$path" -prune -o); done
  # What is gone before find reads it makes find fail.
  { find "${read_only[@]/#/$root}" "${others[@]}" \( -type d -o -type f -perm /222 \) -print0 || :; } |
    perl -MFcntl -0ne 'chomp;
      if (-d) { if (sysopen(my $file, "$_/written", O_WRONLY|O_CREAT)) { print "$_\n"; unlink "$_/written" } }
      elsif (sysopen(my $file, $_, O_WRONLY|O_APPEND)) { print "$_\n" }' | sed "s|^$root||"
}
# The same by plain read-only mounts, which Kubernetes before 1.31 makes.
not_recursive='del(.volumeMounts[].recursiveReadOnly)'
without() { printf 'del(.volumeMounts[] | select(.name == "%s")) | ' "$@" && echo .; } # MOUNT...
hostd() { container hostd "$@"; }
without_capability() { echo "del(.securityContext.capabilities.add[] | select(. == \"$1\"))"; }
want() { # POLICY of /run/policies.yaml: asked for as the agent does it
  jq -n --arg policy "$1" --rawfile config /run/policies.yaml '{version: 2, policy: $policy, config: $config}' \
    > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/desired.json
}
state() { jq -r "$1" /run/ferry/status.json 2> /dev/null; }
settles() { # PHASE POLICY
  wait_for "[[ \$(state '.phase + \" \" + (.desired.policy // \"-\")') == '$1 $2' ]]" 240 ||
    fail "it does not become $1: $(cat /run/ferry/status.json; cat $logs/hostd)"
}

declare -A running
begin() { # NAME [CHANGE]: the container runs on, and what it says goes to a file
  container "$1" "${2-.}" > "$logs/$1" 2>&1 &
  running[$1]=$!
}
end() { # NAME [STATUS]: told to, as the kubelet does it
  local found=0
  ctr tasks kill --signal SIGTERM "$1"
  wait "${running[$1]}" || found=$?
  expect_equal "the end of $1: $(< "$logs/$1")" "${2-0}" "$found"
}
