// SPDX-License-Identifier: Apache-2.0
// CDI files as Kata's runtime reads them: by version 0.6.0 of the CDI project's own library
// (tests/support/kata_cdi_check, which scripts/lib/kata-cdi-check compiles).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ferry::test {

/// The program that FERRY_KATA_CDI_CHECK names. Absent: none, and the test is skipped.
std::optional<std::string> kata_cdi_check();
inline constexpr const char* kNoKataCdiCheck =
    "FERRY_KATA_CDI_CHECK names no program (scripts/lib/kata-cdi-check compiles it)";

/// The names of all devices in the CDI files that `ferry plugin` has written below a host's root; a file that
/// the library refuses fails the test. Empty without kata_cdi_check().
std::string expect_kata_reads_our_cdi_files(const std::filesystem::path& host_root);

}  // namespace ferry::test
