# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The scenarios of the virtual node that suite node leaves out; those that show a kernel's interfaces on a second kernel, too.
# shellcheck source=scripts/lib/suites/node.sh
. "$root/scripts/lib/suites/node.sh"

# On the newer kernel: each effect of the unit tests' fake kernel, binding, vGPUs, VMs, refusals, claims, resets.
on_newer='kernel-effects vgpu vm refusals takeover dra clean-gpu cc'

prepare() {
    install_packages node package
    build release node-programs
    "$root/scripts/lib/kubernetes" >/dev/null || true # run says what it leaves out
    "$root/scripts/lib/qemu-newer" >/dev/null || true # the same
    "$root/tests/node/prepare"
    "$root/tests/node/prepare" modules-newer initramfs-newer || true # the same
}

run() {
    local file name names=()
    # The longest come first, so that none runs by itself for minutes at the end.
    for file in "$root"/tests/node/scenarios/{kubelet,hangs,*}.toml; do
        name=$(basename "$file" .toml)
        [[ " $main_job ${names[*]} " == *" $name "* ]] || names+=("$name")
    done
    scenarios "${names[@]}"
    if ! "$root/tests/node/prepare" --list modules-newer 2>/dev/null | grep -q '^modules-newer *made'; then
        skipped "$on_newer on Linux 6.12: the mirror has no backports"
        return
    fi
    read -ra names <<<"$on_newer"
    newer=--newer scenarios "${names[@]}"
}
