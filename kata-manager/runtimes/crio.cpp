// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/crio.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"

namespace ferry::kata {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::string_view kComment = "# ";
constexpr std::string_view kRuntime = "[crio.runtime.runtimes.";

/// A handler's table in Ferry's drop-in: crio.runtime.runtimes.NAME.
TomlTable entry_of(const RuntimeHandler& handler) {
  // A guest with GPUs takes minutes to start; CRI-O's default limit is 240 s.
  constexpr std::int64_t kCreateSeconds = 1200;
  return {{"runtime_type", {std::string("vm")}},
          {"runtime_path", {handler.shim.string()}},
          {"runtime_config_path", {handler.configuration.string()}},
          {"runtime_root", {std::string("/run/vc")}},
          {"privileged_without_host_devices", {true}},
          {"container_create_timeout", {kCreateSeconds}}};
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
    // "key = value" with a plain key is a setting, a sentence is none.
    const auto equals = inner.find(" = ");
    const bool is_setting = equals != std::string_view::npos && equals > 0 &&
                            std::ranges::all_of(inner.substr(0, equals), [](char c) {
                              return is_lower(c) || is_digit(c) || c == '_';
                            });
    if (is_comment && inner.starts_with(kRuntime)) {
      in_runtime = true;
      line = inner;
    } else if (in_runtime && is_comment && is_setting) {
      line = inner;
    } else {
      in_runtime = false;
    }
    out.append(line).append("\n");
  }
  return out;
}

Result<std::optional<TomlTable>> crio_configuration(HostWriter& writer, const std::filesystem::path& program,
                                                    const std::filesystem::path& folder) {
  const auto cannot = std::optional<TomlTable>();
  auto text =
      writer.output({.words = {program.string(), "--config", (folder.parent_path() / "crio.conf").string(),
                               "--config-dir", folder.string(), "config"}},
                    kPatience);
  if (!text && text.error().code == make_error_code(Errc::failed)) return cannot;
  if (!text) return fail(std::move(text).error());
  const std::string name = program.string() + " config";
  auto said = parse_toml(with_built_in_runtimes(*text), name);
  // A comment may only look like a runtime. Then the comments stay comments.
  if (!said) said = parse_toml(*text, name);
  if (!said) return fail(said.error());
  const TomlTable* crio = find_table(*said, {"crio"});
  if (crio == nullptr) return cannot;
  return std::optional(*crio);
}

std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after,
                                     const std::vector<std::string>& leaving,
                                     std::span<const RuntimeHandler> handlers) {
  if (!after) return "it cannot read them";
  for (const RuntimeHandler& handler : handlers) {
    const TomlTable* said = find_table(*after, {"runtime", "runtimes", handler.name});
    const std::string name = "runtime " + handler.name;
    if (said == nullptr) return name + " is not there";
    for (const auto& [key, value] : entry_of(handler)) {
      const auto there = said->find(key);
      const bool is_there = there != said->end();
      // Some releases lack, or do not print, some of the keys.
      const bool is_needed = key == "runtime_path" || key == "runtime_type";
      if (!is_there && is_needed) return fmt::format("{}.{} is not there", name, key);
      if (is_there && !(there->second == value)) return fmt::format("{}.{} has another value", name, key);
    }
  }
  for (const std::string& name : leaving)
    if (find(*after, {"runtime", "runtimes", name}) != nullptr) return "runtime " + name + " is still there";
  if (!before) return std::nullopt;
  TomlTable was = *before;
  TomlTable is = *after;
  for (TomlTable* const crio : {&was, &is}) {
    TomlTable& runtimes = table_at(*crio, {"runtime", "runtimes"});
    for (const RuntimeHandler& handler : handlers) runtimes.erase(handler.name);
    for (const std::string& name : leaving) runtimes.erase(name);
  }
  return first_difference(was, is, "crio");
}

namespace {

// The number sorts after distributions' files and before an administrator's additions.
constexpr const char* kDropIn = "60-ferry-kata.conf";

const TomlTable& runtimes_of(const TomlTable& root) {
  static const TomlTable none;
  const TomlTable* runtimes = find_table(root, {"crio", "runtime", "runtimes"});
  return runtimes == nullptr ? none : *runtimes;
}

Result<> check(const RuntimeHandler& handler) {
  // ABI: CRI-O's own check of a runtime of type vm: ^containerd-shim-[a-zA-Z0-9\-\+]+$
  constexpr std::string_view kPrefix = "containerd-shim-";
  const std::string shim = handler.shim.filename();
  if (!shim.starts_with(kPrefix) || shim.size() == kPrefix.size() ||
      !std::all_of(shim.begin() + kPrefix.size(), shim.end(),
                   [](char c) { return is_alphanumeric(c) || c == '-' || c == '+'; })) {
    return fail(Errc::unsupported, fmt::format("CRI-O takes no shim of the name {}", shim),
                "its file must be called containerd-shim-…, with letters, digits, - and + only");
  }
  if (handler.snapshotter) {
    return fail(
        Errc::unsupported,
        fmt::format("CRI-O has no snapshotters, and {} asks for {}", handler.name, *handler.snapshotter),
        "leave it out");
  }
  return {};
}

/// The main file and all drop-ins but Ferry's, in subfolders too.
Result<std::vector<std::filesystem::path>> other_files(const std::filesystem::path& folder,
                                                       const ConfigFiles& files) {
  std::vector<std::filesystem::path> out = {folder.parent_path() / "crio.conf"};
  for (const char* pattern : {"*", "*/*", "*/*/*"}) {
    auto found = files.glob(folder / pattern);
    if (!found) return fail(std::move(found).error());
    std::ranges::move(*found, std::back_inserter(out));
  }
  std::erase(out, folder / kDropIn);
  return out;
}

/// True for a copy of Ferry's runtime in another program's file, such as by `crio config > crio.conf`. CRI-O
/// does not start while a runtime's files are missing.
bool is_copy(const TomlTable& runtimes, const std::string& name) {
  return is_configuration_of_ferry(text_at(runtimes, {name, "runtime_config_path"}));
}

Result<> check_names(const std::filesystem::path& path, const TomlTable& runtimes,
                     std::span<const RuntimeHandler> handlers) {
  for (const RuntimeHandler& handler : handlers) {
    if (!runtimes.contains(handler.name) || is_copy(runtimes, handler.name)) continue;
    return fail(Errc::refused,
                fmt::format("{} has a runtime {} that is not ours", path.string(), handler.name),
                "give Ferry's another name, or remove that one");
  }
  return {};
}

/// Plans that the file loses its copies, unless they lead to the same files as the handlers.
Result<> remove_copies(const std::filesystem::path& path, const TomlTable& runtimes, const ConfigFiles& files,
                       std::span<const RuntimeHandler> handlers, RuntimePlan& out) {
  std::vector<TomlPath> copies;
  for (const auto& [name, entry] : runtimes) {
    if (!is_copy(runtimes, name)) continue;
    const auto handler = std::ranges::find(handlers, name, &RuntimeHandler::name);
    if (handler != handlers.end() && text_at(runtimes, {name, "runtime_path"}) == handler->shim.string() &&
        text_at(runtimes, {name, "runtime_config_path"}) == handler->configuration.string())
      continue;
    copies.push_back({"crio", "runtime", "runtimes", name});
    out.notes.push_back(fmt::format("{}: another program has copied {} from Ferry's drop-in: the copy goes",
                                    path.string(), name));
  }
  if (copies.empty()) return {};
  auto before = files.read(path);
  if (!before) return fail(std::move(before).error());
  auto after = without_tables(*before, path.string(), copies);
  if (!after) return fail(std::move(after).error());
  out.changes.push_back({.path = path, .before = std::move(*before), .after = std::move(*after)});
  return {};
}

}  // namespace

Result<TomlTable> read_crio_file(const std::filesystem::path& path, const ConfigFiles& files) {
  const auto text = files.read_if_there(path);
  if (!text && text.error().code == std::errc::is_a_directory) return TomlTable();
  if (!text) return fail(text.error());
  return parse_toml((*text).value_or(""), path.string());
}

Result<RuntimePlan> plan_crio(const std::filesystem::path& folder, const ConfigFiles& files,
                              std::span<const RuntimeHandler> handlers) {
  for (const RuntimeHandler& handler : handlers)
    if (auto r = check(handler); !r) return fail(std::move(r).error());
  const auto here = configured_in_crio(folder, files);
  if (!here) return fail(here.error());
  std::vector<std::string> ours;
  for (const ConfiguredRuntime& runtime : *here) ours.push_back(runtime.name);

  std::optional<std::string> after;
  if (!handlers.empty()) {
    std::string& text = after.emplace(kDropInHeader);
    for (const RuntimeHandler& handler : handlers)
      text += toml_text({"crio", "runtime", "runtimes", handler.name}, entry_of(handler));
  }
  auto out = plan_drop_in(folder / kDropIn, std::move(after), ours, files, handlers);
  if (!out) return out;
  const auto others = other_files(folder, files);
  if (!others) return fail(others.error());
  for (const auto& path : *others) {
    const auto root = read_crio_file(path, files);
    if (!root) return fail(root.error());
    const TomlTable& runtimes = runtimes_of(*root);
    if (auto r = check_names(path, runtimes, handlers); !r) return fail(std::move(r).error());
    if (auto r = remove_copies(path, runtimes, files, handlers, *out); !r) return fail(std::move(r).error());
  }
  return out;
}

Result<std::vector<ConfiguredRuntime>> configured_in_crio(const std::filesystem::path& folder,
                                                          const ConfigFiles& files) {
  auto paths = other_files(folder, files);
  if (!paths) return fail(std::move(paths).error());
  paths->insert(paths->begin(), folder / kDropIn);
  std::vector<ConfiguredRuntime> out;
  for (const auto& path : *paths) {
    const auto root = read_crio_file(path, files);
    if (!root) return fail(root.error());
    const bool is_own = path == folder / kDropIn;
    const TomlTable& runtimes = runtimes_of(*root);
    for (const auto& [name, entry] : runtimes) {
      if (entry.table() == nullptr || (!is_own && !is_copy(runtimes, name)) ||
          std::ranges::find(out, name, &ConfiguredRuntime::name) != out.end())
        continue;
      out.push_back({{.name = name,
                      .shim = text_at(*entry.table(), {"runtime_path"}),
                      .configuration = text_at(*entry.table(), {"runtime_config_path"})},
                     path});
      out.back().unmarked = !is_own;
    }
  }
  std::ranges::sort(out, {}, &ConfiguredRuntime::name);
  return out;
}

}  // namespace ferry::kata
