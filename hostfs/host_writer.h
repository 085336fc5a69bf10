// SPDX-License-Identifier: Apache-2.0
// Acts on the host that may never return from a driver, performed by a child process.
//
// Unbinding a GPU in use can block for ever in an uninterruptible state: no signal ends it, and the writing
// process is lost. So a child writes, which inherits only its two descriptors. Past a deadline the child is
// left behind: recorded (stuck_writes.h), never killed, never repeated.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "hostfs/write_progress.h"

namespace ferry {

enum class ActKind : char;  // host_act_request.h

/// Deadline of a write: loading a big driver or resetting a GPU takes tens of seconds, but never this long.
inline constexpr std::chrono::seconds kWriteDeadline{90};

/// The hint for a read that is late.
inline constexpr const char* kLockedHint =
    "a driver is probing, resetting or leaving that device and keeps its lock: try again once it has done";

/// Deadline of a read: it waits for another act on the device, and its caller can do without the answer.
inline constexpr std::chrono::seconds kReadDeadline{2};

/// An act that takes longer is recorded until it returns, since its parent may be killed first. A write of a
/// batch is recorded within twice this.
inline constexpr std::chrono::seconds kSlowWrite{1};

/// A program of the host, with its arguments.
struct HostCommand {
  std::filesystem::path root = {};  ///< the program's root directory below the host's root; empty: the host's
  std::vector<std::string> words;   ///< the program's path there, and its arguments
  std::string device = {};          ///< the device it acts on; named by its stuck record
  /// Set for a program without a device: at the deadline it is killed with its process group, and its end is
  /// awaited. Other programs are left behind, since a driver may be half way.
  bool killed_when_late = false;
  std::string text() const;  ///< "/usr/lib/nvidia/sriov-manage -e 0000:01:00.0"
};

/// A call of a library of the host's driver.
struct LibraryCall {
  std::string name;      ///< the library's name in host_act_main()
  std::string request;   ///< in the library's own format
  std::string device;    ///< the device it acts on; named by its stuck record
  bool changes = false;  ///< the call changes the device
  std::string what;      ///< for errors: "read the GPU instances of 0000:17:00.0"
};

/// A write(2) of a value to an existing attribute below the host's root.
struct AttributeWrite {
  std::filesystem::path path;  ///< relative
  std::string value;
  /// Writes only if nothing is set, which is read right before; otherwise EEXIST.
  bool only_if_unset = false;
};

/// True: an attribute with this text has nothing set (empty, blank, or 0).
bool is_unset(std::string_view attribute);

class HostWriter : Pinned {
 public:
  virtual ~HostWriter() = default;

  /// Makes one write(2) of `value` to an existing attribute below the host's root. The error's code is the
  /// kernel's errno, or Errc::stuck if the write has not returned by `deadline`.
  virtual Result<> write(const std::filesystem::path& relative, std::string_view value,
                         std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Makes the writes in order up to the first that fails, and returns its error. `begin`, if set, gets each
  /// write's number before its answer is awaited, maybe late. Errors and deadline of each as in write().
  virtual Result<> write_in_order(std::span<const AttributeWrite> writes,
                                  const std::function<void(std::size_t)>& begin) {
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (begin) begin(i);
      if (auto done = write_checked(writes[i]); !done) return done;
    }
    return {};
  }

  /// Loads a module (underscores, no suffix) and its dependencies from the host's lib/modules. A loaded or
  /// built-in module is success. Errors as in write(); ENOENT: no such module.
  virtual Result<> load_module(std::string_view name,
                               std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Unloads a module (underscores, no suffix), at once or not at all. A module that is not loaded is
  /// success. EAGAIN: in use; EBUSY: being loaded or unloaded, or cannot be unloaded.
  virtual Result<> unload_module(std::string_view name,
                                 std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Runs a program that changes a device, to its end. The program inherits nothing, has no input, and its
  /// output is dropped. ENOENT: no such program; EPERM: it needs another root directory, and we lack
  /// CAP_SYS_CHROOT; Errc::failed: its exit status is not 0; ETIMEDOUT: it was killed at the deadline.
  virtual Result<> run(const HostCommand& command, std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Runs a program that only reports, and returns its output. Errors as in run(); EMSGSIZE: more than 60 KiB
  /// of output; Errc::unsupported: this writer starts no programs.
  virtual Result<std::string> output(const HostCommand& command,
                                     std::chrono::milliseconds /*deadline*/ = kWriteDeadline) {
    return fail(Errc::unsupported, "run " + command.text() + ": no program can be started");
  }

  /// Runs a program that acts on no device, and returns its output on both streams, with any exit status. At
  /// the deadline it is killed with all that it started: ETIMEDOUT. Other errors as in output().
  virtual Result<std::string> transcript(const HostCommand& command, std::chrono::milliseconds /*deadline*/) {
    return fail(Errc::unsupported, "run " + command.text() + ": no program can be started");
  }

  /// Reads an attribute, without one trailing newline, that the kernel serves under a lock held by a hanging
  /// driver. Errors as in write().
  virtual Result<std::string> read(const std::filesystem::path& relative,
                                   std::chrono::milliseconds deadline = kReadDeadline) = 0;

  /// Calls a library in the child: the library may crash, hang, or keep a GPU open while it is loaded.
  /// Returns the library's answer, its own errors included. Errc::unsupported: the child has no such library.
  virtual Result<std::string> call(const LibraryCall& call, std::chrono::milliseconds /*deadline*/) {
    return fail(Errc::unsupported, call.what + ": no library can be asked");
  }

  /// Announces `acts` acts at the same time, so that children can start early.
  virtual void prepare(std::size_t /*acts*/) {}

 private:
  Result<> write_checked(const AttributeWrite& write);
};

/// The real writer. Its children run this executable as `program host-act ROOT`; prepare() starts them, or an
/// act for which no child is idle. Idle children are kept, and end with this object. A child that misses a
/// deadline is never used again. An act longer than `slow` is recorded (stuck_writes.h) until it returns.
/// While a child has not returned from a read, the same read is Errc::stuck at once, without another child.
/// Each write of a batch has `deadline_of_each`. A child whose record cannot be removed is ended, which voids
/// the record. Several threads may act at a time, each with a child of its own.
class SpawningWriter final : public HostWriter {
 public:
  explicit SpawningWriter(HostFs& host, std::filesystem::path program = "/proc/self/exe",
                          std::chrono::milliseconds slow = kSlowWrite,
                          std::chrono::milliseconds deadline_of_each = kWriteDeadline);
  ~SpawningWriter() override;
  Result<> write(const std::filesystem::path& relative, std::string_view value,
                 std::chrono::milliseconds deadline) override;
  Result<> load_module(std::string_view name, std::chrono::milliseconds deadline) override;
  Result<> unload_module(std::string_view name, std::chrono::milliseconds deadline) override;
  Result<> run(const HostCommand& command, std::chrono::milliseconds deadline) override;
  Result<std::string> output(const HostCommand& command, std::chrono::milliseconds deadline) override;
  Result<std::string> transcript(const HostCommand& command, std::chrono::milliseconds deadline) override;
  Result<std::string> read(const std::filesystem::path& relative,
                           std::chrono::milliseconds deadline) override;
  Result<std::string> call(const LibraryCall& call, std::chrono::milliseconds deadline) override;
  void prepare(std::size_t acts) override;
  /// The child gets all writes at once, with no wait between two of them.
  Result<> write_in_order(std::span<const AttributeWrite> writes,
                          const std::function<void(std::size_t)>& begin) override;

 private:
  struct Child {
    int pid = 0;
    UniqueFd line;  // requests out, errno and answer back
    WriteProgress progress;
    bool still_recorded = false;  // its stuck record remains although it has answered
  };
  struct Answer {
    std::optional<int> number;  // absent: the child ended without an answer
    std::string read;
  };
  Result<Child> start_child();
  Result<Child> idle_child();
  void keep(Child child);
  /// Reaps children left behind that have ended since.
  void collect_late();
  /// The act of a child, for a record and an error.
  struct Act {
    std::string what;
    std::string value;
  };
  using Acting = std::function<Act()>;
  /// A child that missed its deadline.
  struct Late {
    int pid = 0;
    std::string what;
  };
  /// Absent: no answer within `most`.
  static std::optional<Answer> wait_for_answer(const Child& child, std::chrono::milliseconds most);
  /// Waits up to the deadline for a child that has not answered while it was `waited` for; its act is
  /// recorded meanwhile. Errc::stuck: no answer came. The child's line is closed before the act is recorded
  /// as late, so that the child begins nothing more.
  Result<Answer> late_answer(Child& child, const Acting& at, std::chrono::milliseconds waited,
                             std::chrono::milliseconds deadline);
  /// Turns an answer into a result. A child that has ended is left without its line.
  static Result<std::string> judge(Child& child, Answer answer, const std::string& what);
  Result<> finish(Child& child, std::span<const AttributeWrite> writes,
                  const std::function<void(std::size_t)>& begin);
  Result<std::string> run_or_kill(ActKind kind, const HostCommand& command,
                                  std::chrono::milliseconds deadline);
  Result<std::string> act(const std::string& request, const std::string& what, const std::string& value,
                          std::chrono::milliseconds deadline);

  HostFs* host_;
  std::filesystem::path program_;
  std::chrono::milliseconds slow_;
  std::chrono::milliseconds deadline_of_each_;
  std::mutex mutex_;
  std::vector<Child> idle_;
  std::vector<Late> late_;
};

/// argv[1] of a child: starts this executable as one.
inline constexpr std::string_view kHostActVerb = "host-act";

/// A library that the child can call.
struct HostLibrary {
  std::string_view name;
  std::string (*answer)(const HostFs& host, std::string_view request);
};

/// Main function of a child. Standard input is a SOCK_SEQPACKET socket, standard output the memory of a
/// WriteProgress. Returns 0 when the other end closes, 2 when called wrongly. Its requests are in
/// host_act_request.h.
int host_act_main(int argc, char** argv, std::span<const HostLibrary> libraries = {});

}  // namespace ferry
