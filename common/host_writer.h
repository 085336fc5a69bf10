// SPDX-License-Identifier: Apache-2.0
// Acts on the host that a driver may never return from, done by another process.
//
// Unbinding a GPU in use can block for ever in an uninterruptible state: no signal ends it, and whoever made
// the write is lost. So the write is made by a child that inherits nothing but its two lines to us, waited
// for with a deadline and, past it, left behind: recorded (stuck_writes.h), never killed, never repeated.
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

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "common/write_progress.h"

namespace ferry {

/// Loading a big driver or resetting a GPU takes tens of seconds; nothing healthy takes longer than this.
inline constexpr std::chrono::seconds kWriteDeadline{90};

/// What to do about a read that is late.
inline constexpr const char* kLockedHint =
    "a driver is probing, resetting or leaving that device and keeps its lock: try again once it has done";

/// What a read waits for is another's act on the device, and whoever asks can do without the answer.
inline constexpr std::chrono::seconds kReadDeadline{2};

/// An act that takes longer than this is recorded until it returns: whoever waits for it may be killed
/// first. One of several that are handed over at once, within twice this.
inline constexpr std::chrono::seconds kSlowWrite{1};

/// A program of the host, with its arguments.
struct HostCommand {
  std::filesystem::path root;  ///< below the host's root: the program's own root directory; empty: the host's
  std::vector<std::string> words;  ///< its path there, and its arguments
  std::string device;              ///< what it acts on: named by the record if it does not return
  /// Of one that acts on no device: at the deadline it and what it has started in its process group are
  /// killed, and its end is waited for. Others are left behind: a driver may be half way.
  bool killed_when_late = false;
  std::string text() const;  ///< "/usr/bin/nvidia-smi -i 0000:01:00.0 -pm 0"
};

/// Something that a library of the host's driver is asked for.
struct LibraryCall {
  std::string name;      ///< of the library, as host_act_main() knows it
  std::string request;   ///< as that library's act takes it
  std::string device;    ///< what it acts on: named by the record if it does not return
  bool changes = false;  ///< whether it changes the device
  std::string what;      ///< for errors: "read the GPU instances of 0000:17:00.0"
};

/// One write(2) of a value to an existing attribute below the host's root.
struct AttributeWrite {
  std::filesystem::path path;  ///< relative
  std::string value;
  /// Only where nothing is set, which it is asked right before: EEXIST otherwise, and nothing is written.
  bool only_if_unset = false;
};

/// Whether an attribute that reads so says that nothing is set: empty, blank, or 0.
bool is_unset(std::string_view attribute);

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

  /// Writes one after the other, and none behind one that fails, whose error is returned. `begin`, if any, is
  /// told of each by number before its answer is awaited, maybe late. Errors and deadline of each as write().
  virtual Result<> write_in_order(std::span<const AttributeWrite> writes,
                                  const std::function<void(std::size_t)>& begin) {
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (begin) begin(i);
      if (auto done = write_checked(writes[i]); !done) return done;
    }
    return {};
  }

  /// Loads a module (underscores, no suffix) and what it depends on from the host's own lib/modules. Loaded
  /// already or built in is success. Errors as above; ENOENT when there is no such module.
  virtual Result<> load_module(std::string_view name,
                               std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Unloads a module (underscores, no suffix), at once or not at all. One that is not loaded is success.
  /// EAGAIN while it is in use; EBUSY when it is on its way in or out, or cannot be unloaded.
  virtual Result<> unload_module(std::string_view name,
                                 std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Runs a program that changes a device to its end: it inherits nothing, has no input, and what it prints
  /// is thrown away. ENOENT: there is no such program; EPERM: it needs another root directory and we lack
  /// CAP_SYS_CHROOT; Errc::failed: its exit status is not 0, or it was killed at the deadline, as it may be.
  virtual Result<> run(const HostCommand& command, std::chrono::milliseconds deadline = kWriteDeadline) = 0;

  /// Runs a program that only tells something, and gives what it printed. Errors as run(); EMSGSIZE: it
  /// printed more than 60 KiB. Errc::unsupported: this writer starts no programs.
  virtual Result<std::string> output(const HostCommand& command,
                                     std::chrono::milliseconds /*deadline*/ = kWriteDeadline) {
    return fail(Errc::unsupported, "run " + command.text() + ": no program can be started");
  }

  /// Runs a program that acts on no device, and gives what it printed to both streams, whatever its exit
  /// status. At the deadline the program and what it has started are killed: Errc::failed. Other errors as
  /// output().
  virtual Result<std::string> transcript(const HostCommand& command, std::chrono::milliseconds /*deadline*/) {
    return fail(Errc::unsupported, "run " + command.text() + ": no program can be started");
  }

  /// Reads an attribute, less one trailing newline, that the kernel serves under a lock which a hanging
  /// driver keeps. Errors as write().
  virtual Result<std::string> read(const std::filesystem::path& relative,
                                   std::chrono::milliseconds deadline = kReadDeadline) = 0;

  /// Opens a block device's node for reading and for this opener alone (O_EXCL), and closes it at once: for a
  /// moment nothing can be mounted from it. EBUSY: the kernel has it claimed, or a part of it; ENODEV: the
  /// node is not the device of that number; ENXIO, ENOMEDIUM: not claimed, and not to be opened. Other errors
  /// as read(). Errc::unsupported: this writer cannot ask.
  virtual Result<> try_claim(const std::filesystem::path& relative, DeviceNumber /*number*/,
                             std::chrono::milliseconds /*deadline*/ = kReadDeadline) {
    return fail(Errc::unsupported, "read the claim on /" + relative.string() + ": it cannot be asked for");
  }

  /// Has a library asked in the other process: such a library may crash, hang, or keep a GPU open for as long
  /// as it is loaded. What it answers, in its own words; errors of its own are in there. Errc::unsupported:
  /// the child knows no library of that name.
  virtual Result<std::string> call(const LibraryCall& call, std::chrono::milliseconds /*deadline*/) {
    return fail(Errc::unsupported, call.what + ": no library can be asked");
  }

  /// Says that so many acts at a time are about to come, so that what they need may be made ready meanwhile.
  virtual void prepare(std::size_t /*acts*/) {}

 private:
  Result<> write_checked(const AttributeWrite& write);
};

/// The real one. Its children are our own executable, started as `program host-act ROOT` by prepare() or when
/// there is an act and no idle child, kept for the next one, and told to end with this object. One that does
/// not answer by the deadline is never used again; one that takes longer than `slow` is recorded
/// (stuck_writes.h) until it answers. As long as a child has not returned from a read, the same read is
/// Errc::stuck at once, without another child. Of several writes each has `deadline_of_each`. A record that
/// cannot be removed then holds for as long as its process lives: that ends. Several threads may act at a
/// time, each with a child of its own.
class SpawningWriter final : public HostWriter {
 public:
  explicit SpawningWriter(HostFs& host, std::filesystem::path program = "/proc/self/exe",
                          std::chrono::milliseconds slow = kSlowWrite,
                          std::chrono::milliseconds deadline_of_each = kWriteDeadline);
  SpawningWriter(const SpawningWriter&) = delete;
  SpawningWriter& operator=(const SpawningWriter&) = delete;
  SpawningWriter(SpawningWriter&&) = delete;
  SpawningWriter& operator=(SpawningWriter&&) = delete;
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
  Result<> try_claim(const std::filesystem::path& relative, DeviceNumber number,
                     std::chrono::milliseconds deadline) override;
  Result<std::string> call(const LibraryCall& call, std::chrono::milliseconds deadline) override;
  void prepare(std::size_t acts) override;
  /// The child has them all at once, and no waiting lies between one and the next.
  Result<> write_in_order(std::span<const AttributeWrite> writes,
                          const std::function<void(std::size_t)>& begin) override;

 private:
  struct Child {
    int pid = 0;
    UniqueFd line;  // a request out, an errno and what was read back
    WriteProgress progress;
    bool still_recorded = false;  // as one that hangs, although it has answered
  };
  /// What a child has answered.
  struct Answer {
    std::optional<int> number;  // absent: the child has ended without one
    std::string read;
  };
  Result<Child> start_child();
  Result<Child> idle_child();
  void keep(Child child);
  /// Collects those left behind that have ended since.
  void collect_late();
  /// What a child is at, for a record and an error.
  struct Act {
    std::string what;
    std::string value;
  };
  using Acting = std::function<Act()>;
  /// A child that was left behind.
  struct Late {
    int pid = 0;
    std::string what;
  };
  /// Absent: there is none by then.
  static std::optional<Answer> wait_for_answer(const Child& child, std::chrono::milliseconds most);
  /// Waits on, up to the deadline, for a child that has not answered while it was `waited` for: what it is at
  /// is recorded meanwhile. Errc::stuck where none comes: the child is told that nobody listens any more,
  /// before that is recorded, and is left without its line.
  Result<Answer> late_answer(Child& child, const Acting& at, std::chrono::milliseconds waited,
                             std::chrono::milliseconds deadline);
  /// What the answer means. A child that has ended is left without its line.
  static Result<std::string> judge(Child& child, Answer answer, const std::string& what);
  /// Waits for writes that the child has been given.
  Result<> finish(Child& child, std::span<const AttributeWrite> writes,
                  const std::function<void(std::size_t)>& begin);
  /// `kind`: the letter of the request.
  Result<std::string> run_or_kill(char kind, const HostCommand& command, std::chrono::milliseconds deadline);
  Result<std::string> act(const std::string& request, const std::string& what, const std::string& value,
                          std::chrono::milliseconds deadline);
  /// act() for what changes nothing, and may be asked time and again.
  Result<std::string> act_once(const std::string& request, const std::string& what,
                               std::chrono::milliseconds deadline);

  HostFs* host_;
  std::filesystem::path program_;
  std::chrono::milliseconds slow_;
  std::chrono::milliseconds deadline_of_each_;
  std::mutex mutex_;
  std::vector<Child> idle_;
  std::vector<Late> late_;  // left behind
};

/// The word that makes our executable such a child: argv[1].
inline constexpr std::string_view kHostActVerb = "host-act";

/// A library that the child can ask.
struct HostLibrary {
  std::string_view name;
  std::string (*answer)(const HostFs& host, std::string_view request);
};

/// The child's main: `host-act ROOT`, with a SOCK_SEQPACKET socket as standard input and, as standard output,
/// the memory of a WriteProgress. A request is "p", which is not answered: acts that change something are
/// about to come; "w", the path, a NUL and the value; "b" and any number of writes, of each "w" or, for one
/// that is made only where nothing is set (EEXIST otherwise), "n", its path, a NUL, its value and a NUL; "m"
/// or "u" and the name of a module to load or unload; "r" and a path; "e", a path, a NUL and the number of a
/// block device to claim ("8:17"); "x", the device that a program acts on, and after a NUL each a root
/// directory and its words, or "o" and the same where what it prints is the answer; "k", as "x" but in the
/// device's place the milliseconds after which it is killed, which is answered by ETIMEDOUT; "t", as "k",
/// where what it prints to both streams is the answer, whatever its exit status; or "c", the device that is
/// changed, if any, a NUL, a library's name, a NUL and the request to it. The answer is the errno as an int,
/// 0 for done, or a program's exit status, negated; behind it what was read or answered, 64 KiB at most. "b"
/// is answered once, at the first error or the end, how many were made says the WriteProgress; before that by
/// 0 and "." after each write behind which others follow and which WriteProgress::each_is_waited_for(). Ends,
/// with 0, when the other end closes; 2 when called wrongly.
int host_act_main(int argc, char** argv, std::span<const HostLibrary> libraries = {});

}  // namespace ferry
