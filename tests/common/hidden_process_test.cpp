// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() is POSIX
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/process/this_process.h"

namespace ferry {
namespace {

bool give_up_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  return ::syscall(SYS_capset, &header, none.data()) == 0;
}

/// A process of this user's without a capability, until its pipe's other end is closed.
class Other {
 public:
  explicit Other(bool hidden) {
    std::array<int, 2> ready{};
    std::array<int, 2> end{};
    if (::pipe2(ready.data(), O_CLOEXEC) != 0 || ::pipe2(end.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(end[1]);
      char word = give_up_capabilities() ? 'y' : 'n';
      if (hidden) hide_process();
      static_cast<void>(::write(ready[1], &word, 1));
      static_cast<void>(::read(end[0], &word, 1));
      ::_exit(EXIT_SUCCESS);
    }
    char word = 'n';
    ready_ = ::read(ready[0], &word, 1) == 1 && word == 'y';
    for (const int descriptor : {ready[0], ready[1], end[0]}) ::close(descriptor);
    end_ = end[1];
  }
  ~Other() {
    ::close(end_);
    static_cast<void>(::waitpid(pid_, nullptr, 0));
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  Other(Other&&) = delete;
  Other& operator=(Other&&) = delete;

  bool ready() const { return ready_; }
  /// What a third one meets that opens this file of it; 0: it may.
  int refusal(const char* file) const {
    const std::string path = "/proc/" + std::to_string(pid_) + "/" + file;
    const pid_t third = ::fork();
    if (third == 0) {
      if (!give_up_capabilities()) ::_exit(EINVAL);
      ::_exit(::open(path.c_str(), O_RDONLY | O_CLOEXEC) >= 0 ? 0 : errno);
    }
    int status = 0;
    static_cast<void>(::waitpid(third, &status, 0));
    return WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = 0;
  bool ready_ = false;
  int end_ = -1;
};

TEST(HiddenProcess, IsReadByNobodyOfItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's processes can be distinguished from hidden ones";
  const Other open(false);
  const Other hidden(true);
  ASSERT_TRUE(open.ready() && hidden.ready());
  for (const char* file : {"environ", "root/etc/hostname"}) {
    EXPECT_EQ(open.refusal(file), 0) << file << ": the test itself shows something";
    EXPECT_EQ(hidden.refusal(file), EACCES) << file;
  }
}

}  // namespace
}  // namespace ferry
