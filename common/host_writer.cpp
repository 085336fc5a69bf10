// SPDX-License-Identifier: Apache-2.0
#include "common/host_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/stuck_writes.h"

namespace ferry {
namespace {

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

void reap(int pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

SpawningWriter::SpawningWriter(HostFs& host, std::filesystem::path program, std::chrono::milliseconds slow)
    : host_(&host), program_(std::move(program)), slow_(slow) {}

SpawningWriter::~SpawningWriter() {
  for (Child& child : idle_) {
    child.line.reset();  // the word to end
    reap(child.pid);
  }
}

Result<SpawningWriter::Child> SpawningWriter::idle_child() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Child child = std::move(idle_.back());
      idle_.pop_back();
      return child;
    }
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail(error_from_errno(errno, "make a socket pair"));
  }
  Child child{.pid = 0, .line = UniqueFd(ends[0])};
  const UniqueFd theirs(ends[1]);

  // All our descriptors are close-on-exec; what others opened in this process (libraries) is closed here,
  // since a child that hangs would keep it for ever.
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID);  // a Ctrl-C meant for us must not reach a write

  std::string name = "ferry";
  std::string verb(kHostActVerb);
  std::string root = host_->root().string();
  const std::array<char*, 4> argv = {name.data(), verb.data(), root.data(), nullptr};
  const std::array<char*, 1> environment = {nullptr};
  const int failure =
      ::posix_spawn(&child.pid, program_.c_str(), &actions, &attributes, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) return fail(error_from_errno(failure, "start " + program_.string()));
  return child;
}

Result<> SpawningWriter::act(const std::string& request, const std::string& what, const std::string& value,
                             std::chrono::milliseconds deadline) {
  auto child = idle_child();
  if (!child) return fail(std::move(child).error().during(what));

  // A child that is gone is noticed by the missing answer.
  (void)::send(child->line.get(), request.data(), request.size(), MSG_NOSIGNAL);
  const auto patience = std::min(slow_, deadline);
  auto waited = wait_for_answer(child->line.get(), patience);
  bool recorded = false;
  if (waited == Waited::late && patience < deadline) {
    recorded = record_stuck_write(*host_, child->pid, what, value).has_value();
    waited = wait_for_answer(child->line.get(), deadline - patience);
  }
  if (waited == Waited::late) {
    auto stuck = record_stuck_write(*host_, child->pid, what, value);
    const std::string state = stuck ? stuck->kernel_state : "state unknown";
    return fail(Errc::stuck,
                what + ": still in the kernel after " + std::to_string(deadline.count()) + " ms (process " +
                    std::to_string(child->pid) + ", " + state + ")",
                "the device is left alone until the write returns; if it never does, only a reboot helps");
  }
  if (recorded) {
    if (auto forgotten = forget_stuck_write(*host_, child->pid); !forgotten) {
      // The child ends with this object, and with it the record's meaning.
      spdlog::debug("{}", forgotten.error().message);
    }
  }
  int number = 0;
  if (::recv(child->line.get(), &number, sizeof number, 0) != sizeof number) {
    child->line.reset();
    reap(child->pid);
    return fail(Errc::failed, what + ": the writing process ended without an answer");
  }
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(*child));
  }
  if (number != 0) return fail(error_from_errno(number, what));
  return {};
}

Result<> SpawningWriter::write(const std::filesystem::path& relative, std::string_view value,
                               std::chrono::milliseconds deadline) {
  std::string request = "w" + relative.string();
  request += '\0';
  request += value;
  return act(request, "write /" + relative.string(), std::string(value), deadline);
}

Result<> SpawningWriter::load_module(std::string_view name, std::chrono::milliseconds deadline) {
  return act("m" + std::string(name), "load module " + std::string(name), {}, deadline);
}

Result<> SpawningWriter::unload_module(std::string_view name, std::chrono::milliseconds deadline) {
  return act("u" + std::string(name), "unload module " + std::string(name), std::string(name), deadline);
}

}  // namespace ferry
