// SPDX-License-Identifier: Apache-2.0
#include "common/host_writer.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "common/stuck_writes.h"

namespace ferry {
namespace {

struct Child {
  pid_t pid = 0;
  UniqueFd answer;  // the reading end of its stdout
};

Result<Child> spawn(const std::string& program, const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(error_from_errno(errno, "make a pipe"));
  UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);

  // All our descriptors are close-on-exec; what others opened in this process (libraries) is closed here,
  // since a child that hangs would keep it for ever. stderr stays: it is where the kernel's helpers would
  // complain.
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID);  // a Ctrl-C meant for us must not reach a write

  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));  // NOLINT
  argv.push_back(nullptr);
  std::array<char*, 1> environment = {nullptr};
  Child child;
  const int failure =
      ::posix_spawn(&child.pid, program.c_str(), &actions, &attributes, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) return fail(error_from_errno(failure, "start " + program));
  child.answer = std::move(reader);
  return child;
}

enum class Waited { answered, late };

Waited wait_for_answer(int fd, std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() < 0) return Waited::late;
    pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(left.count()) + 1);
    if (ready > 0) return Waited::answered;
    if (ready < 0 && errno != EINTR) return Waited::late;
  }
}

Result<> act(HostFs& host, const std::string& program, std::vector<std::string> arguments,
             const std::string& what, const std::string& value, std::chrono::milliseconds deadline) {
  auto child = spawn(program, arguments);
  if (!child) return fail(std::move(child).error().during(what));

  if (wait_for_answer(child->answer.get(), deadline) == Waited::late) {
    auto stuck = record_stuck_write(host, child->pid, what, value);
    const std::string state = stuck ? stuck->kernel_state : "state unknown";
    return fail(Errc::stuck,
                what + ": still in the kernel after " + std::to_string(deadline.count()) + " ms (process " +
                    std::to_string(child->pid) + ", " + state + ")",
                "the device is left alone until the write returns; if it never does, only a reboot helps");
  }
  std::array<char, 16> text{};
  const ssize_t n = ::read(child->answer.get(), text.data(), text.size());
  int status = 0;
  while (::waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  int number = EIO;
  if (n <= 0 || std::from_chars(text.data(), text.data() + n, number).ec != std::errc()) {
    return fail(Errc::failed, what + ": the writing process ended without an answer (status " +
                                  std::to_string(status) + ")");
  }
  if (number != 0) return fail(error_from_errno(number, what));
  return {};
}

}  // namespace

SpawningWriter::SpawningWriter(HostFs& host, std::filesystem::path program)
    : host_(&host), program_(std::move(program)) {}

Result<> SpawningWriter::write(const std::filesystem::path& relative, std::string_view value,
                               std::chrono::milliseconds deadline) {
  return act(*host_, program_.string(),
             {"ferry", std::string(kHostActVerb), "write", host_->root().string(), relative.string(),
              std::string(value)},
             "write /" + relative.string(), std::string(value), deadline);
}

Result<> SpawningWriter::load_module(std::string_view name, std::chrono::milliseconds deadline) {
  return act(*host_, program_.string(),
             {"ferry", std::string(kHostActVerb), "load-module", host_->root().string(), std::string(name)},
             "load module " + std::string(name), {}, deadline);
}

}  // namespace ferry
