# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The other tests on the current Kubernetes, all on the oldest that Ferry supports, and those of claims on the newest.
# shellcheck source=scripts/lib/suites/cluster.sh
. "$root/scripts/lib/suites/cluster.sh"

prepare() {
    install_packages cluster package
    build release cluster-programs "${release_programs[@]}"
    # run says what it leaves out.
    "$root/scripts/lib/kubernetes" >/dev/null || true
    "$root/scripts/lib/kubernetes" --oldest >/dev/null || true
    "$root/scripts/lib/kubernetes" --newest >/dev/null || true
    "$root/scripts/lib/helm" >/dev/null || true
    "$root/scripts/lib/docker-registry" >/dev/null || true
}

run() {
    find_cluster_peers
    on_release current --rest
    on_release oldest
    on_release newest --claims
}
