# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The main tests on a real API server and kubelet of the current release. Suite clusters has all tests and the oldest release.

prepare() {
    install_packages cluster
    build release cluster-programs
    # run says what it leaves out.
    "$root/scripts/lib/kubernetes" >/dev/null || true
    "$root/scripts/lib/helm" >/dev/null || true
    "$root/scripts/lib/docker-registry" >/dev/null || true
}

run() {
    find_cluster_peers
    on_release current --main
}

find_cluster_peers() {
    "$root/scripts/lib/docker-registry" >/dev/null || skipped "docker-registry cannot be had, and Kata's runtimes come to no cluster"
    "$root/scripts/lib/helm" >/dev/null || skipped 'a Helm cannot be had: the chart is installed with the other one or with none'
}

# on_release current|oldest|newest [--main | --rest | --claims]
on_release() {
    local release=$1 folder find=(--find)
    shift
    [ "$release" = current ] || find=("--$release" --find)
    if ! folder=$("$root/scripts/lib/kubernetes" "${find[@]}"); then
        skipped "the cluster: the $release Kubernetes cannot be had"
        return
    fi
    check "the cluster, $release Kubernetes" unittests "$root/tests/cluster/run" --jobs 2 --kubernetes "$folder" "$@"
    FERRY_KUBERNETES=$folder GTEST_FILTER='RealApiServer.*' gtest "$root/build" tests/kube_transport_test
}
