// SPDX-License-Identifier: Apache-2.0
#include "agent/host_observer.h"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/desired_state/desired_file.h"
#include "agent/host_files.h"
#include "agent/host_status.h"
#include "agent/kata/kata_step.h"
#include "hostfs/locks.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/controller/ready_handlers.h"

namespace ferry::agent {
namespace {

// Much longer than the kernel takes between the close event of a file and the release of its lock.
constexpr std::chrono::seconds kReleased{1};

std::optional<std::uint64_t> written_generation(const HostSide& host) {
  return host.written ? std::optional(host.written->generation) : std::nullopt;
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
  HostMemory& memory = memory_.host;
  const std::string files = contents(host_, {kDesiredFile, kStatusFile});
  const bool news = std::exchange(memory.files, files) != files;
  // A start of the container runtime is no answer from hostd, so Kata's files are timed separately.
  const std::string kata = contents(host_, {kata::kReadyHandlersFile, kata::kDesiredClassesFile});
  const bool kata_news = std::exchange(memory.kata_files, kata) != kata;
  if (!kata_news && !news) return false;
  if (news) memory.changed_at = timers_.now();
  if (kata_news) memory.kata_changed_at = timers_.now();
  const auto generation = written_generation(files_);
  auto now = read_host_side(host_);
  if (now) files_ = std::move(*now);
  if (!now) spdlog::error("{}", now.error().text());
  const bool another = written_generation(files_) != generation;
  if (another || !is_open(files_)) memory.ends = 0;
  if (another) memory.has_failed = false;
  if (says_that_it_failed(files_)) memory.has_failed = true;
  if (change_outcome(files_) == ChangeOutcome::done) memory.has_failed = false;
  if (host_.read_file(kStatusFile).value_or("") != memory.last_status) memory.last_status.reset();
  return true;
}

bool HostObserver::read_liveness() {
  HostMemory& memory = memory_.host;
  const auto runs = is_present(host_, kHostdLiveness);
  const bool down = runs && !*runs;
  if (down == memory.down_since.has_value()) return false;
  memory.down_since.reset();
  if (down) {
    memory.down_since = timers_.now();
    read_files();
    if (is_open(files_)) ++memory.ends;
    memory.last_status = host_.read_file(kStatusFile).value_or("");
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
  const HostMemory& memory = memory_.host;
  out.silent = since(memory.changed_at);
  out.kata_silent = since(memory.kata_changed_at);
  out.ends = memory.ends;
  out.has_failed = memory.has_failed;
  if (memory.down_since) out.hostd_down = since(*memory.down_since);
  out.hostd_speaks = !memory.down_since && !memory.last_status;
  out.unwritable = memory_.desired_file.unwritable;
  if (const auto& same = memory_.desired_file.same; same && written_generation(files_) == same->first)
    out.same_as = same->second;
  KataMemory& kata = memory_.kata;
  if (auto unlisted = unknown_to_kubelet(node, files_.kata.ready); unlisted != kata.unlisted) {
    kata.unlisted = std::move(unlisted);
    kata.unlisted_since = now;
  }
  if (!kata.unlisted.empty()) out.kata_unlisted = since(kata.unlisted_since);
  return out;
}

}  // namespace ferry::agent
