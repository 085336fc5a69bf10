// SPDX-License-Identifier: Apache-2.0
// A real containerd in a folder of its own: started, stopped and asked like that of a node.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "kata-manager/runtimes/containerd_release.h"

namespace ferry::test {

struct ContainerdBinary {
  kata::ContainerdRelease release;
  std::filesystem::path path;
};

/// Those that FERRY_CONTAINERDS names, "VERSION PATH" a line (scripts/lib/containerd-releases).
std::vector<ContainerdBinary> containerd_binaries();

/// Reads what a containerd says until that is that it has booted. False: it ended before, or took longer than
/// a minute.
bool reads_that_it_has_booted(int output, std::string& log);

class ContainerdDaemon {
 public:
  /// Everything of it lies below `folder`: etc/containerd/config.toml, run/containerd/containerd.sock.
  ContainerdDaemon(ContainerdBinary binary, std::filesystem::path folder);
  ContainerdDaemon(const ContainerdDaemon&) = delete;
  ContainerdDaemon& operator=(const ContainerdDaemon&) = delete;
  ContainerdDaemon(ContainerdDaemon&&) = delete;
  ContainerdDaemon& operator=(ContainerdDaemon&&) = delete;
  ~ContainerdDaemon();

  std::filesystem::path main() const { return folder_ / "etc/containerd/config.toml"; }
  std::filesystem::path socket() const { return folder_ / "run/containerd/containerd.sock"; }
  /// What keeps it in its folder, in the words of a main file of version 2.
  std::string own_settings() const;

  /// Returns when it serves, the kubelet's questions too; false when it ended or never does.
  bool start();
  void stop();
  const std::string& log() const { return log_; }

 private:
  bool runs_pods();

  ContainerdBinary binary_;
  std::filesystem::path folder_;
  UniqueFd output_;
  int pid_ = 0;
  std::string log_;
};

}  // namespace ferry::test
