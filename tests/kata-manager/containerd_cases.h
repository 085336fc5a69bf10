// SPDX-License-Identifier: Apache-2.0
// The configurations of tests/fixtures/containerd, which has a file for each release and the difference of
// each case.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ferry::test {

/// "corpus/NAME" and "real/NAME", sorted. A case of real/ begins with its release: "real/1.7.24-default".
std::vector<std::string> containerd_cases();

/// Writes the files of a case into a folder, which becomes containerd's: config.toml, conf.d/.
void write_containerd_case(const std::string& name, const std::filesystem::path& folder);

/// Where the cases are.
std::filesystem::path containerd_fixtures();

}  // namespace ferry::test
