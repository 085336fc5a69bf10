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
  nlohmann::json object = {};  ///< an error's: the Status
  std::string key = {};        ///< object_key(); empty for bookmarks and errors
  std::string version = {};    ///< resourceVersion; empty only for errors
};

/// Errc::malformed_host: not such a line; `asked` names the watch.
Result<WatchEvent> parse_watch_event(std::string_view line, const Asked& asked);

/// "namespace/name", or "name" without a namespace; empty: not an object.
std::string object_key(const nlohmann::json& object);
/// The resourceVersion; empty: none.
std::string version_of(const nlohmann::json& object);

/// True: `version` is later than `than`, both resourceVersions of one server. They are numbers, and the
/// greater is later (KEP-5504; they always were). Versions that are no numbers count as later unless equal.
bool is_later(std::string_view version, std::string_view than);

}  // namespace ferry
