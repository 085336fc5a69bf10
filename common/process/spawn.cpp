// SPDX-License-Identifier: Apache-2.0
#include "common/process/spawn.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/pinned.h"
#include "common/unique_fd.h"

namespace ferry {

Result<UniqueFd> memory_file(std::string_view text) {
  UniqueFd file(::memfd_create("ferry", MFD_CLOEXEC));
  if (!file.valid()) return fail(error_from_errno(errno, "make a file in memory"));
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::pwrite(file.get(), text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "write a file in memory"));
    at += static_cast<std::size_t>(n);
  }
  return file;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (const std::string& word : words)
    out.push_back(const_cast<char*>(word.c_str()));  // NOLINT: exec's type
  out.push_back(nullptr);
  return out;
}

Result<std::filesystem::path> program_folder() {
  std::error_code failure;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return fail(error_from_errno(failure.value(), "read /proc/self/exe"));
  return own.parent_path();
}

std::filesystem::path program_beside(const std::string& name) {
  const auto folder = program_folder();
  std::error_code failure;
  const bool is_there = folder && std::filesystem::exists(*folder / name, failure);
  return is_there ? *folder / name : std::filesystem::path(name);
}

Result<int> spawn(const std::filesystem::path& program, const std::vector<std::string>& words,
                  const SpawnOptions& options) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  int stream = STDIN_FILENO;
  for (const int ours : {options.in, options.out, options.err}) {
    if (ours < 0) {
      const int mode = stream == STDIN_FILENO ? O_RDONLY : O_WRONLY;
      ::posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", mode, 0);
    } else {
      ::posix_spawn_file_actions_adddup2(&actions, ours, stream);
    }
    ++stream;
  }
  if (options.folder >= 0) ::posix_spawn_file_actions_addfchdir_np(&actions, options.folder);
  // Descriptors of Ferry are close-on-exec; this closes those that libraries have opened.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // A parent's ignored SIGCHLD stays ignored here: the kernel would reap the child, and its exit status would
  // be lost. ABI: execve(2), wait(2).
  (void)std::signal(SIGCHLD, SIG_DFL);
  // Unblocks the signals that this process waits for, so that they can end the child.
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  const int session = options.own_session ? POSIX_SPAWN_SETSID : 0;
  ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | session));

  std::vector<std::string> variables;
  if (options.variables) {
    for (const auto& [name, value] : *options.variables)
      variables.push_back(fmt::format("{}={}", name, value));
  }
  const bool inherits = options.environment && !options.variables;
  int pid = 0;
  const int failure = ::posix_spawnp(&pid, program.c_str(), &actions, &attributes, pointers_to(words).data(),
                                     inherits ? environ : pointers_to(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) return fail(error_from_errno(failure, "start " + program.string()));
  return pid;
}

int reap(int pid) {
  constexpr int kSignalled = 128;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return kSignalled;
  return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

namespace {

using Clock = std::chrono::steady_clock;

/// Reaps earlier children that have ended since, and keeps this one for a later call.
void reap_later(int pid) {
  static std::mutex mutex;
  static std::vector<int> left;
  const std::lock_guard lock(mutex);
  std::erase_if(left, [](int child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
  left.push_back(pid);
}

using Heard = std::function<void(std::string_view)>;

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

/// A pipe whose reading end does not block. The flag belongs to an open file, and the ends are two of them.
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(error_from_errno(errno, "make a pipe"));
  Pipe out{.reader = UniqueFd(ends[0]), .writer = UniqueFd(ends[1])};
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return fail(error_from_errno(errno, "make a pipe"));
  return out;
}

/// A started program whose output is read. Without an end it is killed and reaped.
class RunningChild : Pinned {
 public:
  // glibc has no wrapper before 2.36. ABI: pidfd_open(2), Linux 5.3. Without it the output's end has to do.
  RunningChild(int pid, bool leads_group, UniqueFd output, UniqueFd errors)
      : pid_(pid),
        group_(leads_group ? -pid : pid),
        output_(std::move(output)),
        errors_(std::move(errors)),
        process_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  ~RunningChild() {
    if (pid_ == 0) return;
    constexpr std::chrono::milliseconds kToEnd{2'000};
    output_.reset();
    errors_.reset();
    ::kill(group_, SIGTERM);
    const bool ended = process_.valid() && wait(Clock::now() + kToEnd);
    // Until it is reaped, its ID is also that of its group, which may have others in it.
    if (!ended || group_ != pid_) ::kill(group_, SIGKILL);
    // A process that is stuck in the kernel, at a disk that hangs, is left behind.
    if (ended || !process_.valid() || wait(Clock::now() + kToEnd))
      reap(pid_);
    else
      reap_later(pid_);
  }

  Result<ProgramOutput> collect(const std::string& name, const OutputLimits& limits, const Heard& heard) {
    constexpr std::size_t kAtOnce = std::size_t{64} << 10U;  // of its standard error
    ProgramOutput output;
    const auto until = limits.time ? std::optional(Clock::now() + *limits.time) : std::nullopt;
    for (bool ended = false; !ended;) {
      if (!wait(until)) {
        return fail(Errc::unreachable, fmt::format("{} has not ended within {} s", name,
                                                   std::chrono::ceil<std::chrono::seconds>(
                                                       limits.time.value_or(std::chrono::milliseconds(0)))
                                                       .count()));
      }
      ended = ended_;
      // All that an ended program has written is in the pipes already.
      const bool open = output_.valid();
      if (auto read = take(output_, output.text, limits.bytes); !read)
        return fail(std::move(read).error().during(name));
      std::string said;
      auto read = take(errors_, said, kAtOnce);
      if (!said.empty()) heard(said);
      if (!read) return fail(std::move(read).error().during(name));

      if (output.text.size() > limits.bytes)
        return fail(
            {.code = std::make_error_code(std::errc::file_too_large),
             .message = fmt::format("{} has printed more than {} bytes, the limit", name, limits.bytes)});
      if (open && !output_.valid() && !process_.valid()) break;
    }
    output.status = reap(std::exchange(pid_, 0));
    return output;
  }

 private:
  /// Waits for output or the program's end. False: the time has come first.
  bool wait(std::optional<Clock::time_point> until) {
    for (;;) {
      // poll() ignores a negative descriptor.
      std::array<pollfd, 3> watched = {{{.fd = output_.get(), .events = POLLIN, .revents = 0},
                                        {.fd = errors_.get(), .events = POLLIN, .revents = 0},
                                        {.fd = process_.get(), .events = POLLIN, .revents = 0}}};
      int left = -1;
      if (until) {
        const auto time = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
        left = static_cast<int>(std::clamp<std::int64_t>(time.count(), 0, 1'000'000));
      }
      const int ready = ::poll(watched.data(), watched.size(), left);
      ended_ = watched.back().revents != 0;
      if (ready > 0) return true;
      if (until && Clock::now() >= *until) return false;
    }
  }

  /// Takes what is in the pipe, at most a little more than `most`. At its end the pipe is closed.
  static Result<> take(UniqueFd& pipe, std::string& into, std::size_t most) {
    std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
    while (pipe.valid() && into.size() <= most) {
      const ssize_t n = ::read(pipe.get(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return {};
      if (n < 0) return fail(error_from_errno(errno, "read its output"));
      if (n == 0) pipe.reset();
      into.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return {};
  }

  int pid_;
  const int group_;  ///< as kill(2) takes it
  UniqueFd output_;
  UniqueFd errors_;
  UniqueFd process_;
  bool ended_ = false;
};

}  // namespace

Result<ProgramOutput> run_for_output(const std::filesystem::path& program,
                                     const std::vector<std::string>& words, SpawnOptions options,
                                     const OutputLimits& limits, const Heard& heard) {
  auto output = make_pipe();
  if (!output) return fail(std::move(output).error());
  options.out = output->writer.get();
  Pipe errors;
  if (heard) {
    auto made = make_pipe();
    if (!made) return fail(std::move(made).error());
    errors = std::move(*made);
    options.err = errors.writer.get();
  }
  const auto pid = spawn(program, words, options);
  if (!pid) return fail(pid.error());
  output->writer.reset();
  errors.writer.reset();
  return RunningChild(*pid, options.own_session, std::move(output->reader), std::move(errors.reader))
      .collect(program.filename().string(), limits, heard);
}

}  // namespace ferry
