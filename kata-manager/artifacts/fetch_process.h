// SPDX-License-Identifier: Apache-2.0
// A running ferry-fetch, for callers with an event loop. Callers that block have fetch() of artifacts.h.
#pragma once

#include <filesystem>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

class FetchProcess {
 public:
  /// Starts `program` for one artifact. The request with its credentials is in an unnamed memory file: in
  /// no argument, no environment and on no disk. Errc::unreachable: the program is missing.
  static Result<FetchProcess> start(const HostFs& host, const FetchRequest& request,
                                    const std::filesystem::path& program = fetch_program());
  FetchProcess(FetchProcess&& other) noexcept;
  FetchProcess& operator=(FetchProcess&&) = delete;
  FetchProcess(const FetchProcess&) = delete;
  FetchProcess& operator=(const FetchProcess&) = delete;
  /// Kills the process and waits for its end. Its skopeo ends with it.
  ~FetchProcess();
  /// Kills the process. It ends, and hear() returns true, after its present read or write: on a disk that
  /// hangs, this takes long.
  void kill() const;

  /// poll() takes this descriptor; reads never block.
  int fd() const { return output_.get(); }

  /// Reads the answer so far, once fd() is readable. True: the process ended, or closed its output.
  Result<bool> hear();

  /// The result, as of fetch(). Call it once hear() returned true.
  Result<Artifact> answer();

 private:
  FetchProcess(int pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}

  int pid_;  ///< 0: reaped already
  UniqueFd output_;
  std::string text_;
};

}  // namespace ferry::kata
