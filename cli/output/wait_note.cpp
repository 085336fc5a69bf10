// SPDX-License-Identifier: Apache-2.0
#include "cli/output/wait_note.h"

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/process/standard_streams.h"

namespace ferry::cli {
namespace {

constexpr unsigned kFirst = 2;
constexpr unsigned kBetween = 10;

void say_while_it_lasts(const std::stop_token& stop, const std::string& what,
                        const std::function<void(const std::string&)>& say, std::chrono::milliseconds unit) {
  const auto begun = std::chrono::steady_clock::now();
  std::mutex mutex;
  std::condition_variable_any ended;
  std::unique_lock lock(mutex);
  for (unsigned at = kFirst;; at = at == kFirst ? kBetween : at + kBetween) {
    ended.wait_until(lock, stop, begun + at * unit, [] { return false; });
    if (stop.stop_requested()) return;
    say(fmt::format("{}: {} s so far\n", what, at));
  }
}

/// The thread takes no signals: those of a change are for the thread that makes it.
std::optional<std::jthread> said_beside(std::string what, std::function<void(const std::string&)> say,
                                        std::chrono::milliseconds unit) {
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::optional<std::jthread> out;
  try {
    out.emplace([what = std::move(what), say = std::move(say), unit](const std::stop_token& stop) {
      say_while_it_lasts(stop, what, say, unit);
    });
  } catch (const std::system_error&) {
    // The wait goes on without notes if no thread can start.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return out;
}

}  // namespace

WaitNote::WaitNote(std::string what, std::chrono::milliseconds unit) {
  if (::isatty(STDERR_FILENO) != 1) return;
  thread_ = said_beside(std::move(what), say_to_stderr_if_it_is_taken, unit);
}

WaitNote::WaitNote(std::string what, std::function<void(const std::string& line)> say,
                   std::chrono::milliseconds unit)
    : thread_(said_beside(std::move(what), std::move(say), unit)) {}

}  // namespace ferry::cli
