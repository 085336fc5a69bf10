# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The main job on the virtual GPU node, as the demo does it: real kernel, IOMMU, vfio, mdev, libvirt, VMs.
# Suite scenarios has the rest.

main_job=demo

prepare() {
    install_packages node package
    build release node-programs
    "$root/scripts/lib/kubernetes" >/dev/null || true # run says what it leaves out
    "$root/tests/node/prepare"
}

run() {
    check 'the runner itself' unittests "$root/tests/node/selftest"
    scenarios "$main_job"
}

# scenarios NAME...: each is a test. Two and more run side by side, save those that measure time.
scenarios() {
    FERRY_KUBERNETES=$("$root/scripts/lib/kubernetes" --find) || true
    export FERRY_KUBERNETES
    local name file together=() alone=()
    for name in "$@"; do
        file=$root/tests/node/scenarios/$name.toml
        if [ -z "$FERRY_KUBERNETES" ] && grep -qx 'kubernetes = true' "$file"; then
            skipped "scenario $name: there is no Kubernetes to be had"
        elif grep -qx 'model = "gpu-model"' "$file" && ! "$root/scripts/lib/qemu-newer" --find >/dev/null; then
            skipped "scenario $name: there is no newer QEMU to be had"
        elif grep -qx 'alone = true' "$file"; then alone+=("$file"); else together+=("$file"); fi
    done
    run_scenarios "$jobs" "${together[@]}"
    run_scenarios 1 "${alone[@]}"
}

# run_scenarios JOBS FILE...: runs so many at a time. Where `newer` is set, they run on the kernel of Debian's backports.
run_scenarios() {
    local at_a_time=$1 out=$results/node scenario name
    shift
    [ $# -gt 0 ] || return 0
    rm -rf "$out" && mkdir "$out"
    # shellcheck disable=SC2016 disable=SC2086 # newer is one word, or none
    printf '%s\n' "$@" | xargs -P "$at_a_time" -I{} bash -c '
        name=$(basename "$1" .toml)
        [ "$name" != demo ] || set -- "$@" --out "$0/demo"
        "$2/tests/node/run" "$1" "${@:3}" >"$0/$name.log" 2>&1 || : >"$0/$name.bad"
        flock "$0" cat "$0/$name.log"' "$out" {} "$root" ${newer-}
    for scenario in "$@"; do
        name=$(basename "$scenario" .toml)
        check "scenario $name${newer:+ on Linux 6.12}" test ! -e "$out/$name.bad" -a -s "$out/$name.log"
    done
    [ -d "$out/demo" ] || return 0
    if [ -e "$out/demo.bad" ]; then 
        local kept
        kept=$(mktemp -d)
        mv "$out/demo" "$kept"
        printf 'the evidence of the demo that failed is kept in %s/demo\n' "$kept"
    else
        check 'docs/demo.md shows what the demo prints' "$root/scripts/lib/demo-report" readme "$root/docs/demo.md" "$out/demo"
        [ ! -e "$root/docs/images/demo.cast" ] || check 'the recording in the pages has the steps and commands of the demo' \
            "$root/scripts/lib/demo-report" recorded "$root/docs/images/demo.cast" "$out/demo"
    fi
}
