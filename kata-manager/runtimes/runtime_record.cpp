// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/runtime_record.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry::kata {
namespace {

using nlohmann::json;

json to_json(const std::optional<std::string>& content) {
  return content ? json(*content) : json(nullptr);
}

Result<std::optional<std::string>> content_from(const json& value) {
  if (value.is_null()) return std::optional<std::string>();
  if (!value.is_string()) return fail(Errc::malformed_host, "a content is no text");
  return std::optional(value.get<std::string>());
}

tl::unexpected<Error> malformed(const char* record, const std::string& why) {
  return fail(Errc::malformed_host, fmt::format("/{} cannot be read: {}", record, why),
              "look at what the container runtime's configuration should be, then remove that file");
}

/// null: no journal.
Result<json> document_of(const HostFs& host, const char* record) {
  const auto text = host.read_file(record);
  if (!text && is_gone(text.error())) return json();
  if (!text) return fail(text.error());
  json document = json::parse(*text, nullptr, false);
  if (!document.is_object() || !document.contains("changes") || !document["changes"].is_array())
    return malformed(record, "no changes in it");
  return document;
}

Result<std::vector<FileChange>> read_changes(const HostFs& host, const char* record) {
  const auto read = document_of(host, record);
  if (!read) return fail(read.error());
  const json& document = *read;
  if (document.is_null()) return std::vector<FileChange>();
  std::vector<FileChange> out;
  for (const json& value : document["changes"]) {
    if (!value.is_object() || !value.contains("path") || !value["path"].is_string() ||
        !value.contains("before") || !value.contains("after"))
      return malformed(record, "a change is none");
    auto before = content_from(value["before"]);
    if (!before) return malformed(record, before.error().message);
    auto after = content_from(value["after"]);
    if (!after) return malformed(record, after.error().message);
    out.push_back(
        {.path = value["path"].get<std::string>(), .before = std::move(*before), .after = std::move(*after)});
  }
  return out;
}

Result<> write_record(HostFs& host, const char* record, const std::vector<FileChange>& changes,
                      json document = json::object()) {
  auto list = json::array();
  for (const FileChange& change : changes) {
    list.push_back({{"path", change.path.string()},
                    {"before", to_json(change.before)},
                    {"after", to_json(change.after)}});
  }
  std::string text;
  try {
    document["changes"] = std::move(list);
    text = document.dump(2) + "\n";
  } catch (const json::exception&) {  // impossible for text that was read as TOML
    return fail(Errc::invalid_config, "a configuration file is not UTF-8, and could not be put back");
  }
  return host.write_file(record, text, 0600);
}

Result<> forget(HostFs& host, const char* record) {
  if (!host.exists(record)) return {};
  return host.remove_file(record);
}

}  // namespace

Result<> write_runtime_record(HostFs& host, const std::vector<FileChange>& changes) {
  return write_record(host, kRuntimeRecord, changes);
}

Result<> leave_unread(HostFs& host, const std::vector<FileChange>& changes,
                      std::span<const RuntimeHandler> handlers, const std::vector<std::string>& leaving) {
  std::vector<FileChange> unread;
  std::ranges::copy_if(changes, std::back_inserter(unread),
                       [](const FileChange& change) { return change.before != change.after; });
  json once_read = {{"knows", json::array()}, {"knows_no_more", leaving}};
  for (const RuntimeHandler& handler : handlers) {
    once_read["knows"].push_back({{"name", handler.name},
                                  {"shim", handler.shim.string()},
                                  {"configuration", handler.configuration.string()}});
  }
  auto kept = unread.empty() ? forget(host, kUnreadRecord)
                             : write_record(host, kUnreadRecord, unread, std::move(once_read));
  if (!kept) return kept;
  return forget(host, kRuntimeRecord);
}

Result<std::vector<FileChange>> read_runtime_record(const HostFs& host) {
  // A run's journal includes the unread changes that were still in place.
  const auto all = read_changes(host, host.exists(kRuntimeRecord) ? kRuntimeRecord : kUnreadRecord);
  if (!all) return fail(all.error());
  std::vector<FileChange> out;
  for (const FileChange& change : *all) {
    // The first change of a file has its content before all of them.
    if (std::ranges::find(out, change.path, &FileChange::path) == out.end())
      out.push_back({.path = change.path, .before = change.before, .after = {}});
  }
  for (auto known = out.begin(); known != out.end();) {
    const auto now = content_of(host, known->path);
    if (!now) return fail(now.error());
    const bool ours = std::ranges::any_of(
        *all, [&](const FileChange& change) { return change.path == known->path && change.after == *now; });
    if (ours) {
      known->after = *now;
      ++known;
    } else {
      known = out.erase(known);
    }
  }
  return out;
}

Result<bool> has_been_read(const HostFs& host, const RuntimeState& state) {
  const auto read = document_of(host, kUnreadRecord);
  if (!read) return fail(read.error());
  const json& document = *read;
  if (document.is_null() || !state.reports_handlers()) return false;
  for (const json& name : document.value("knows_no_more", json::array()))
    if (!name.is_string() || state.has(name.get<std::string>())) return false;
  for (const json& handler : document.value("knows", json::array())) {
    if (!handler.is_object()) return false;
    const std::string name = handler.value("name", "");
    if (!state.has(name)) return false;
    if (!state.runtimes) continue;
    const KnownRuntime& known = *std::ranges::find(*state.runtimes, name, &KnownRuntime::name);
    if (!state.starts_shim_of(known) || known.shim != handler.value("shim", "") ||
        known.configuration != handler.value("configuration", ""))
      return false;
  }
  return true;
}

Result<> forget_this_run(HostFs& host) {
  return forget(host, kRuntimeRecord);
}

Result<> forget_runtime_record(HostFs& host) {
  // The journal that marks a running run goes last.
  if (auto r = forget(host, kUnreadRecord); !r) return r;
  return forget(host, kRuntimeRecord);
}

}  // namespace ferry::kata
