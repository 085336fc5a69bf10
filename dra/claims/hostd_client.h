// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "api/claim_request.h"
#include "common/event_loop.h"
#include "common/owned_timer.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"

namespace ferry::dra {

/// A connection to hostd for one request (api/claim_request.h). Belongs to the loop's thread.
class HostdCall : Pinned {
 public:
  using Done = std::function<void(Result<std::vector<api::PreparedDevice>>)>;

  /// Connects to `socket`, relative to the host's root. Errc::unreachable: hostd does not listen there, so it
  /// has not done anything either. Other errors: this process may not enter the folder, or lacks descriptors.
  static Result<std::unique_ptr<HostdCall>> connect(EventLoop& loop, const HostFs& host,
                                                    const std::filesystem::path& socket);
  /// Closes the connection; `done` no longer runs. hostd finishes the work.
  ~HostdCall();

  /// Sends the request, once. `done` runs once, in the loop, after send() has returned; it may destroy this
  /// object. hostd's own error keeps its code. Errc::unreachable: no answer within `limit`, or hostd has
  /// closed the connection; the work may go on or be done. Or hostd could not have the node's lock, and has
  /// done nothing. Errc::malformed_host: the answer is none.
  /// Errc::usage: the request is too long.
  void send(const api::ClaimRequest& request, std::chrono::milliseconds limit, Done done);
  /// For `done`: the result is hostd's own.
  bool has_answered() const { return has_answered_; }

 private:
  HostdCall(EventLoop& loop, UniqueFd connection) : loop_(loop), connection_(std::move(connection)) {}
  void read_answer();
  void finish(Result<std::vector<api::PreparedDevice>> result);

  EventLoop& loop_;
  const UniqueFd connection_;
  OwnedTimer timer_{loop_};
  std::chrono::milliseconds limit_{};
  bool has_answered_ = false;
  Done done_;
};

}  // namespace ferry::dra
