# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# Each parser under a fuzzer.
# First from a fixed seed, so that a run that passed passes again; then with inputs that no run has tried.

prepare() {
    install_packages build check
    "$root/tests/fuzz/run" --build # sanitize has most of it compiled
}

run() {
    check 'fuzz targets' "$root/tests/fuzz/run" 2 1
    check 'fuzz targets, new inputs' "$root/tests/fuzz/run" "${FERRY_FUZZ_SECONDS:-8}"
}
