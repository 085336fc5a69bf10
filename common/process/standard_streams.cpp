// SPDX-License-Identifier: Apache-2.0
#include "common/process/standard_streams.h"

#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <unistd.h>

#include "common/text/visible_text.h"

namespace ferry {

// Priority 101 goes before the static storage of other objects, which may open files.
[[gnu::constructor(101)]] void guard_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // open(2) gives the lowest free number, which is this one: those below it are open by now.
    (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // NOLINT(android-cloexec-open)
  }
}

void say_to_stderr(std::string_view text) {
  const std::string shown = visible_lines(text);
  (void)std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void say_to_stderr_if_it_is_taken(std::string_view text) {
  const std::string shown = visible_lines(text);
  pollfd there{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&there, 1, 0) != 1) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, shown.data(), shown.size());
}

}  // namespace ferry
