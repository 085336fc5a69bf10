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
constexpr const char* kHeader =
    "# Written by ferry; changes are lost. `ferry kata uninstall` takes it away.\n";
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

class Planner {
 public:
  Planner(const ContainerdRelease& release, const std::filesystem::path& folder, const ConfigFiles& files,
          std::span<const RuntimeHandler> handlers)
      : release_(release), folder_(folder), files_(files), handlers_(handlers) {}

  Result<RuntimePlan> plan() {
    // The files that k0s has written. If k0s does not run, there are none.
    written_ = read_containerd_files(release_, files_, main_file(folder_)).files;
    auto here = our_runtimes(folder_, files_);
    if (!here) return fail(std::move(here).error());
    ours_ = std::move(*here);
    if (!handlers_.empty()) {
      if (auto r = check_managed(folder_, files_); !r) return fail(std::move(r).error());
      if (auto r = check_snapshotters(handlers_, release_, "a k0s with containerd"); !r)
        return fail(std::move(r).error());
      if (auto r = check_names(); !r) return fail(std::move(r).error());
    }
    FileChange change{.path = folder_ / kDropIn, .before = {}, .after = {}};
    auto now = files_.read_if_there(change.path);
    if (!now) return fail(std::move(now).error());
    change.before = std::move(*now);
    if (!handlers_.empty()) {
      const std::int64_t number = version();
      const EditPlace place{.file = change.path,
                            .section = number >= kFirstWithTwoSections ? kCriRuntime : kCriOfVersion2};
      change.after =
          kHeader + fmt::format("version = {}\n", number) + body_of(place, handlers_, false, release_);
    }
    RuntimePlan out;
    for (const auto& [name, entry] : ours_) {
      if (std::ranges::find(handlers_, name, &RuntimeHandler::name) == handlers_.end())
        out.leaving.push_back(name);
    }
    if (change.before == change.after) return out;
    out.changes.push_back(std::move(change));
    out.notes.emplace_back(
        "k0s watches this folder: it has containerd read it at once, with --no-restart too");
    return out;
  }

 private:
  std::int64_t version() const {
    std::int64_t out = 0;
    for (const ContainerdFile& file : written_) out = file.version() != 0 ? file.version() : out;
    if (out >= kOldestWithCri) return out;
    return release_.merges_sections() ? kFirstWithTwoSections : kOldestWithCri;
  }

  Result<> check_names() const {
    auto drop_ins = files_.glob(folder_ / "*.toml");
    if (!drop_ins) return fail(std::move(drop_ins).error());
    std::erase(*drop_ins, folder_ / kDropIn);
    for (const auto& path : *drop_ins) {
      const auto root = parsed(path, files_);
      if (!root) return fail(root.error());
      if (auto r = check_names_in(path, runtimes_in(*root)); !r) return r;
    }
    // k0s's own file has Ferry's runtimes, too, once k0s merged them.
    for (const ContainerdFile& file : written_) {
      TomlTable runtimes = runtimes_in(file.root);
      for (const auto& [name, entry] : ours_) runtimes.erase(name);
      if (auto r = check_names_in(file.path, runtimes); !r) return r;
    }
    return {};
  }

  Result<> check_names_in(const std::filesystem::path& path, const TomlTable& runtimes) const {
    for (const RuntimeHandler& handler : handlers_) {
      if (!runtimes.contains(handler.name)) continue;
      if (text_at(runtimes, {handler.name, "options", "ConfigPath"}) == handler.configuration.string())
        continue;
      return fail(Errc::refused,
                  fmt::format("{} has a runtime {} that is not ours", path.string(), handler.name),
                  "give Ferry's another name, or remove that one");
    }
    return {};
  }

  const ContainerdRelease& release_;
  const std::filesystem::path& folder_;
  const ConfigFiles& files_;
  std::span<const RuntimeHandler> handlers_;
  std::vector<ContainerdFile> written_;
  TomlTable ours_;
};

}  // namespace

Result<RuntimePlan> plan_k0s(const ContainerdRelease& release, const std::filesystem::path& folder,
                             const ConfigFiles& files, std::span<const RuntimeHandler> handlers) {
  return Planner(release, folder, files, handlers).plan();
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
