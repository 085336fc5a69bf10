// SPDX-License-Identifier: Apache-2.0
// A single agent on a host: two would overwrite each other's desired.json, each with a higher generation.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "common/event_loop.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"

namespace ferry::agent {

/// Starts the agent's work once it has the instance lock. In a rolling update the former agent may still have
/// it. An agent that is not root also waits until it may write the lock's folder, which hostd permits.
class AgentInstance {
 public:
  /// The loop and the host must outlive this object.
  AgentInstance(EventLoop& loop, HostFs& host, std::function<Result<>()> begin)
      : loop_(loop), host_(host), begin_(std::move(begin)) {}

  /// Runs the loop until `stop`. Errors: those of `begin`, or of the lock's file.
  Result<> run(const std::stop_token& stop);

 private:
  void try_now();
  void wait_for(std::string what);

  EventLoop& loop_;
  HostFs& host_;
  const std::function<Result<>()> begin_;
  std::optional<InstanceLock> only_;
  Result<> begun_;
  std::string waits_for_;  ///< last logged message
};

}  // namespace ferry::agent
