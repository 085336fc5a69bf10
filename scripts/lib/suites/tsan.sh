# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The allocation core under the thread sanitizer.

prepare() { build tsan kubevirt_plugin_core_test; }

run() {
    gtest "$root/build-tsan" tests/kubevirt_plugin_core_test
    grep -hvE '^\[|^$' "$results"/gtest/*.log || true # how often each two events met
}
