# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# Format, shell lint, names that must not be committed, the mutants' snippets.

prepare() { install_packages check; }

run() {
    check 'clang-format' "$root/scripts/lib/check-format"
    check 'shellcheck' "$root/scripts/lib/check-shell"
    check 'the tree speaks of itself alone' "$root/scripts/lib/check-words"
    check 'rooms include each other in one direction, and folders are small' "$root/scripts/lib/check-imports"
    check 'the pages are in plain English, and their links lead somewhere' "$root/scripts/lib/check-pages"
    check 'each rule of the pages finds what breaks it' "$root/scripts/lib/check-pages" --selftest
    check 'the pages name words of other programs as their releases have them' "$root/scripts/lib/check-neighbours"
    check 'each kind of such a word is found' "$root/scripts/lib/check-neighbours" --selftest
    check 'the comments name their subjects' "$root/scripts/lib/check-comments"
    check 'each rule of the comments finds what breaks it' "$root/scripts/lib/check-comments" --selftest
    check 'each mutant has its snippet and its tests' "$root/tests/mutants/run" --check
    check "the mutants' own scripts" "$root/tests/mutants/selftest"
}
