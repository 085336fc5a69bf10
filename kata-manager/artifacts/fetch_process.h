// SPDX-License-Identifier: Apache-2.0
// A running ferry-fetch, for callers that block (artifacts.h) and for callers with an event loop.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/fetch_protocol.h"

namespace ferry::kata {

class FetchProcess {
 public:
  using OnProgress = std::function<void(const FetchProgress&)>;

  /// Starts `program` for one artifact. The request with its credentials is in an unnamed memory file: in
  /// no argument, no environment and on no disk. Errc::unreachable: the program is missing.
  static Result<FetchProcess> start(const HostFs& host, const FetchRequest& request,
                                    const std::filesystem::path& program = fetch_program());
  FetchProcess(FetchProcess&& other) noexcept;
  FetchProcess& operator=(FetchProcess&&) = delete;
  FetchProcess(const FetchProcess&) = delete;
  FetchProcess& operator=(const FetchProcess&) = delete;
  /// Kills the process and waits for its end. The next fetch continues its work.
  ~FetchProcess();
  /// Kills the process. It ends, and hear() returns true, after its present read or write: on a disk that
  /// hangs, this takes long.
  void kill() const;

  /// poll() takes this descriptor; reads never block.
  int fd() const { return answers_.get(); }

  /// Reads the messages so far, once fd() is readable. True: the process ended, or closed its output.
  /// Errc::malformed_host: an unreadable message.
  Result<bool> hear(const OnProgress& on_progress);

  /// The result, as of fetch(). Call it once hear() returned true.
  Result<Artifact> answer();

 private:
  FetchProcess(int pid, UniqueFd answers) : pid_(pid), answers_(std::move(answers)) {}
  Result<> take(std::string_view bytes, const OnProgress& on_progress);

  int pid_;  ///< 0: reaped already
  UniqueFd answers_;
  std::string line_;
  FetchMessage last_;
};

}  // namespace ferry::kata
