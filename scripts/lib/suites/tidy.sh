# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# clang-tidy on what the last commit changes (scripts/lib/tidy --all checks every file).

prepare() {
    install_packages check
    build release ferry_deviceplugin_stubs ferry_podresources_stubs
}

run() { check 'clang-tidy' "$root/scripts/lib/tidy"; }
