// SPDX-License-Identifier: Apache-2.0
// Acts on the host that a driver may never return from, each done by a process of its own.
//
// Unbinding a GPU in use can block for ever in an uninterruptible state: no signal ends it, and whoever made
// the write is lost. So the write is made by a child that inherits nothing but its pipe, waited for with a
// deadline and, past it, left behind: recorded (stuck_writes.h), never killed, never repeated.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Loading a big driver or resetting a GPU takes tens of seconds; nothing healthy takes longer than this.
inline constexpr std::chrono::seconds kWriteDeadline{90};

class HostWriter {
 public:
  HostWriter() = default;
  HostWriter(const HostWriter&) = delete;
  HostWriter& operator=(const HostWriter&) = delete;
  HostWriter(HostWriter&&) = delete;
  HostWriter& operator=(HostWriter&&) = delete;
  virtual ~HostWriter() = default;

  /// One write(2) of `value` to an existing attribute below the host's root. The kernel's errno is the
  /// error's code; Errc::stuck when it has not returned by `deadline`.
  virtual Result<> write(const std::filesystem::path& relative, std::string_view value,
                         std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Loads a module (underscores, no suffix) and what it depends on from the host's own lib/modules. Loaded
  /// already or built in is success. Errors as above; ENOENT when there is no such module.
  virtual Result<> load_module(std::string_view name,
                               std::chrono::milliseconds deadline = kWriteDeadline) = 0;
};

/// The real one: spawns `program` (our own executable) as `program host-act ...` for each act.
class SpawningWriter final : public HostWriter {
 public:
  explicit SpawningWriter(HostFs& host, std::filesystem::path program = "/proc/self/exe");
  Result<> write(const std::filesystem::path& relative, std::string_view value,
                 std::chrono::milliseconds deadline) override;
  Result<> load_module(std::string_view name, std::chrono::milliseconds deadline) override;

 private:
  HostFs* host_;
  std::filesystem::path program_;
};

/// The word that makes our executable do one act and end: argv[1].
inline constexpr std::string_view kHostActVerb = "host-act";

/// The child's main: `host-act write ROOT PATH VALUE` or `host-act load-module ROOT NAME`. Prints the errno
/// (0 for done) on stdout; exits 0 when it could print, 2 when called wrongly.
int host_act_main(int argc, char** argv);

}  // namespace ferry
