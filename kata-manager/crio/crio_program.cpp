// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/crio/crio_program.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "kata-manager/crio/crio_plan.h"
#include "kata-manager/toml/toml_difference.h"

namespace ferry::kata {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::string_view kComment = "# ";
constexpr std::string_view kRuntime = "[crio.runtime.runtimes.";

/// True for "key = value" with a plain key, not for a sentence.
bool is_setting(std::string_view line) {
  const auto end = line.find(" = ");
  if (end == std::string_view::npos || end == 0) return false;
  return std::ranges::all_of(line.substr(0, end), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_needed(std::string_view key) {
  return key == "runtime_path" || key == "runtime_type";
}

void forget(TomlTable& crio, const std::string& name) {
  table_at(crio, {"runtime", "runtimes"}).erase(name);
}

}  // namespace

std::string with_built_in_runtimes(std::string_view printed) {
  std::string out;
  bool in_runtime = false;  // after a commented header, in its settings
  while (!printed.empty()) {
    const auto end = std::min(printed.find('\n'), printed.size());
    std::string_view line = printed.substr(0, end);
    printed.remove_prefix(std::min(end + 1, printed.size()));
    const bool is_comment = line.starts_with(kComment);
    const std::string_view inner = is_comment ? line.substr(kComment.size()) : line;
    if (is_comment && inner.starts_with(kRuntime)) {
      in_runtime = true;
      line = inner;
    } else if (in_runtime && is_comment && is_setting(inner)) {
      line = inner;
    } else {
      in_runtime = false;
    }
    out.append(line).append("\n");
  }
  return out;
}

Result<std::optional<TomlTable>> CrioProgram::configuration(const std::filesystem::path& folder) const {
  const auto cannot = std::optional<TomlTable>();
  auto text =
      writer_->output({.root = {},
                       .words = {program_.string(), "--config", (folder.parent_path() / "crio.conf").string(),
                                 "--config-dir", folder.string(), "config"},
                       .device = {}},
                      kPatience);
  if (!text && text.error().code == make_error_code(Errc::failed)) return cannot;
  if (!text) return fail(std::move(text).error());
  const std::string name = program_.string() + " config";
  auto said = parse_toml(with_built_in_runtimes(*text), name);
  // A comment may only look like a runtime. Then the comments stay comments.
  if (!said) said = parse_toml(*text, name);
  if (!said) return fail(Error(said.error()));
  const TomlValue* crio = find(*said, {"crio"});
  if (crio == nullptr || crio->table() == nullptr) return cannot;
  return std::optional(*crio->table());
}

std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after,
                                     const std::vector<std::string>& leaving,
                                     std::span<const RuntimeHandler> handlers) {
  if (!after) return "it cannot read them";
  for (const RuntimeHandler& handler : handlers) {
    const TomlValue* said = find(*after, {"runtime", "runtimes", handler.name});
    const std::string name = "runtime " + handler.name;
    if (said == nullptr || said->table() == nullptr) return name + " is not there";
    for (const auto& [key, value] : crio_entry_of(handler)) {
      const auto there = said->table()->find(key);
      const bool is_there = there != said->table()->end();
      // Some releases lack, or do not print, some of the keys.
      if (!is_there && is_needed(key)) return fmt::format("{}.{} is not there", name, key);
      if (is_there && !(there->second == value)) return fmt::format("{}.{} has another value", name, key);
    }
  }
  for (const std::string& name : leaving) {
    if (find(*after, {"runtime", "runtimes", name}) != nullptr) return "runtime " + name + " is still there";
  }
  if (!before) return std::nullopt;
  TomlTable was = *before;
  TomlTable is = *after;
  for (const RuntimeHandler& handler : handlers) {
    forget(was, handler.name);
    forget(is, handler.name);
  }
  for (const std::string& name : leaving) {
    forget(was, name);
    forget(is, name);
  }
  return first_difference(was, is, "crio");
}

}  // namespace ferry::kata
