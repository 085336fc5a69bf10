// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/restart_check.h"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/controller/containerd_trial.h"
#include "kata-manager/runtimes/runtime_record.h"

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

Result<> check_age(const RestartCheck& check, const std::vector<std::filesystem::path>& files,
                   const std::string& why_not_asked) {
  if (check.accept_edited_files) return {};
  // The daemon made its socket at its start, by the same clock. Files that Ferry wrote for a later start do
  // not count.
  const auto started = changed_at(*check.host, check.runtime->place.socket);
  if (!started) return {};
  const auto own = read_runtime_record(*check.host);
  if (!own) return fail(own.error());
  for (const std::filesystem::path& file : files) {
    if (std::ranges::find(*own, file, &FileChange::path) != own->end()) continue;
    const auto changed = changed_at(*check.host, file);
    if (!changed ||
        std::pair(changed->tv_sec, changed->tv_nsec) <= std::pair(started->tv_sec, started->tv_nsec))
      continue;
    return fail(
        Errc::refused,
        fmt::format("{} has changed since containerd was started, and containerd could not be asked if "
                    "CRI loads with it ({})",
                    file.string(), why_not_asked),
        "restart containerd yourself and see that its CRI serves, then run this again; or say "
        "--accept-edited-files");
  }
  return {};
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

/// /var/run is a link to /run.
std::filesystem::path below_run(const std::filesystem::path& socket) {
  const std::string text = socket.lexically_normal().string();
  return text.starts_with("/var/run/") ? text.substr(std::string_view("/var").size()) : text;
}

/// A daemon that runs without the socket of its files has another one, which a restart takes from the
/// kubelet.
Result<> check_socket(const RestartCheck& check) {
  const RuntimePlace& place = check.runtime->place;
  if (check.accept_edited_files || !place.next_socket) return {};
  const bool is_there = check.host->exists(place.socket.relative_path());
  if (is_there && below_run(*place.next_socket) == below_run(place.socket)) return {};
  const auto unit = unit_of(*check.host, place);
  if (!unit || !is_active(*check.host, *unit)) return {};
  return fail(
      Errc::refused,
      fmt::format("{} names the socket {}, and {} runs without it: a restart would take its present "
                  "socket from the kubelet",
                  place.configuration.string(), place.next_socket->string(), *unit),
      "restart containerd yourself and see that the kubelet uses the new socket, then run this again; "
      "or say --accept-edited-files");
}

std::string no_program(const RestartCheck& check) {
  const std::string& why = check.runtime->no_program;
  return why.empty() ? "its program is not known" : why;
}

/// The place of a fault: file and line if known, else all files that containerd reads.
std::string place_of(const RestartCheck& check, const TrialFault& fault,
                     const std::vector<ContainerdFile>& files) {
  if (!fault.place.empty()) return fault.place;
  std::vector<std::string> names;
  for (const ContainerdFile& file : files)
    if (!file.path.empty()) names.push_back(file.path.string());
  return names.empty() ? check.runtime->place.configuration.string()
                       : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<std::optional<std::string>> check_restart(const RestartCheck& check, bool restarts) {
  using Untried = std::optional<std::string>;
  if (!is_containerd(check)) return Untried();
  if (restarts) {
    if (auto r = check_socket(check); !r) return fail(std::move(r).error());
    if (auto r = check_templates(check); !r) return fail(std::move(r).error());
  }
  const auto files = files_of(check);
  const auto untried = [&](const std::string& why) -> Result<Untried> {
    if (restarts)
      if (auto r = check_age(check, files, why); !r) return fail(std::move(r).error());
    return Untried(why);
  };
  if (!check.runtime->program) return untried(no_program(check));
  if (!restarts && !check.host->exists("proc/1")) return untried("this tree is no running host's");
  const auto trial = [&](std::span<const ContainerdFile> of) {
    return why_no_cri(*check.host, *check.writer, *check.runtime->program, of);
  };
  const auto started = trial(check.plan->after.files);
  if (!started) return untried(started.error().message);
  const std::optional<TrialFault>& fault = *started;
  if (!fault) return Untried();
  // If the trial fails with the release's defaults, too, its result proves nothing.
  const auto without = trial(std::vector<ContainerdFile>(1));
  const auto says = [&](const std::string& words) { return untried("started apart, it says: " + words); };
  if (!without) return says(without.error().message);
  if (const std::optional<TrialFault>& always = *without) return says(always->reason);
  const auto now = trial(check.plan->files_now);
  if (now && !*now) {
    return fail(Errc::refused,
                fmt::format("{}: containerd {} would serve no CRI with Ferry's runtimes: {}",
                            place_of(check, *fault, check.plan->after.files), check.runtime->release.text(),
                            fault->reason),
                "please report this with the configuration files of the host; nothing was changed");
  }
  return fail(
      Errc::refused,
      fmt::format("{}: containerd {} would serve no CRI after {}: {}",
                  place_of(check, *fault, check.plan->files_now), check.runtime->release.text(),
                  restarts ? "a restart" : "its next start", fault->reason),
      fmt::format("correct that, then run this again; nothing was changed{}",
                  restarts ? ", and the running containerd still has its earlier configuration" : ""));
}

Result<> foresee_restart(const RestartCheck& check, bool restarts) {
  if (!restarts || !is_containerd(check)) return {};
  if (auto r = check_socket(check); !r) return r;
  if (auto r = check_templates(check); !r) return r;
  return check.runtime->program ? Result<>() : check_age(check, files_of(check), no_program(check));
}

std::optional<std::string> containerds_own_words(const RestartCheck& check) {
  if (!is_containerd(check) || !check.runtime->program) return std::nullopt;
  const auto why = why_no_cri(*check.host, *check.writer, *check.runtime->program, check.plan->after.files);
  if (!why || !*why) return std::nullopt;
  return (*why)->reason;
}

}  // namespace ferry::kata
