// SPDX-License-Identifier: Apache-2.0
// One ferry-fetch at work, for who waits for it alone (artifacts.h) and for who has other things to do.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/fetch_protocol.h"

namespace ferry {

class FetchProcess {
 public:
  using Told = std::function<void(const FetchProgress&)>;

  /// Starts `program` for one artifact. The request, credentials too, is in a file without a name: in no
  /// argument, no environment and on no disk. Errc::unreachable: the program is not there.
  static Result<FetchProcess> start(const HostFs& host, const FetchRequest& request,
                                    const std::filesystem::path& program = fetch_program());
  FetchProcess(FetchProcess&& other) noexcept;
  FetchProcess& operator=(FetchProcess&&) = delete;
  FetchProcess(const FetchProcess&) = delete;
  FetchProcess& operator=(const FetchProcess&) = delete;
  /// Ends it. Wherever it is, the next one goes on from there.
  ~FetchProcess();

  /// To be watched; it never waits.
  int fd() const { return answers_.get(); }

  /// Reads what it has told by now, once fd() can be read. True: it has ended, or closed its answers.
  /// Errc::malformed_host: it tells what cannot be read.
  Result<bool> hear(const Told& told);

  /// Once hear() was true: what has come of it, as fetch() has it.
  Result<Artifact> answer();

 private:
  FetchProcess(int pid, UniqueFd answers) : pid_(pid), answers_(std::move(answers)) {}
  Result<> take(std::string_view bytes, const Told& told);

  int pid_;  ///< 0: it has been waited for
  UniqueFd answers_;
  std::string line_;
  FetchTold last_;
};

}  // namespace ferry
