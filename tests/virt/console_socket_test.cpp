// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "virt/guest_console.h"

namespace ferry::virt {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::HasSubstr;

std::chrono::steady_clock::time_point in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

class ConsoleSocketTest : public testing::Test {
 protected:
  /// QEMU's end.
  UniqueFd connect() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = tree_.path().string() + socket_.path();
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      fd = UniqueFd();
    return fd;
  }
  static void say(const UniqueFd& fd, std::string_view text) {
    ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  ConsoleSocket socket_ = must(ConsoleSocket::listen(host_, "vm"));
  GuestConsole console_;
};

TEST_F(ConsoleSocketTest, LosesNothingThatWasSaidBeforeWeListened) {
  const UniqueFd vm = connect();
  say(vm,
      "GUEST-PCI 0000:00:02.0 vendor=10de device=2684 class=030000 subsystem_vendor=10de "
      "subsystem_device=16f3\r\n");
  say(vm, "GUEST-READY\r\n");
  must(socket_.read_until_ready(console_, in(20s)));
  ASSERT_EQ(console_.devices().size(), 1U);
  EXPECT_EQ(console_.devices()[0].ids.subsystem_device, 0x16f3);
}

TEST_F(ConsoleSocketTest, WaitsForAVmThatComesLater) {
  const std::jthread vm([this] { say(connect(), "GUEST-READY\n"); });
  must(socket_.read_until_ready(console_, in(20s)));
  EXPECT_TRUE(console_.ready());
}

TEST_F(ConsoleSocketTest, SaysWhatTheGuestSaidLastWhenTheVmEnds) {
  say(connect(), "booting\nKernel panic - not syncing\n");
  const auto read = socket_.read_until_ready(console_, in(20s));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::failed);
  EXPECT_THAT(read.error().message, HasSubstr("the VM ended before"));
  EXPECT_THAT(read.error().message, HasSubstr("booting | Kernel panic - not syncing"));
}

TEST_F(ConsoleSocketTest, GivesUpOnASilentGuest) {
  const UniqueFd vm = connect();
  say(vm, "booting");
  const auto read = socket_.read_until_ready(console_, in(100ms));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::failed);
  EXPECT_THAT(read.error().message, HasSubstr("it said last: booting"));
  EXPECT_THAT(read.error().hint, HasSubstr("--timeout"));
}

TEST_F(ConsoleSocketTest, GivesUpOnAVmThatNeverConnects) {
  const auto read = socket_.read_until_ready(console_, in(50ms));
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("it said last: nothing"));
}

TEST_F(ConsoleSocketTest, IsGoneAfterwards) {
  const std::string relative = "run/ferry/vm2.console";
  {
    const ConsoleSocket other = must(ConsoleSocket::listen(host_, "vm2"));
    EXPECT_EQ(other.path(), "/" + relative);
    EXPECT_TRUE(host_.exists(relative));
  }
  EXPECT_FALSE(host_.exists(relative));
}

TEST_F(ConsoleSocketTest, MakesNoHostThatIsNotThere) {
  HostFs nowhere(tree_.path() / "nowhere");
  const auto socket = ConsoleSocket::listen(nowhere, "vm");
  ASSERT_FALSE(socket);
  EXPECT_THAT(socket.error().message, HasSubstr("nowhere"));
  EXPECT_FALSE(host_.exists("nowhere"));
}

TEST_F(ConsoleSocketTest, RefusesAPathThatNoSocketCanHave) {
  const auto socket = ConsoleSocket::listen(host_, std::string(100, 'x'));
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().code, Errc::usage);
}

}  // namespace
}  // namespace ferry::virt
