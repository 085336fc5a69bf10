// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/result.h"
#include "kube/api_error.h"

namespace ferry {

/// A line of a watch's stream.
struct WatchEvent {
  enum class Kind { added, modified, deleted, bookmark, error };
  Kind kind = Kind::error;
  nlohmann::json object = {};  ///< of an error: the Status
  std::string key = {};        ///< object_key(); empty of a bookmark and an error
  std::string version = {};    ///< its resourceVersion; never empty but of an error
};

/// Errc::malformed_host: it is no such line; `asked` says whose.
Result<WatchEvent> parse_watch_event(std::string_view line, const Asked& asked);

/// "namespace/name", or "name" where there is no namespace; empty: it is no object.
std::string object_key(const nlohmann::json& object);
/// Empty: it has none.
std::string version_of(const nlohmann::json& object);

/// Whether one of an object's or a list's versions is later than another. Both are the server's and mean
/// nothing to others but this: numbers, of which the greater is later (KEP-5504; so they always were).
/// Those that are none are taken for later unless equal.
bool is_later(std::string_view version, std::string_view than);

}  // namespace ferry
