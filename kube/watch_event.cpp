// SPDX-License-Identifier: Apache-2.0
#include "kube/watch_event.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/whole_json.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, WatchEvent::Kind>, 5> kKinds = {{
    {"ADDED", WatchEvent::Kind::added},
    {"MODIFIED", WatchEvent::Kind::modified},
    {"DELETED", WatchEvent::Kind::deleted},
    {"BOOKMARK", WatchEvent::Kind::bookmark},
    {"ERROR", WatchEvent::Kind::error},
}};

std::string metadata_text(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return {};
  const auto found = metadata->find(key);
  return found != metadata->end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_number(std::string_view text) {
  return !text.empty() && text.front() != '0' &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string object_key(const json& object) {
  const auto name = metadata_text(object, "name");
  const auto space = metadata_text(object, "namespace");
  return name.empty() || space.empty() ? name : space + "/" + name;
}

std::string version_of(const json& object) {
  return metadata_text(object, "resourceVersion");
}

Result<WatchEvent> parse_watch_event(std::string_view line, const Asked& asked) {
  const auto malformed = [&](std::string_view why) {
    return fail(Errc::malformed_host, fmt::format("watch {}: a line of the stream {}", asked.object, why));
  };
  auto parsed = parse_answer_json(line);
  if (!parsed.is_object()) return malformed("is no JSON object");
  const auto type = parsed.find("type");
  const auto object = parsed.find("object");
  if (type == parsed.end() || !type->is_string()) return malformed("has no type");
  if (object == parsed.end() || !object->is_object()) return malformed("has no object");
  const auto* const kind =
      std::ranges::find(kKinds, type->get_ref<const std::string&>(), &decltype(kKinds)::value_type::first);
  if (kind == kKinds.end()) return malformed("is of a type that this program does not know");

  WatchEvent event{.kind = kind->second};
  if (event.kind != WatchEvent::Kind::error) {
    event.version = version_of(*object);
    if (event.version.empty()) return malformed("has an object without a resourceVersion");
  }
  if (event.kind != WatchEvent::Kind::error && event.kind != WatchEvent::Kind::bookmark) {
    event.key = object_key(*object);
    if (event.key.empty()) return malformed("has an object without a name");
  }
  event.object = std::move(*object);
  return event;
}

bool is_later(std::string_view version, std::string_view than) {
  if (!is_number(version) || !is_number(than)) return version != than;
  // Compares numbers of any length.
  return std::pair(version.size(), version) > std::pair(than.size(), than);
}

}  // namespace ferry
