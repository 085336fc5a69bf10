# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# A release in a registry on the loopback, and all that is read back from there; the image by images/Dockerfile.

prepare() {
    install_packages package release
    build release "${release_programs[@]}" systemd-standin former-plugin
    # run says what it leaves out.
    "$root/scripts/lib/helm" >/dev/null || true
    "$root/scripts/lib/docker-registry" >/dev/null || true
    "$root/scripts/lib/cosign-check" >/dev/null || true
}

run() {
    "$root/scripts/lib/helm" >/dev/null || skipped 'a Helm cannot be had: the other one pulls the chart, or none'
    if FERRY_COSIGN_CHECK=$("$root/scripts/lib/cosign-check"); then export FERRY_COSIGN_CHECK; else
        unset FERRY_COSIGN_CHECK
        skipped "cosign cannot be had: its code checks no signature"
    fi
    if "$root/scripts/lib/docker-registry" >/dev/null; then
        check 'a release' unittests "$root/tests/release/run"
    else
        skipped 'docker-registry cannot be had, and nothing is released'
    fi
    check 'the image by images/Dockerfile' unittests "$root/tests/release/dockerfile"
}
