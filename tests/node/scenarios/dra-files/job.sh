# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR
PATH=/mnt/kubernetes:$PATH
plugin_folder=/var/lib/kubelet/plugins/gpu-ferry.io
registry=/var/lib/kubelet/plugins_registry
# shellcheck source=../api-server/lib.sh
. /mnt/tests/scenarios/api-server/lib.sh
mkdir -p $logs /var/lib/ferry $plugin_folder $registry /run/cdi
# shellcheck source=../dra/lib.sh
. /mnt/tests/scenarios/dra/lib.sh
dra_folders=("$plugin_folder" "$registry")
names=(whole mediated vendor) # of the claims

echo 2 > "$(pf l40s-vfio)/sriov_numvfs"
cat > /run/policies.yaml << YAML
version: v2
policies:
  claims:
  - {address: "$(dev gpu)", allocation: dra}
  - {address: "$(dev t4)", allocation: dra, allow: ["T4-4Q"]}
  - {address: "$(dev l40s-vfio)", allocation: dra, allow: ["L40S-12Q"]}
YAML
start
want claims
settles ready claims
expect "the GPUs for claims" claimable_become gpu t4 l40s-vfio
snapshot > /run/before
begin_api_server # only now: it leaves little of both processors for its first minutes

step "ferry dra publishes the GPUs in the API server, and a kubelet registers it"
expect "the API server is ready" wait_for "kubectl get --raw /readyz > /dev/null 2>&1" 600
jq -n '
  def claim($name; $class; $annotations): {apiVersion: "resource.k8s.io/v1", kind: "ResourceClaim",
    metadata: {name: $name, namespace: "studio", annotations: $annotations},
    spec: {devices: {requests: [{name: "card", exactly: {deviceClassName: "\($class).gpu-ferry.io"}}]}}};
  {apiVersion: "v1", kind: "List", items: [
    {apiVersion: "v1", kind: "Namespace", metadata: {name: "studio"}},
    {apiVersion: "v1", kind: "Node", metadata: {name: "node"}},
    claim("whole"; "whole"; {}),
    claim("mediated"; "vgpu"; {"resource.kubernetes.io/pod-claim-name": "from-template"}),
    claim("vendor"; "vgpu"; {})]}' | kubectl create --validate=false -f -
jq -n --arg authority $certificates/apiserver.crt '{apiVersion: "v1", kind: "Config", "current-context": "node",
  clusters: [{name: "node", cluster: {server: "https://127.0.0.1:6443", "certificate-authority": $authority}}],
  users: [{name: "dra", user: {token: "dra"}}],
  contexts: [{name: "node", context: {cluster: "node", user: "dra"}}]}' > /run/dra.kubeconfig
"${dra[@]}" ferry-dra --node-name=node --kubeconfig=/run/dra.kubeconfig --log-level=info 2> $logs/dra &
registered() { dra-request register $registry/gpu-ferry.io-reg.sock > /run/driver; }
expect "it is registered" wait_for registered 120
evidence "the driver" "$(< /run/driver)"
endpoint=$(jq -r .endpoint /run/driver)
expect_equal "its socket" $plugin_folder/dra.sock "$endpoint"
device_of() { # NAME TYPE: the first device of the GPU that is published with this vGPU type, which a whole GPU has not
  jq -r --arg gpu "$(dev "$1" | tr ':.' '-')" --arg type "$2" '[.items[].spec.devices[]? | select(.name | contains($gpu)) |
    select((.attributes.vgpuType.string // "") == $type) | .name][0] // empty' /run/slices.json
}
all_published() {
  kubectl get resourceslices -o json > /run/slices.json 2> $logs/kubectl || return 1
  [[ -n $(device_of gpu "") && -n $(device_of t4 T4-4Q) && -n $(device_of l40s-vfio L40S-12Q) ]]
}
expect "the devices of all three" wait_for all_published 300

step "the kubelet has three claims of a pod prepared"
kubectl get resourceclaims -n studio -o json > /run/claims.json
uid_of() { jq -r --arg name "$1" '.items[].metadata | select(.name == $name) | .uid' /run/claims.json; } # CLAIM
allocate() { # CLAIM DEVICE: as the scheduler does it
  kubectl patch resourceclaim "$1" -n studio --subresource=status --type=merge -p "$(jq -nc --arg device "$2" \
    '{status: {allocation: {devices: {results: [
      {request: "card", driver: "gpu-ferry.io", pool: "node/gpu-ferry", device: $device}]}}}}')"
}
ask() { # prepare|unprepare CLAIM...: as the kubelet asks the driver, in one call
  local action=$1 name keys=()
  for name in "${@:2}"; do keys+=("studio/$name/$(uid_of "$name")"); done
  dra-request "$action" "$endpoint" "${keys[@]}"
}
# The kubelet asks again, too: ferry dra answers after 30 s that its work goes on.
all_prepared() { ask prepare "${names[@]}" > /run/answer; }
nodes_of() { # CLAIM: in its CDI file
  jq -r '[.devices[].containerEdits.deviceNodes[].path] | join(" ")' "/run/cdi/gpu-ferry.io-claim_$(uid_of "$1").json"
}
allocate whole "$(device_of gpu "")"
allocate mediated "$(device_of t4 T4-4Q)"
allocate vendor "$(device_of l40s-vfio L40S-12Q)"
wait_for all_prepared 300 || fail "they are not prepared: $(< /run/answer)"
evidence "the answer" "$(< /run/answer)"
for name in "${names[@]}"; do
  uid=$(uid_of "$name")
  expect_equal "request and pool of $name" "card node/gpu-ferry" \
    "$(jq -r ".[\"$uid\"].devices | map(.request_names[0] + \" \" + .pool_name) | join(\",\")" /run/answer)"
done
for name in gpu gpu-audio; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
uuid=$(vgpus | sed -n 's/^.* GRID T4-4Q //p')
function=$(vf l40s-vfio 0)
expect_equal "vGPUs" "$(dev t4) GRID T4-4Q $uuid
$function 1153" "$(vgpus)"
expect_equal "nodes of the GPU" "/dev/vfio/vfio /dev/vfio/$(group gpu)" "$(nodes_of whole)"
expect_equal "nodes of the mediated device" "/dev/vfio/vfio /dev/vfio/$(group_of "$uuid")" "$(nodes_of mediated)"
expect_equal "nodes of the virtual function" "/dev/vfio/vfio /dev/vfio/$(group_of "$function")" "$(nodes_of vendor)"
metadata_folder=$plugin_folder.hostd
files() { find /run/cdi $metadata_folder -type f | sort; }
files > /run/files
evidence "the files" "$(< /run/files)"
expect_equal "how many there are" 9 "$(wc -l < /run/files)"
for folder in /run/cdi $metadata_folder $plugin_folder/..; do
  expect_status "ferry dra writes no file in $folder" 1 "${dra[@]}" touch $folder/file
done
mapfile -t made < /run/files
expect_equal "the files are root's" root "$(stat -c %U "${made[@]}" | sort -u)"

step "a VM starts from the files of its claims alone"
jq -r '.[].devices[].cdi_device_ids[]' /run/answer > /run/cdi-ids
mkfifo /run/claimed.in
unshare --mount /mnt/tests/scenarios/dra-files/virt-launcher claimed /run/cdi-ids resourceclaims/whole/card \
  resourceclaimtemplates/from-template/card resourceclaims/vendor/card <> /run/claimed.in > /mnt/state/claimed.out 2>&1 &
vm=$!
has_all() { [[ $(readlink /proc/$vm/fd/* | grep -c vfio-device) == 3 ]]; }
wait_for has_all 120 || fail "the VM does not start: $(< /mnt/state/claimed.out)"
grep ^virt-launcher: /mnt/state/claimed.out > /run/launched
evidence "what KubeVirt reads" "$(< /run/launched)"
expect_equal "the devices" "virt-launcher: resourceclaims/whole/card is pci $(dev gpu)
virt-launcher: resourceclaimtemplates/from-template/card is mdev $uuid
virt-launcher: resourceclaims/vendor/card is pci $function" "$(grep " is " /run/launched)"
guest_wait claimed 480
seen=$(guest_devices claimed)
evidence "what the guest sees" "$seen"
expect_equal "NVIDIA's functions in it" 3 "$(grep -c " vendor=10de " <<< "$seen")"
for line in "$(as_guest_line gpu)" \
  "vendor=10de device=1eb8 class=030000 subsystem_vendor=10de subsystem_device=130e" \
  "vendor=10de device=26b9 class=030000 subsystem_vendor=10de subsystem_device=1891"; do
  expect_equal "$line" 1 "$(grep -c " $line\$" <<< "$seen")"
done

step "no claim of a running VM is undone"
refused() { # CLAIM: by hostd, which names the VM
  if ask unprepare "$1" > /run/refusal; then return 1; fi
  grep -qF "VM claimed (pid $vm)" /run/refusal
}
named_in_event() { kubectl get events -n studio -o json | jq -e --arg vm "VM claimed (pid $vm)" \
  '.items[] | select(.reason == "GpuUnprepareFailed") | select(.message | contains($vm))' > /dev/null; }
snapshot > /run/bound
vgpus > /run/vgpus
for name in "${names[@]}"; do
  wait_for "refused $name" 120 || fail "the claim $name is not refused: $(< /run/refusal)"
done
evidence "the reason" "$(< /run/refusal)"
expect "an event of a claim names the VM" wait_for named_in_event 120
expect_equal "drivers" "$(< /run/bound)" "$(snapshot)"
expect_equal "vGPUs" "$(< /run/vgpus)" "$(vgpus)"
expect_equal "the files" "$(< /run/files)" "$(files)"
expect "the VM has its devices" has_all

step "the claims are undone once the VM has ended"
echo "power off" > /run/claimed.in
wait $vm
all_undone() { ask unprepare "${names[@]}" > /run/answer; }
wait_for all_undone 300 || fail "they are not undone: $(< /run/answer)"
as_before
expect_equal "files" "" "$(files)"
expect_equal "claims of ferry dra" 0 "$(jq '.claims | length' /run/ferry/dra/claims.json)"
expect_status "a repeated request" 0 ask unprepare "${names[@]}"
ok
