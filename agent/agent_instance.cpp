// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <filesystem>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/host_files.h"
#include "agent/node_agent.h"
#include "api/files.h"

namespace ferry::agent {
namespace {

// The release of a flock raises no event. Neither does the change of a folder's mode before this process may
// watch it.
constexpr auto kBetweenTries = std::chrono::seconds(1);

}  // namespace

Result<> AgentInstance::run(const std::stop_token& stop) {
  loop_.post([this] { try_now(); });
  loop_.run(stop);
  return begun_;
}

void AgentInstance::try_now() {
  if (only_) return;
  auto claimed = InstanceLock::claim(host_, api::kAgentLock);
  if (claimed) {
    if (!waits_for_.empty()) spdlog::info("this agent serves the node now");
    only_ = std::move(*claimed);
    begun_ = begin_();
    if (!begun_) loop_.finish();
    return;
  }
  if (claimed.error().code == Errc::refused)
    return wait_for("another ferry agent serves this node: waiting for its end");
  // In an update the agent may start before the new hostd.
  if (claimed.error().code == std::errc::permission_denied && ::geteuid() != 0)
    return wait_for(
        fmt::format("{}: hostd has not given /{} to group {}, this agent's: waiting for that; `ferry hostd "
                    "--agent-group={}` on this node does it, a hostd of an earlier version does not",
                    claimed.error().message, std::filesystem::path(api::kAgentLock).parent_path().string(),
                    ::getegid(), ::getegid()));
  begun_ = fail(std::move(claimed).error());
  loop_.finish();
}

void AgentInstance::wait_for(std::string what) {
  if (std::exchange(waits_for_, what) != what) spdlog::warn("{}", what);
  loop_.at(EventLoop::Clock::now() + kBetweenTries, [this] { try_now(); });
}

}  // namespace ferry::agent
