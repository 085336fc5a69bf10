// SPDX-License-Identifier: Apache-2.0
// Runs ferry-fetch as a child process and follows its progress in the agent's event loop.
#pragma once

#include <filesystem>
#include <optional>

#include "agent/artifact_pulls.h"
#include "common/event_loop.h"
#include "common/host_fs.h"
#include "kata-manager/fetch_process.h"

namespace ferry {

class FetchRunner final : public Fetcher {
 public:
  /// The loop and the host must outlive this object.
  FetchRunner(EventLoop& loop, const HostFs& host, std::filesystem::path program = fetch_program());
  FetchRunner(const FetchRunner&) = delete;
  FetchRunner& operator=(const FetchRunner&) = delete;
  FetchRunner(FetchRunner&&) = delete;
  FetchRunner& operator=(FetchRunner&&) = delete;
  ~FetchRunner() override;

  Result<> begin(const FetchRequest& request, Told told, Done done) override;
  void stop() override;

 private:
  void heard();

  EventLoop& loop_;
  const HostFs& host_;
  const std::filesystem::path program_;
  std::optional<FetchProcess> process_;
  Told told_;
  Done done_;
};

}  // namespace ferry
