# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The unit tests as clang compiles them, with the address and undefined-behaviour sanitizers.
# shellcheck source=scripts/lib/suites/unit.sh
. "$root/scripts/lib/suites/unit.sh"

prepare() {
    install_packages unit check
    build asan-ubsan unit-programs
    prepare_peers
}

run() {
    find_peers
    # Schedules and faults run on played clocks and hosts. The sanitizers make them up to twenty times as slow.
    FERRY_SCHEDULES=60 FERRY_FAULTS=25 gtest "$root/build-asan-ubsan"
}
