// SPDX-License-Identifier: Apache-2.0
// Writes the host status (api/host_status.h), and only after a change of it.
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include "api/host_status.h"
#include "common/result.h"
#include "host/keeper_memory.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

class StatusFile {
 public:
  /// `host` and `memory` must outlive this object. `advertised`: the plugin's file, which names the last
  /// status that the plugin has answered.
  StatusFile(HostFs& host, std::filesystem::path file, std::filesystem::path advertised, KeeperMemory& memory)
      : host_(host), file_(std::move(file)), advertised_(std::move(advertised)), memory_(memory) {}

  /// Publishes a new status, after it has added this process, the boot, and the plugin's order.
  Result<> publish(api::HostStatus next);
  /// Publishes a status that was published before, with changes.
  Result<> publish_again(api::HostStatus next);

  /// Passes on serving.json, the plugin's order. It is published at once, even if the round has no other
  /// news, because a change of the host may take minutes. If the file is unreadable, the last order stands,
  /// also one from an earlier hostd.
  void pass_on_serving(const std::filesystem::path& serving_file);

  /// The present unavailable devices, or those that an earlier hostd published.
  std::vector<api::UnavailableDevice> unavailable() const;

 private:
  api::HostStatus left_by_the_last() const;
  void begin_generations();

  HostFs& host_;
  const std::filesystem::path file_;
  const std::filesystem::path advertised_;
  KeeperMemory& memory_;
};

}  // namespace ferry::host
