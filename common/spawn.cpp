// SPDX-License-Identifier: Apache-2.0
#include "common/spawn.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ferry {

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
  // Descriptors of Ferry are close-on-exec; this closes those that libraries have opened.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // Unblocks the signals that this process waits for, so that they can end the child.
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  const int session = options.own_session ? POSIX_SPAWN_SETSID : 0;
  ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | session));

  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT: posix_spawn's own type, never written to
  }
  argv.push_back(nullptr);
  const std::array<char*, 1> nothing = {nullptr};
  int pid = 0;
  const int failure = ::posix_spawnp(&pid, program.c_str(), &actions, &attributes, argv.data(),
                                     options.environment ? environ : nothing.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) return fail(error_from_errno(failure, "start " + program.string()));
  return pid;
}

int reap(int pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  constexpr int kSignalled = 128;
  return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace ferry
