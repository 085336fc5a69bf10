# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# VMs of KubeVirt on the virtual node, as a Node of a real cluster. Needs --source and a checkout of KubeVirt.
: "${FERRY_KUBEVIRT_SOURCE:=}" # scripts/test sets it

clone='git clone --depth 1 --branch v1.9.0 https://github.com/kubevirt/kubevirt ../kubevirt'

prepare() {
    # run says what it lacks.
    if [ -z "$FERRY_KUBEVIRT_SOURCE" ] || [ ! -e /dev/net/tun ]; then return 0; fi
    install_packages cluster kubevirt node
    build release cluster-programs
    "$root/tests/node/prepare"
    "$root/scripts/lib/kubernetes" >/dev/null
    "$root/scripts/lib/helm" >/dev/null || true
    "$root/scripts/lib/kubevirt" --source "$FERRY_KUBEVIRT_SOURCE" >/dev/null
}

run() {
    local folder
    if [ -z "$FERRY_KUBEVIRT_SOURCE" ]; then
        skipped "VMs of KubeVirt: no checkout is given; \`$clone\`, then \`scripts/test kubevirt --source ../kubevirt\`"
        return
    fi
    if [ ! -e /dev/net/tun ]; then
        skipped 'VMs of KubeVirt: this machine has no /dev/net/tun'
        return
    fi
    folder=$("$root/scripts/lib/kubevirt" --source "$FERRY_KUBEVIRT_SOURCE")
    check 'VMs of KubeVirt' unittests "$root/tests/cluster/run" --kubernetes "$("$root/scripts/lib/kubernetes" --find)" --kubevirt "$folder"
}
