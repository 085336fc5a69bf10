# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# Ratios against a named baseline, with their tight bounds.

prepare() {
    install_packages node soak
    build release bench-programs node-programs
    "$root/tests/node/prepare"
    "$root/scripts/lib/docker-registry" >/dev/null || true # run says what it leaves out
}

run() {
    check 'benchmarks' "$root/tests/bench/run" --tight
    check 'the cost of a bind' "$root/tests/node/run" "$root/tests/node/scenarios/soak/speed.toml"
    local registry
    if registry=$("$root/scripts/lib/docker-registry"); then
        check 'pulling 1 GiB' "$root/tests/soak/fetch" --ferry "$root/build/bin" --registry "$registry"
    else
        skipped 'docker-registry cannot be had, and no artifact of 1 GiB is pulled'
    fi
}
