// SPDX-License-Identifier: Apache-2.0
// The child's side of the host writer (host_writer.h).
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/process/spawn.h"
#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "hostfs/host_act_request.h"
#include "hostfs/host_writer.h"
#include "hostfs/in_flight_writes.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/kmod_library.h"
#include "hostfs/stuck_writes.h"
#include "hostfs/write_progress.h"

namespace ferry {
namespace {

constexpr std::size_t kLongestAnswer = 64UL * 1024;
constexpr std::size_t kLongestOutput = 60UL * 1024;
constexpr std::size_t kLongestAttribute = 4096;  // a page. ABI: Documentation/filesystems/sysfs.rst

int errno_of(const Result<>& result) {
  if (result) return 0;
  return result.error().code.category() == std::generic_category() ? result.error().code.value() : EIO;
}

int load_module(const std::string& root, const std::string& name) {
  const auto library = KmodLibrary::get();
  if (!library) return ELIBACC;
  const KmodLibrary& kmod = **library;
  utsname system{};
  if (::uname(&system) != 0) return errno;
  const std::string modules = (std::filesystem::path(root) / "lib/modules" / system.release).string();
  std::vector<std::string> directories;
  directories.reserve(kModprobeDirectories.size());
  for (const char* directory : kModprobeDirectories)
    directories.push_back((std::filesystem::path(root) / directory).string());
  const std::unique_ptr<kmod_ctx, kmod_ctx* (*)(kmod_ctx*)> context(
      kmod.make(modules.c_str(), pointers_to(directories).data()), kmod.unref);
  if (!context) return ENOMEM;
  kmod.load_resources(context.get());

  kmod_list* found = nullptr;
  if (const int failure = kmod.module_new_from_lookup(context.get(), name.c_str(), &found); failure < 0)
    return -failure;
  const std::unique_ptr<kmod_list, int (*)(kmod_list*)> modules_found(found, kmod.module_unref_list);
  if (!modules_found) return ENOENT;
  const std::unique_ptr<kmod_module, kmod_module* (*)(kmod_module*)> module(kmod.module_get_module(found),
                                                                            kmod.module_unref);
  const int state = kmod.module_get_initstate(module.get());
  if (state == KMOD_MODULE_BUILTIN || state == KMOD_MODULE_LIVE) return 0;
  const int failure = kmod.module_probe_insert_module(module.get(), KMOD_PROBE_APPLY_BLACKLIST_ALIAS_ONLY,
                                                      nullptr, nullptr, nullptr, nullptr);
  return failure < 0 ? -failure : failure;
}

// delete_module(2) has no function in glibc.
int unload_module(const std::string& name) {
  if (::syscall(SYS_delete_module, name.c_str(), O_NONBLOCK) == 0 || errno == ENOENT) return 0;
  return errno;
}

struct Start {
  int directory = -1;                 ///< root directory of the program
  bool other_root = false;            ///< the root directory is not this process's own
  int out = -1;                       ///< receives standard output; -1: none
  bool errors_too = false;            ///< `out` receives standard error too
  InFlightWrite* recorder = nullptr;  ///< records the program as the act in flight
  bool own_group = false;             ///< a process group of its own, to kill it with all that it starts
  std::vector<std::string> words;
};

// Turns the forked process into the program; if that fails, writes the errno to `report`.
[[noreturn]] void become(const Start& start, int report) {
  const std::vector<char*> argv = pointers_to(start.words);
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  std::string language = "LC_ALL=C";
  const std::array<char*, 3> environment = {path.data(), language.data(), nullptr};
  // A program without a time limit outlives this process and its parent if they are killed: it records
  // itself, and keeps the lock.
  start.recorder->is_done_by(::getpid());
  if (const int kept = start.recorder->descriptor(); kept >= 0) ::fcntl(kept, F_SETFD, 0);
  if (start.own_group) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // without its killer it would run for good
  }
  // Standard input of this process is the socket to the parent.
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0 && ::dup2(nothing, STDIN_FILENO) == STDIN_FILENO &&
      (start.out < 0 || ::dup2(start.out, STDOUT_FILENO) == STDOUT_FILENO) &&
      (!start.errors_too || ::dup2(start.out, STDERR_FILENO) == STDERR_FILENO) &&
      ::fchdir(start.directory) == 0 && (!start.other_root || ::chroot(".") == 0)) {
    ::execve(argv.front(), argv.data(), environment.data());
  }
  const int failure = errno;
  const bool written = ::write(report, &failure, sizeof failure) == sizeof failure;
  ::_exit(written ? EXIT_SUCCESS : EXIT_FAILURE);  // if the report fails, the exit status counts
}

// The exit status; absent: killed after `most`, with its process group. Polls: older kernels have no pidfd.
std::optional<int> reap_or_kill(pid_t pid, std::chrono::milliseconds most) {
  constexpr std::chrono::milliseconds kLook{20};
  const auto until = std::chrono::steady_clock::now() + most;
  while (std::chrono::steady_clock::now() < until) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid == pid)
      return reap(pid);
    std::this_thread::sleep_for(std::min(kLook, most));
  }
  // Orphans of the program become children of this process, so that their ends can be awaited too.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::kill(-pid, SIGKILL);
  while (::waitpid(-pid, nullptr, 0) > 0 || errno == EINTR) {
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  return std::nullopt;
}

// Forks, since posix_spawn(3) has no chroot; that is safe because this process has one thread. `request` has
// the root directory and the words.
int run_program(const HostFs& host, std::string_view request, int out, InFlightWrite& recorder,
                std::optional<std::chrono::milliseconds> killed_after = std::nullopt,
                bool errors_too = false) {
  const std::string root(cut(request, '\0'));
  const auto directory = host.open(root.empty() ? "." : root, O_PATH | O_DIRECTORY);
  if (!directory) return errno_of(fail(directory.error()));
  const Start start{.directory = directory->get(),
                    .other_root = host.root() != "/" || !root.empty(),
                    .out = out,
                    .errors_too = errors_too,
                    .recorder = &recorder,
                    .own_group = killed_after.has_value(),
                    .words = words_between(std::string(request) + '\0', '\0')};
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return errno;
  if (pid == 0) become(start, writer.get());
  writer.reset();
  int failure = 0;
  ssize_t n = 0;
  do {
    n = ::read(reader.get(), &failure, sizeof failure);
  } while (n < 0 && errno == EINTR);
  const auto status = killed_after ? reap_or_kill(pid, *killed_after) : reap(pid);
  recorder.is_done_by(::getpid());
  if (n == sizeof failure) return failure;
  return status ? -*status : ETIMEDOUT;
}

/// The answer: none, output of a program with exit status 0, or all output with any exit status.
enum class Answers { nothing, output, transcript };

// The output goes to memory: a program that fills a pipe would wait for a reader.
int run_for_output(const HostFs& host, std::string_view request, Answers answers, std::string& into,
                   InFlightWrite& recorder,
                   std::optional<std::chrono::milliseconds> killed_after = std::nullopt) {
  UniqueFd memory;
  if (answers != Answers::nothing) {
    memory = make_memory_file("output");
    if (!memory.valid()) return errno;
  }
  const bool whole = answers == Answers::transcript;
  const int failure = run_program(host, request, memory.get(), recorder, killed_after, whole);
  if (answers == Answers::nothing || failure > 0 || (failure < 0 && !whole)) return failure;
  std::string text(kLongestAnswer, '\0');
  const ssize_t size = ::pread(memory.get(), text.data(), text.size(), 0);
  if (size < 0) return errno;
  if (static_cast<std::size_t>(size) > kLongestOutput) return EMSGSIZE;
  into = text.substr(0, static_cast<std::size_t>(size));
  return 0;
}

int run_or_kill(const HostFs& host, std::string_view request, Answers answers, std::string& into,
                InFlightWrite& recorder) {
  const auto most = whole_number(cut(request, '\0'));
  if (!most) return EINVAL;
  return run_for_output(host, request, answers, into, recorder, std::chrono::milliseconds(*most));
}

int read_attribute(const HostFs& host, std::string_view path, std::string& into) {
  auto text = host.read_attribute(path);
  if (!text) return errno_of(fail(std::move(text).error()));
  into = text->substr(0, kLongestAttribute);
  return 0;
}

int ask_library(const HostFs& host, std::span<const HostLibrary> libraries, std::string_view request,
                std::string& into) {
  const std::string_view name = cut(request, '\0');
  for (const HostLibrary& library : libraries) {
    if (library.name != name) continue;
    into = library.answer(host, request);
    return into.size() <= kLongestAnswer ? 0 : EMSGSIZE;
  }
  return ENOSYS;
}

int write_attribute(HostFs& host, std::string_view path, std::string_view value, bool only_if_unset) {
  if (only_if_unset) {
    const auto now = host.read_attribute(path);
    if (!now) return errno_of(fail(now.error()));
    if (!is_unset(*now)) return EEXIST;
  }
  return errno_of(host.write_attribute(path, value));
}

// Returns the errno or the negated exit status, and puts an answer's text into `read`.
int perform(HostFs& host, const std::string& root, std::span<const HostLibrary> libraries,
            std::string_view request, InFlightWrite& recorder, std::string& read) {
  const auto kind = static_cast<ActKind>(request.front());
  request.remove_prefix(1);
  if (kind == ActKind::call_library || kind == ActKind::run || kind == ActKind::output)
    cut(request, '\0');  // the device
  switch (kind) {
    case ActKind::call_library:
      return ask_library(host, libraries, request, read);
    case ActKind::read:
      return read_attribute(host, request, read);
    case ActKind::load_module:
      return load_module(root, std::string(request));
    case ActKind::unload_module:
      return unload_module(std::string(request));
    case ActKind::write: {
      const std::string_view path = cut(request, '\0');
      return write_attribute(host, path, request, false);
    }
    case ActKind::run:
      return run_program(host, request, -1, recorder);
    case ActKind::output:
      return run_for_output(host, request, Answers::output, read, recorder);
    case ActKind::run_or_kill:
      return run_or_kill(host, request, Answers::nothing, read, recorder);
    case ActKind::output_or_kill:
      return run_or_kill(host, request, Answers::output, read, recorder);
    case ActKind::transcript:
      return run_or_kill(host, request, Answers::transcript, read, recorder);
    case ActKind::prepare:
    case ActKind::write_if_unset:
    case ActKind::batch:
      break;
  }
  return EINVAL;
}

struct Recorded {
  std::string act;
  std::string value;
};

// The record of an act that changes a device; absent for others. It is needed if the parent is killed.
std::optional<Recorded> to_record(std::string_view request) {
  const auto kind = static_cast<ActKind>(request.front());
  request.remove_prefix(1);
  const std::string first(cut(request, '\0'));
  std::string rest(request);
  if (kind == ActKind::write) return Recorded{.act = "write /" + first, .value = rest};
  if (kind == ActKind::load_module) return Recorded{.act = "load module " + first, .value = first};
  if (kind == ActKind::unload_module) return Recorded{.act = "unload module " + first, .value = first};
  if ((kind != ActKind::run && kind != ActKind::call_library) || first.empty()) return std::nullopt;
  std::ranges::replace(rest, '\0', ' ');
  return Recorded{.act = (kind == ActKind::run ? "run" : "ask") + (" " + rest), .value = first};
}

// Records an act; false: the parent is gone, and the act must not begin. The parent's successor looks at the
// records, and must not miss an act.
bool begin(InFlightWrite& in_flight, std::string_view act, std::string_view value) {
  in_flight.begin(act, value);
  pollfd line{.fd = STDIN_FILENO, .events = 0, .revents = 0};
  const bool is_hung_up = ::poll(&line, 1, 0) == 1 && (line.revents & (POLLHUP | POLLERR)) != 0;
  return !is_hung_up;
}

bool answer(int number, std::string_view read) {
  std::array<iovec, 2> parts = {iovec{.iov_base = &number, .iov_len = sizeof number},
                                iovec{.iov_base = const_cast<char*>(read.data()),  // NOLINT: it is only read
                                      .iov_len = read.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return ::sendmsg(STDIN_FILENO, &message, MSG_NOSIGNAL) >= 0;
}

// The errno of the first failed write, 0 after all; absent: the parent is gone.
std::optional<int> write_several(HostFs& host, std::string_view orders, InFlightWrite& in_flight,
                                 WriteProgress& progress) {
  while (!orders.empty()) {
    const bool only_if_unset = static_cast<ActKind>(orders.front()) == ActKind::write_if_unset;
    orders.remove_prefix(1);
    const std::string_view path = cut(orders, '\0');
    const std::string_view value = cut(orders, '\0');
    if (!begin(in_flight, "write /" + std::string(path), value)) return std::nullopt;
    const int failure = write_attribute(host, path, value, only_if_unset);
    in_flight.end();
    if (failure != 0) return failure;
    progress.one_more();
    if (!orders.empty() && progress.each_is_waited_for() && !answer(0, ".")) return std::nullopt;
  }
  return 0;
}

// The page is passed as standard output; a program that this process runs must not print into it.
Result<WriteProgress> take_page() {
  UniqueFd memory(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!memory.valid() || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return fail(error_from_errno(errno, "take the standard output"));
  return WriteProgress::of(std::move(memory));
}

}  // namespace

int host_act_main(int argc, char** argv, std::span<const HostLibrary> libraries) {
  if (argc != 3) return 2;
  const std::string root = std::span<char*>(argv, 3)[2];
  HostFs host(root);
  InFlightWrite in_flight(host);
  auto progress = take_page();
  constexpr std::size_t kLongest = 64UL * 1024;  // a path and a value of at most a page each
  std::string request(kLongest, '\0');
  for (;;) {
    const ssize_t n = ::recv(STDIN_FILENO, request.data(), request.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return 2;
    if (n == 0) break;
    const auto whole = std::string_view(request).substr(0, static_cast<std::size_t>(n));
    const auto kind = static_cast<ActKind>(whole.front());
    if (kind == ActKind::prepare) {
      in_flight.try_prepare();
      continue;
    }
    std::string read;
    std::optional<int> outcome;
    if (kind == ActKind::batch) {
      in_flight.prepare();
      outcome = progress ? write_several(host, whole.substr(1), in_flight, *progress) : EINVAL;
    } else {
      if (const auto recorded = to_record(whole)) {
        in_flight.prepare();
        if (!begin(in_flight, recorded->act, recorded->value)) break;
      }
      outcome = perform(host, root, libraries, whole, in_flight, read);
      in_flight.end();
    }
    if (!outcome || !answer(*outcome, read)) break;
  }
  // The parent is gone, and a stuck act has returned at last. The end of this process shows that too, but not
  // to readers in another PID namespace.
  (void)forget_stuck_write(host, ::getpid());
  return 0;
}

}  // namespace ferry
