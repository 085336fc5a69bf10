// SPDX-License-Identifier: Apache-2.0
#include "agent/host_observer.h"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/host_files.h"
#include "agent/kata/kata_step.h"
#include "api/files.h"
#include "api/host_status.h"
#include "hostfs/locks.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/controller/ready_handlers.h"

namespace ferry::agent {
namespace {

// Much longer than the kernel takes between the close event of a file and the release of its lock.
constexpr std::chrono::seconds kReleased{1};

std::optional<std::uint64_t> written_generation(const HostSide& host) {
  return host.written ? host.written->generation : std::nullopt;
}

/// True if hostd has yet to report the result of desired.json.
bool is_open(const HostSide& host) {
  return host.written && (!has_answered(host) || host_is_changing(host));
}

std::string contents(const HostFs& host, std::initializer_list<const char*> files) {
  std::string out;
  for (const char* file : files) out += host.read_file(file).value_or("") + "\n";
  return out;
}

}  // namespace

bool HostObserver::read_files() {
  const std::string files = contents(host_, {api::kDesiredFile, api::kStatusFile});
  const bool news = std::exchange(memory_.files, files) != files;
  // A start of the container runtime is no answer from hostd, so Kata's files are timed separately.
  const std::string kata = contents(host_, {api::kReadyHandlersFile, api::kDesiredClassesFile});
  const bool kata_news = std::exchange(memory_.kata_files, kata) != kata;
  if (!kata_news && !news) return false;
  if (news) memory_.changed_at = timers_.now();
  if (kata_news) memory_.kata_changed_at = timers_.now();
  const auto generation = written_generation(files_);
  auto now = read_host_side(host_);
  if (now) files_ = std::move(*now);
  if (!now) spdlog::error("{}", now.error().text());
  const bool another = written_generation(files_) != generation;
  if (another || !is_open(files_)) memory_.ends = 0;
  if (another) memory_.has_failed = false;
  if (says_that_it_failed(files_)) memory_.has_failed = true;
  if (change_outcome(files_) == ChangeOutcome::done) memory_.has_failed = false;
  if (host_.read_file(api::kStatusFile).value_or("") != memory_.last_status) memory_.last_status.reset();
  return true;
}

bool HostObserver::read_liveness() {
  const auto runs = is_present(host_, api::kHostdLiveness);
  const bool down = runs && !*runs;
  if (down == memory_.down_since.has_value()) return false;
  memory_.down_since.reset();
  if (down) {
    memory_.down_since = timers_.now();
    read_files();
    if (is_open(files_)) ++memory_.ends;
    memory_.last_status = host_.read_file(api::kStatusFile).value_or("");
  }
  read_liveness_again();
  return true;
}

/// A close event comes before the release of the lock. Also, another process that checked the lock at the
/// same moment looked like hostd.
void HostObserver::read_liveness_again() {
  again_.set(timers_.now() + kReleased, [this] {
    if (read_liveness()) queue_.schedule();
  });
}

void HostObserver::read() {
  const bool news = read_files();
  if (read_liveness() || news) queue_.schedule();
  read_liveness_again();
}

HostSide HostObserver::snapshot(const policy::NodeObject& node) {
  const Moment now = timers_.now();
  const auto since = [now](Moment begin) {
    return std::chrono::duration_cast<std::chrono::seconds>(now - begin);
  };
  HostSide out = files_;
  out.silent = since(memory_.changed_at);
  out.kata_silent = since(memory_.kata_changed_at);
  out.ends = memory_.ends;
  out.has_failed = memory_.has_failed;
  if (memory_.down_since) out.hostd_down = since(*memory_.down_since);
  out.hostd_speaks = !memory_.down_since && !memory_.last_status;
  out.unwritable = memory_.unwritable;
  if (const auto& same = memory_.same; same && written_generation(files_) == same->first)
    out.same_as = same->second;
  if (auto unlisted = unknown_to_kubelet(node, files_.kata.ready); unlisted != memory_.unlisted) {
    memory_.unlisted = std::move(unlisted);
    memory_.unlisted_since = now;
  }
  if (!memory_.unlisted.empty()) out.kata_unlisted = since(memory_.unlisted_since);
  return out;
}

}  // namespace ferry::agent
