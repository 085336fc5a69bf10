# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The scenarios of the virtual node that suite node leaves out.
# shellcheck source=scripts/lib/suites/node.sh
. "$root/scripts/lib/suites/node.sh"

run() {
    local file name names=()
    # The longest come first, so that none runs by itself for minutes at the end.
    for file in "$root"/tests/node/scenarios/{kubelet,hangs,*}.toml; do
        name=$(basename "$file" .toml)
        [[ " $main_job ${names[*]} " == *" $name "* ]] || names+=("$name")
    done
    scenarios "${names[@]}"
}
