# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The Debian packages: what is in them, put into a folder and taken away. The examples of the manual pages.

prepare() {
    install_packages package
    build release "${release_programs[@]}"
}

run() {
    check 'the packages' unittests "$root/tests/package/run"
    check "the manual pages' examples print what the pages show" "$root/tests/package/manual"
}
