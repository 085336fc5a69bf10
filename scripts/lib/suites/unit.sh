# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The unit tests, compiled with the product in one build.

prepare() {
    install_packages unit
    build release unit-programs
    prepare_peers
}

# The programs that some unit tests compare Ferry with. run says which of them are missing.
prepare_peers() {
    "$root/scripts/lib/containerd-releases" >/dev/null || true
    "$root/scripts/lib/docker-registry" >/dev/null || true
    "$root/scripts/lib/kata-cdi-check" >/dev/null || true
    "$root/scripts/lib/prometheus" >/dev/null || true
}
find_peers() {
    FERRY_CONTAINERDS=$("$root/scripts/lib/containerd-releases") ||
        skipped 'a release of containerd cannot be had, and its configuration is only modelled'
    export FERRY_CONTAINERDS
    if FERRY_DOCKER_REGISTRY=$("$root/scripts/lib/docker-registry"); then export FERRY_DOCKER_REGISTRY; else
        unset FERRY_DOCKER_REGISTRY
        skipped 'docker-registry cannot be had, and registries are only played'
    fi
    if FERRY_KATA_CDI_CHECK=$("$root/scripts/lib/kata-cdi-check"); then export FERRY_KATA_CDI_CHECK; else
        unset FERRY_KATA_CDI_CHECK
        skipped "the library of Kata's runtime cannot be had, and CDI files are read by Ferry's rules alone"
    fi
    local prometheus
    if prometheus=$("$root/scripts/lib/prometheus"); then export FERRY_PROMTOOL=$prometheus/promtool; else
        unset FERRY_PROMTOOL
        skipped 'promtool cannot be had, and the conventions of the metrics are not checked'
    fi
}

run() {
    find_peers
    # The soak has more schedules and all faults.
    FERRY_SCHEDULES=300 FERRY_FAULTS=3 gtest "$root/build"
}
