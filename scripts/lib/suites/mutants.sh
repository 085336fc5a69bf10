# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# Changes of the product that break a promise, for a bounded time: each must be caught.

prepare() { install_packages build unit check; }

run() {
    check 'mutants' "$root/tests/mutants/run" --seconds 450
    # Survivors are printed, for a person to judge: a change that alters no behaviour survives, too.
    check 'generic mutants of the last commit' "$root/tests/mutants/generic" --change HEAD~1 --seconds 150
}
