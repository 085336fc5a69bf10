// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/restart_check.h"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <optional>
#include <sys/stat.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/containerd/containerd_trial.h"
#include "kata-manager/runtime/runtime_record.h"

namespace ferry::kata {
namespace {

bool is_containerd(const RestartCheck& check) {
  return check.runtime->place.kind == RuntimeKind::containerd && !check.plan->after.files.empty();
}

/// The time of a file's last change; absent: no file.
std::optional<timespec> changed_at(const HostFs& host, const std::filesystem::path& path) {
  const auto fd = host.open(path.relative_path(), O_PATH);
  struct stat status {};
  if (!fd || ::fstat(fd->get(), &status) != 0) return std::nullopt;
  return status.st_ctim;
}

bool is_later(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/// A file that changed after the daemon's start, which made its socket by the same clock. Files that Ferry
/// wrote for a later start do not count.
Result<std::optional<std::filesystem::path>> edited_file(const RestartCheck& check,
                                                         const std::vector<std::filesystem::path>& files) {
  const auto started = changed_at(*check.host, check.runtime->place.socket);
  if (!started) return std::optional<std::filesystem::path>();
  const auto own = read_runtime_record(*check.host);
  if (!own) return fail(Error(own.error()));
  for (const std::filesystem::path& file : files) {
    if (std::ranges::find(*own, file, &FileChange::path) != own->end()) continue;
    const auto changed = changed_at(*check.host, file);
    if (changed && is_later(*changed, *started)) return std::optional(file);
  }
  return std::optional<std::filesystem::path>();
}

Result<> check_age(const RestartCheck& check, const std::vector<std::filesystem::path>& files,
                   const std::string& why_not_asked) {
  if (check.accept_edited_files) return {};
  auto looked = edited_file(check, files);
  if (!looked) return fail(std::move(looked).error());
  const std::optional<std::filesystem::path>& edited = *looked;
  if (!edited) return {};
  return fail(Errc::refused,
              fmt::format("{} has changed since containerd was started, and containerd could not be asked if "
                          "CRI loads with it ({})",
                          edited->string(), why_not_asked),
              "restart containerd yourself and see that its CRI serves, then run this again; or say "
              "--accept-edited-files");
}

std::vector<std::filesystem::path> files_of(const RestartCheck& check) {
  std::vector<std::filesystem::path> out;
  std::ranges::transform(check.plan->files_now, std::back_inserter(out), &ContainerdFile::path);
  return out;
}

/// k3s and rke2 render the file from these templates at each start, so a trial misses an edit of them.
Result<> check_templates(const RestartCheck& check) {
  const RuntimePlace& place = check.runtime->place;
  if (!place.rendered) return {};
  const auto folder = place.configuration.parent_path();
  return check_age(check, {folder / "config.toml.tmpl", folder / "config-v3.toml.tmpl"},
                   place.name + " makes containerd's file from it at its next start");
}

std::string no_program(const RestartCheck& check) {
  const std::string& why = check.runtime->no_program;
  return why.empty() ? "its program is not known" : why;
}

/// The place of containerd's reason: file and line if it names a key, else all files that it reads.
std::string place_of(const RestartCheck& check, std::string_view reason,
                     const std::vector<ContainerdFile>& files) {
  if (auto place = place_of_reason(*check.host, files, reason); !place.empty()) return place;
  std::vector<std::string> names;
  for (const ContainerdFile& file : files)
    if (!file.path.empty()) names.push_back(file.path.string());
  return names.empty() ? check.runtime->place.configuration.string()
                       : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<> check_restart(const RestartCheck& check) {
  if (!is_containerd(check)) return {};
  if (auto r = check_templates(check); !r) return r;
  const auto files = files_of(check);
  if (!check.runtime->program) return check_age(check, files, no_program(check));
  const auto& program = *check.runtime->program;
  const auto started = why_no_cri(*check.host, *check.writer, program, check.plan->after.files);
  if (!started) return check_age(check, files, started.error().message);
  const std::optional<std::string>& reason = *started;
  if (!reason) return {};
  // If the trial fails with the release's defaults, too, its result proves nothing.
  const std::vector<ContainerdFile> defaults(1);
  const auto without = why_no_cri(*check.host, *check.writer, program, defaults);
  const auto says = [&](const std::string& text) {
    return check_age(check, files, "started apart, it says: " + text);
  };
  if (!without) return says(without.error().message);
  if (const std::optional<std::string>& always = *without) return says(*always);
  const auto now = why_no_cri(*check.host, *check.writer, program, check.plan->files_now);
  if (now && !*now) {
    return fail(Errc::refused,
                fmt::format("{}: containerd {} would serve no CRI with Ferry's runtimes: {}",
                            place_of(check, *reason, check.plan->after.files), check.runtime->release.text(),
                            *reason),
                "please report this with the configuration files of the host; nothing was changed");
  }
  return fail(
      Errc::refused,
      fmt::format("{}: containerd {} would serve no CRI after a restart: {}",
                  place_of(check, *reason, check.plan->files_now), check.runtime->release.text(), *reason),
      "correct that in the file, then run this again; nothing was changed, and the running containerd "
      "still has its earlier configuration");
}

Result<> foresee_restart(const RestartCheck& check) {
  if (!is_containerd(check)) return {};
  if (auto r = check_templates(check); !r) return r;
  return check.runtime->program ? Result<>() : check_age(check, files_of(check), no_program(check));
}

std::optional<std::string> containerds_own_words(const RestartCheck& check) {
  if (!is_containerd(check) || !check.runtime->program) return std::nullopt;
  const auto why = why_no_cri(*check.host, *check.writer, *check.runtime->program, check.plan->after.files);
  return why ? *why : std::nullopt;
}

}  // namespace ferry::kata
