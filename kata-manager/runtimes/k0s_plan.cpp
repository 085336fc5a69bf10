// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/k0s_plan.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/containerd_place.h"

namespace ferry::kata {
namespace {

constexpr const char* kDropIn = "ferry-kata.toml";
constexpr const char* kMain = "containerd.toml";  // beside the folder of drop-ins
// ABI: k0s's documentation of its runtime. A main file with this comment is k0s's own. Without the comment
// k0s starts containerd with the file as it is, and ignores the drop-ins.
constexpr std::string_view kManaged = "k0s_managed=true";
constexpr std::int64_t kOldestWithCri = 2;  // of the versions whose tables k0s merges
constexpr std::int64_t kFirstWithTwoSections = 3;

std::filesystem::path main_file(const std::filesystem::path& folder) {
  return folder.parent_path() / kMain;
}

Result<> check_managed(const std::filesystem::path& folder, const ConfigFiles& files) {
  const auto path = main_file(folder);
  const auto read = files.read_if_there(path);
  if (!read) return fail(read.error());
  if (!*read) return {};
  const std::string& text = **read;
  const bool is_managed = std::ranges::any_of(std::views::split(text, '\n'), [](const auto& between) {
    const std::string_view line(between.begin(), between.end());
    return trimmed(line, " \t").starts_with('#') && line.find(kManaged) != std::string_view::npos;
  });
  if (is_managed) return {};
  return fail(
      Errc::refused,
      fmt::format("{} is not k0s's own: it has no comment `# {}`, and so k0s does not read {}", path.string(),
                  kManaged, folder.string()),
      fmt::format("say `runtime: {{name: containerd, config: {}, socket: /run/k0s/containerd.sock}}` and "
                  "how it is restarted in the class file",
                  path.string()));
}

Result<TomlTable> parsed(const std::filesystem::path& path, const ConfigFiles& files) {
  const auto text = files.read_if_there(path);
  if (!text) return fail(text.error());
  return parse_toml((*text).value_or(""), path.string());
}

/// The runtimes in Ferry's drop-in, by name; empty: no drop-in.
Result<TomlTable> our_runtimes(const std::filesystem::path& folder, const ConfigFiles& files) {
  return parsed(folder / kDropIn, files).map(runtimes_in);
}

Result<> check_names_in(const std::filesystem::path& path, const TomlTable& runtimes,
                        std::span<const RuntimeHandler> handlers) {
  for (const RuntimeHandler& handler : handlers) {
    if (!runtimes.contains(handler.name)) continue;
    if (text_at(runtimes, {handler.name, "options", "ConfigPath"}) == handler.configuration.string())
      continue;
    return fail(Errc::refused,
                fmt::format("{} has a runtime {} that is not ours", path.string(), handler.name),
                "give Ferry's another name, or remove that one");
  }
  return {};
}

Result<> check_names(const std::filesystem::path& folder, const ConfigFiles& files,
                     std::span<const RuntimeHandler> handlers, const std::vector<ContainerdFile>& written,
                     const TomlTable& ours) {
  auto drop_ins = files.glob(folder / "*.toml");
  if (!drop_ins) return fail(std::move(drop_ins).error());
  std::erase(*drop_ins, folder / kDropIn);
  for (const auto& path : *drop_ins) {
    const auto root = parsed(path, files);
    if (!root) return fail(root.error());
    if (auto r = check_names_in(path, runtimes_in(*root), handlers); !r) return r;
  }
  // k0s's own file has Ferry's runtimes, too, once k0s merged them.
  for (const ContainerdFile& file : written) {
    TomlTable runtimes = runtimes_in(file.root);
    for (const auto& [name, entry] : ours) runtimes.erase(name);
    if (auto r = check_names_in(file.path, runtimes, handlers); !r) return r;
  }
  return {};
}

}  // namespace

Result<RuntimePlan> plan_k0s(const ContainerdRelease& release, const std::filesystem::path& folder,
                             const ConfigFiles& files, std::span<const RuntimeHandler> handlers) {
  // The files that k0s has written. If k0s does not run, there are none.
  const auto written = read_containerd_files(release, files, main_file(folder)).files;
  const auto here = our_runtimes(folder, files);
  if (!here) return fail(here.error());
  std::optional<std::string> after;
  if (!handlers.empty()) {
    if (auto r = check_managed(folder, files); !r) return fail(std::move(r).error());
    if (auto r = check_snapshotters(handlers, release, "a k0s with containerd"); !r)
      return fail(std::move(r).error());
    if (auto r = check_names(folder, files, handlers, written, *here); !r) return fail(std::move(r).error());
    std::int64_t version = last_version(written);  // of the drop-in
    if (version < kOldestWithCri)
      version = release.merges_sections() ? kFirstWithTwoSections : kOldestWithCri;
    const EditPlace place{.file = folder / kDropIn,
                          .section = version >= kFirstWithTwoSections ? kCriRuntime : kCriOfVersion2};
    after = kDropInHeader + fmt::format("version = {}\n", version) + body_of(place, handlers, false, release);
  }

  std::vector<std::string> ours;
  for (const auto& [name, entry] : *here) ours.push_back(name);
  auto out = plan_drop_in(folder / kDropIn, std::move(after), ours, files, handlers);
  if (out && !out->changes.empty())
    out->notes.emplace_back(
        "k0s watches this folder: it has containerd read it at once, with --no-restart too");
  return out;
}

Result<std::vector<ConfiguredRuntime>> configured_in_k0s(const std::filesystem::path& folder,
                                                         const ConfigFiles& files) {
  auto runtimes = our_runtimes(folder, files);
  if (!runtimes) return fail(std::move(runtimes).error());
  std::vector<ConfiguredRuntime> out;
  for (const auto& [name, entry] : *runtimes) {
    if (entry.table() == nullptr) continue;
    out.push_back(configured_runtime(name, folder / kDropIn, *entry.table()));
  }
  return out;
}

}  // namespace ferry::kata
