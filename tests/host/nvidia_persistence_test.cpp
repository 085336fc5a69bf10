// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <csignal>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "host/usage/nvidia_driver.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
namespace fs = std::filesystem;

const vfio::PciAddress kGpu = vfio::PciAddress::parse("0000:01:00.0").value();
constexpr const char* kOfHost = "";
constexpr const char* kOfContainer = "run/nvidia/driver";

/// The stand-in of nvidia-persistenced, as a process.
class Daemon : Pinned {
 public:
  Daemon(const fs::path& folder, const std::vector<std::string>& options) {
    std::array<int, 2> said{};
    EXPECT_EQ(::pipe2(said.data(), O_CLOEXEC), 0);
    const UniqueFd reading(said[0]);
    UniqueFd writing(said[1]);
    std::vector<std::string> words = {FERRY_PERSISTENCED, "socket", "orders"};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      // The name of a socket has 107 characters at most.
      if (::chdir(folder.c_str()) == 0 && ::dup2(writing.get(), STDOUT_FILENO) >= 0)
        ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    writing = UniqueFd();
    char first = 0;
    EXPECT_EQ(::read(reading.get(), &first, 1), 1) << "it did not start";
  }
  ~Daemon() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

class NvidiaPersistenceTest : public testing::Test {
 protected:
  NvidiaPersistenceTest() {
    scratch_.file("host/dev/nvidia0", "");
    scratch_.link("host/proc/1/root", "../..");
  }
  fs::path folder(const std::string& root) const { return root_ / root / "run/nvidia-persistenced"; }
  std::unique_ptr<Daemon> start(const std::string& root, std::vector<std::string> options = {}) const {
    fs::create_directories(folder(root));
    options.push_back("0000:01:00.0=" + (root_ / "dev/nvidia0").string());
    return std::make_unique<Daemon>(folder(root), options);
  }
  std::string orders(const std::string& root) const {
    return HostFs(folder(root)).read_file("orders").value_or("");
  }
  Result<> set(bool on, std::chrono::milliseconds patience = 10s) const {
    return NvidiaPersistence(host_, patience).set(kGpu, on);
  }

  test::ScratchDirectory scratch_;
  const fs::path root_ = scratch_.path() / "host";
  const HostFs host_{(fs::create_directories(scratch_.path() / "host"), scratch_.path() / "host")};
};

TEST_F(NvidiaPersistenceTest, AsksTheDaemonOfTheHostOrOfTheDriverContainer) {
  for (const char* root : {kOfHost, kOfContainer}) {
    const auto daemon = start(root);
    EXPECT_TRUE(set(false));
    EXPECT_TRUE(set(false)) << "twice";
    EXPECT_TRUE(set(true));
    EXPECT_EQ(orders(root), "0000:01:00.0 off\n0000:01:00.0 off\n0000:01:00.0 on\n");
  }
  EXPECT_EQ(set(false).error().code, Errc::unreachable) << "the sockets are there and no daemon listens";
}

TEST_F(NvidiaPersistenceTest, AsksEachDaemonThatListens) {
  const auto one = start(kOfHost);
  const auto other = start(kOfContainer);
  EXPECT_TRUE(set(false));
  EXPECT_EQ(orders(kOfHost) + orders(kOfContainer), "0000:01:00.0 off\n0000:01:00.0 off\n");
}

TEST_F(NvidiaPersistenceTest, CannotCloseWithoutADaemonAndLeavesOpeningToItsStart) {
  EXPECT_EQ(set(false).error().code, Errc::unreachable);
  EXPECT_TRUE(set(true));
  scratch_.remove("host/proc/1/root");  // no right to look into the process
  EXPECT_EQ(set(false).error().code, Errc::unreachable);
}

TEST_F(NvidiaPersistenceTest, PassesOnTheAnswer) {
  for (const auto& [status, words] : {std::pair("2", "2 (no such GPU)"),
                                      {"3", "3 (its driver failed)"},
                                      {"7", "7 (no permission)"},
                                      {"11", "11 (unknown)"},
                                      {"-1", "-1 (unknown)"}}) {
    const auto daemon = start(kOfContainer, {"--status", status});
    const auto done = set(false);
    ASSERT_FALSE(done) << status;
    EXPECT_EQ(done.error().code, Errc::failed);
    EXPECT_EQ(done.error().message, fmt::format("nvidia-persistenced has answered {}", words));
  }
}

TEST_F(NvidiaPersistenceTest, WaitsForALimitedTimeAndNotForEachGpu) {
  const auto daemon = start(kOfContainer, {"--silent"});
  NvidiaPersistence persistence(host_, 200ms);
  const auto done = persistence.set(kGpu, false);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "nvidia-persistenced has not answered in 200 ms");
  const auto begun = std::chrono::steady_clock::now();
  const auto again = persistence.set(kGpu, true);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::failed);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 200ms);
}

TEST_F(NvidiaPersistenceTest, PassesOnThatItMayNotAsk) {
  fs::create_directories(folder(kOfHost));
  fs::create_symlink("socket", folder(kOfHost) / "socket");
  for (const bool on : {true, false}) {
    const auto done = set(on);
    ASSERT_FALSE(done) << "it is not known whether a daemon has the GPU open";
    EXPECT_EQ(done.error().code, std::errc::too_many_symbolic_link_levels);
  }
}

/// A listener that is no nvidia-persistenced, and speaks to each client as it likes.
class Impostor : Pinned {
 public:
  Impostor(const fs::path& folder, std::function<void(int)> speak) {
    fs::create_directories(folder);
    const UniqueFd directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    fmt::format_to_n(address.sun_path, sizeof(address.sun_path) - 1, "/proc/self/fd/{}/socket",
                     directory.get());
    EXPECT_EQ(::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listening_.get(), 1), 0);
    thread_ = std::thread([this, speak = std::move(speak)] {
      const UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.valid()) speak(client.get());
    });
  }
  ~Impostor() { thread_.join(); }

 private:
  const UniqueFd listening_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::thread thread_;
};

// A program that others write must not keep hostd.
TEST_F(NvidiaPersistenceTest, EndsWithAnyListener) {
  const std::map<std::string, std::function<void(int)>> listeners = {
      {"closes at once", [](int) {}},
      {"closes after the call",
       [](int client) {
         std::array<char, 256> call{};
         EXPECT_GT(::read(client, call.data(), call.size()), 0);
       }},
      {"no RPC",
       [](int client) { EXPECT_GT(::send(client, "HTTP/1.1 200 OK\r\n\r\n", 19, MSG_NOSIGNAL), 0); }},
      {"bytes without an end",
       [](int client) {
         while (::send(client, "\x80\0\0\x40", 4, MSG_NOSIGNAL) > 0) continue;
       }},
      {"fragments without an end",
       [](int client) {
         while (::send(client, "\0\0\0\4abcd", 8, MSG_NOSIGNAL) > 0) continue;
       }},
  };
  for (const auto& [name, speak] : listeners) {
    const Impostor impostor(folder(kOfContainer), speak);
    const auto done = set(false, 100ms);
    ASSERT_FALSE(done) << name;
    EXPECT_EQ(done.error().code, Errc::failed) << name;
    fs::remove(folder(kOfContainer) / "socket");
  }
}

TEST_F(NvidiaPersistenceTest, KnowsTheDaemonOfTheDriverContainer) {
  const std::string socket = "run/nvidia/driver/run/nvidia-persistenced/socket";
  const auto process = [&](int pid, const std::string& name, const std::string& root) {
    const std::string directory = fmt::format("host/proc/{}", pid);
    scratch_.file(directory + "/comm", name + "\n");
    scratch_.link(directory + "/root", root);
  };
  process(77, "nvidia-persiste", "../../run/nvidia/driver");
  EXPECT_FALSE(closes_on_request(host_, 77)) << "no driver container";
  scratch_.file("host/run/nvidia/driver/etc/os-release", "");
  EXPECT_FALSE(closes_on_request(host_, 77)) << "it does not listen";
  scratch_.file("host/" + socket, "");
  EXPECT_TRUE(closes_on_request(host_, 77));
  process(78, "nv-hostengine", "../../run/nvidia/driver");
  EXPECT_FALSE(closes_on_request(host_, 78)) << "another program of the container";
  scratch_.file("host/run/other/" + socket, "");
  process(79, "nvidia-persiste", "../../run/other");
  EXPECT_FALSE(closes_on_request(host_, 79)) << "another pod may give its program any name";
  EXPECT_FALSE(closes_on_request(host_, 80)) << "it has ended";
}

}  // namespace
}  // namespace ferry::host
