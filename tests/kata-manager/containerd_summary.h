// SPDX-License-Identifier: Apache-2.0
// A section of CRI's in few words: of what is predicted, and of what a release says itself.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "kata-manager/toml/toml.h"

namespace ferry::test {

/// As tests/fixtures/containerd/results.json has a section: some of its keys, under names of their own. What
/// is empty, false or 0 is left out.
nlohmann::json summary(const kata::TomlTable& section);

/// Debian's builds have another folder built in.
nlohmann::json as_upstream(nlohmann::json section, std::string_view release);

/// A summary of what is predicted, without the keys that a release does not know yet: its dump leaves them
/// out.
nlohmann::json without_later_keys(nlohmann::json summary, std::string_view release);

}  // namespace ferry::test
