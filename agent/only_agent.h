// SPDX-License-Identifier: Apache-2.0
// One agent on a host: two would write wanted.json in turns, each a generation above the other's.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "common/event_loop.h"
#include "common/host_fs.h"
#include "common/presence.h"
#include "common/result.h"

namespace ferry {

/// Begins what an agent does once no other one does it on this host, and waits for that: in a rolling update
/// the former may still be ending. An agent that is not root also waits until it may write the lock's folder,
/// which hostd gives it.
class OnlyAgent {
 public:
  /// The loop and the host must outlive this.
  OnlyAgent(EventLoop& loop, HostFs& host, std::function<Result<>()> begin)
      : loop_(loop), host_(host), begin_(std::move(begin)) {}

  /// Runs the loop until `stop`. Errors: those of `begin`; the lock cannot be asked for.
  Result<> run(const std::stop_token& stop);

 private:
  void try_now();
  void wait_for(std::string what);

  EventLoop& loop_;
  HostFs& host_;
  const std::function<Result<>()> begin_;
  std::optional<OnlyOne> only_;
  Result<> begun_;
  std::string waits_for_;  ///< as it was logged
};

}  // namespace ferry
