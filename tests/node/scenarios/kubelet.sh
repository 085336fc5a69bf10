# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
PATH=/mnt/kubernetes:$PATH # its containerd, and not the node's
runtime=/run/containerd/containerd.sock
manifests=/run/manifests
logs=/mnt/state/logs
mkdir -p $manifests $logs /run/let-go

step "both GPUs are bound, each with its group"
expect_status "bind" 0 ferry vfio bind --all
for name in gpu gpu-audio other; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done

step "containerd and the kubelet run"
echo "+cpu +cpuset +io +memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
cat > /run/containerd.toml << CONF
version = 3
root = "/run/containerd-root"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/busybox:1"
CONF
containerd --config /run/containerd.toml > $logs/containerd 2>&1 &
expect "containerd answers" wait_for "ctr -a $runtime version > /dev/null 2>&1" 120
ctr -a $runtime -n k8s.io images import /mnt/kubernetes/image.tar
evidence containerd "$(containerd --version)"
evidence kubelet "$(kubelet --version)"

# On mounts of their own, for which the kubelet can count what is free.
mkdir -p /var/lib/kubelet
mount -t tmpfs tmpfs /var/lib/kubelet
cat > /run/kubelet.yaml << CONF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
readOnlyPort: 10255
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$runtime
failSwapOn: false
resolvConf: ""
staticPodPath: $manifests
fileCheckFrequency: 1s
syncFrequency: 10s
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, imagefs.available: 0%}
CONF
kubelet --config=/run/kubelet.yaml --hostname-override=node > $logs/kubelet 2>&1 &
expect "the kubelet listens" wait_for "test -S /var/lib/kubelet/device-plugins/kubelet.sock" 120

step "all three functions are advertised"
ferry plugin --companions 2> $logs/plugin &
advertised() { # JQ-EXPRESSION: of the file that lists the advertised devices
  jq -r "$1" /run/ferry/plugin/advertised.json 2> /dev/null
}
of() { # NAME KEY: of one device there
  advertised ".resources[].devices[] | select(.id == \"$(dev "$1")\") | .$2"
}
resource() { # NAME: what the kubelet calls its kind
  advertised ".resources[] | select(.devices[].id == \"$(dev "$1")\") | .name"
}
all_free() {
  [[ $(advertised '[.resources[] | select(.registered) | .devices[] | select(.healthy and (.allocated | not))]
    | length') == 3 ]]
}
expect "three, each Healthy" wait_for all_free 60
for name in gpu gpu-audio other; do evidence "$name" "$(resource $name) $(dev $name)"; done

# --- pods -------------------------------------------------------------------------------------------------------------

# As virt-launcher does it: which devices the VM gets is in the environment, and nowhere else. At its end it gives the
# VM time, here until it may. The image has a shell and little more; QEMU is the node's.
read -r -d '' launcher << 'SH' || :
echo "LAUNCHER $(env | grep ^PCI_RESOURCE_)"
echo "LAUNCHER nodes $(cd /dev/vfio; echo *)"
for address in $(env | sed -n "s/^PCI_RESOURCE_[^=]*=//p" | tr , " "); do
  set -- "$@" -device "vfio-pci,host=$address,rombar=0"
done
qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -accel tcg -machine q35 -m MEMORY \
  -kernel /mnt/guest/kernel -initrd /mnt/guest/initrd -append "console=ttyS0 quiet no_timer_check" -serial stdio "$@" &
trap "until [ -e /let-go/now ]; do sleep 0.2; done; kill $!; wait $!; exit" TERM
wait $!
SH
launcher=${launcher/MEMORY/$(guest_memory)}

pod() { # NAME RESOURCE ATTEMPT: one device of the resource for a pod; another ATTEMPT is another pod to the kubelet
  jq -n --arg name "$1" --arg resource "$2" --arg attempt "$3" --arg launcher "$launcher" '{
    apiVersion: "v1", kind: "Pod",
    metadata: {name: $name, namespace: "default", annotations: {attempt: $attempt}},
    spec: {
      hostNetwork: true, restartPolicy: "Never", terminationGracePeriodSeconds: 120,
      containers: [{
        name: "vm", image: "localhost/busybox:1", imagePullPolicy: "Never",
        command: ["sh", "-c", $launcher, "launcher"],
        resources: {limits: {($resource): "1"}},
        securityContext: {capabilities: {add: ["IPC_LOCK"]}},
        volumeMounts: [
          {name: "usr", mountPath: "/usr", readOnly: true},
          {name: "guest", mountPath: "/mnt/guest", readOnly: true},
          {name: "let-go", mountPath: "/let-go", readOnly: true}]
      }],
      volumes: [
        {name: "usr", hostPath: {path: "/usr"}},
        {name: "guest", hostPath: {path: "/mnt/guest"}},
        {name: "let-go", hostPath: {path: "/run/let-go"}}]
    }}' > "/run/$1.json"
  mv "/run/$1.json" "$manifests/$1.json"
}

status() { # NAME ATTEMPT JQ-EXPRESSION: of the pod's status as the kubelet has it
  local connection
  exec {connection}<> /dev/tcp/127.0.0.1/10255
  printf 'GET /pods HTTP/1.0\r\n\r\n' >&"$connection"
  sed '1,/^\r$/d' <&"$connection" |
    jq -rc --arg name "$1-node" --arg attempt "$2" \
      ".items[]? | select(.metadata.name == \$name and .metadata.annotations.attempt == \$attempt) | .status | $3"
  exec {connection}>&-
}

output() { # NAME: what its container has written
  cat /var/log/pods/default_"$1"-node_*/vm/*.log 2> /dev/null | cut -d' ' -f4- | tr -d '\r'
}

guest_of() { # NAME FUNCTION ATTEMPT: the pod's guest comes up and sees the function, and nothing else that is NVIDIA's
  wait_for "grep -qs ' GUEST-READY' /var/log/pods/default_$1-node_*/vm/*.log" 480 || # one process: each costs the guest
    fail "the VM of $1 did not come up: $(status "$1" "$3" '{phase, reason, message}') $(output "$1" | tail -n 5)"
  evidence "what $1 got" "$(output "$1" | grep ^LAUNCHER)"
  evidence "what its guest sees" "$(output "$1" | grep "^GUEST-PCI .* $(as_guest_line "$2")$")"
  expect_equal "NVIDIA's functions in it" 1 "$(output "$1" | grep -c "^GUEST-PCI .* vendor=10de ")"
  expect_match "its environment" "=$(dev "$2")"$'\n' "$(output "$1")"
  expect_match "its nodes" "LAUNCHER nodes $(group "$2") vfio"$'\n' "$(output "$1")"
}

step "the first pod's VM starts"
pod first "$(resource gpu)" 1
guest_of first gpu 1

refused() { # NAME FUNCTION ATTEMPT WHY: the kubelet does not let the pod in
  pod "$1" "$(resource "$2")" "$3"
  wait_for "[[ -n \$(status $1 $3 '.reason // empty') ]]" 60 || fail "the kubelet does not say no to $1"
  expect_equal "attempt $3 of $1" UnexpectedAdmissionError "$(status "$1" "$3" .reason)"
  expect_match "because of" "$4" "$(status "$1" "$3" .message)"
  evidence "the kubelet says to $1, attempt $3" "$(status "$1" "$3" .message)"
}

step "a second pod that wants the group's other function waits"
# In the words of the kubelet, by release.
none_free="Requested: 1, Available: 0|no healthy devices present"
for attempt in 1 2; do refused second gpu-audio $attempt "$none_free"; done
evidence "the plugin says" "$(of gpu-audio reason)"
expect_match "held back" "$(dev gpu) of its IOMMU group $(group gpu) is allocated" "$(of gpu-audio reason)"
expect_equal "another group's is free" "true false" "$(of other healthy) $(of other allocated)"
expect "the first runs on" test "$(status first 1 .phase)" = Running

# The kubelet's pod resources lack a pod that is taken away before it has ended, and the kubelet itself gives its
# devices out again.
step "while the first is still ending, nobody gets its group"
rm $manifests/first.json
expect "the kubelet has forgotten it" wait_for "[[ -z \$(status first 1 .phase) ]]" 60
# Either Allocate finds the group open, or the plugin has asked by itself and has sent the kubelet a new list already.
refused third gpu 1 "/dev/vfio/$(group gpu) is open|$none_free"
rm $manifests/third.json
expect_status "longer than the plugin asks again" 1 wait_for "[[ \$(of gpu allocated) == false ]]" 12
refused second gpu-audio 3 "$none_free"
expect "its QEMU runs on" pgrep -f "qemu-system-x86_64 .*host=$(dev gpu)"

step "the first ends"
touch /run/let-go/now
wait_for "! pgrep -f 'qemu-system-x86_64 .*host=$(dev gpu)' > /dev/null" 120 || fail "its QEMU runs on"
_node_seconds
ended=$node_seconds

step "the second pod's VM starts"
attempt=3 phase=
while [[ $phase != Running ]]; do
  _node_seconds
  ((node_seconds < ended + 300)) || fail "it is still refused: $(status second "$attempt" .message)"
  pod second "$(resource gpu-audio)" $((++attempt))
  wait_for "[[ \$(status second $attempt .phase) =~ Failed|Running ]]" 180 || fail "nothing is heard of attempt $attempt"
  phase=$(status second $attempt .phase)
done
_node_seconds
evidence "seconds after the first's end" $((node_seconds - ended))
guest_of second gpu-audio "$attempt"
expect_match "now the GPU is held back" "$(dev gpu-audio) of its IOMMU group" "$(of gpu reason)"

step "all of it is free again"
rm $manifests/second.json
expect "three, each Healthy" wait_for all_free 120

# The group's node stays with its other function, and the next scan without news is a minute off: three times over, it is
# the kernel's events that tell.
step "a function's driver leaves and comes back, and the kubelet hears of it"
for round in 1 2 3; do
  echo "$(dev gpu-audio)" > /sys/bus/pci/drivers/vfio-pci/unbind
  expect "round $round: without a driver it is Unhealthy" wait_for "[[ \$(of gpu-audio healthy) == false ]]" 5
  expect_match "because" "no driver is bound to it" "$(of gpu-audio reason)"
  expect "the group's node is there" test -e "/dev/vfio/$(group gpu)"
  echo "$(dev gpu-audio)" > /sys/bus/pci/drivers/vfio-pci/bind
  expect "round $round: Healthy again" wait_for all_free 5
done
