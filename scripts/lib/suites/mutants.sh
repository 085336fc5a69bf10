# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# Changes of the product that break a promise, for a bounded time: each must be caught.

prepare() { install_packages unit check; }

run() { check 'mutants' "$root/tests/mutants/run" --seconds 600; }
