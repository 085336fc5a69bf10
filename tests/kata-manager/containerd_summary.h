// SPDX-License-Identifier: Apache-2.0
// A section of CRI's in few words: of what is predicted, and of what a release says itself.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "kata-manager/toml/toml.h"

namespace ferry::test {

/// As tests/fixtures/containerd/results.json has a section: some of its keys, under names of their own. What
/// is empty, false or 0 is left out. Keys that the section lacks are taken from `built_in`, a summary of what
/// the release has without any file; CRI's runtimes are not.
nlohmann::json summary(const kata::TomlTable& section,
                       const nlohmann::json& built_in = nlohmann::json::object());

/// Debian's builds have another folder built in.
nlohmann::json as_upstream(nlohmann::json section, std::string_view release);

/// A summary without the keys that the model leaves out: those that the release does not know, and those of
/// version 2 that containerd 2 moves to another section or under another name.
nlohmann::json as_modelled(nlohmann::json summary, std::string_view release);

}  // namespace ferry::test
