// SPDX-License-Identifier: Apache-2.0
// The socket itself, with real clients: each test runs the loop until it has what it waits for.
#include "host/claims/claim_server.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "common/event_loop.h"
#include "common/rpc/socket_file.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kPatience = 20s;

class ClaimServerTest : public testing::Test {
 protected:
  void serve(const ClaimServerSettings& by) {
    server_.emplace(*loop_, kernel_, by, [this](const api::ClaimRequest& request) {
      served_.push_back(request.claim);
      return answer_;
    });
    must(server_->keep());
  }
  static ClaimServerSettings settings() { return {.user = ::geteuid(), .group = ::getegid()}; }

  UniqueFd connect() const {
    const auto folder = must(kernel_.open("run/ferry/claims", O_RDONLY | O_DIRECTORY));
    return must(connect_to_socket(folder.get(), "hostd.sock", SOCK_SEQPACKET));
  }
  static void send(const UniqueFd& client, const std::string& text) {
    EXPECT_EQ(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  static std::string request(const std::string& uid) {
    return api::claim_request_text(
        {.action = api::ClaimAction::unprepare, .claim = uid, .space = "studio", .name = "render-a"});
  }
  /// Runs the loop until the client has a packet, or the server has closed the connection ("").
  std::string received(const UniqueFd& client) {
    std::string text(api::kLongestClaimMessage, '\0');
    ssize_t size = -1;
    EXPECT_TRUE(becomes([&] {
      size = ::recv(client.get(), text.data(), text.size(), MSG_DONTWAIT);
      return size >= 0;
    }));
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }
  std::string error_received(const UniqueFd& client) {
    const auto answer = api::read_claim_answer(received(client));
    return answer ? "(no error)" : answer.error().message;
  }
  bool becomes(const std::function<bool()>& is_so) {
    const auto deadline = EventLoop::Clock::now() + kPatience;
    bool so = false;
    std::stop_source stop;
    std::function<void()> look = [&] {
      so = is_so();
      if (so || EventLoop::Clock::now() > deadline)
        stop.request_stop();
      else
        loop_->at(EventLoop::Clock::now() + 2ms, look);
    };
    loop_->at(EventLoop::Clock::now(), look);
    loop_->run(stop.get_token());
    return so;
  }
  struct stat status_of(const char* path) const {
    struct stat out {};
    EXPECT_EQ(::lstat((kernel_.root() / path).c_str(), &out), 0) << path;
    return out;
  }

  test::FakeKernel kernel_;
  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  std::vector<std::string> served_;
  Result<std::vector<api::PreparedDevice>> answer_;
  std::optional<ClaimServer> server_;  // last: it uses the loop
};

TEST_F(ClaimServerTest, AnswersARequest) {
  answer_ = std::vector<api::PreparedDevice>{{.function = must(vfio::PciAddress::parse("0000:05:00.0"))}};
  serve(settings());
  const UniqueFd client = connect();
  send(client, request("a"));
  EXPECT_EQ(must(api::read_claim_answer(received(client))), *answer_);
  EXPECT_EQ(received(client), "") << "a connection has one answer";
  EXPECT_THAT(served_, ElementsAre("a"));
}

TEST_F(ClaimServerTest, PassesTheErrorOn) {
  answer_ = fail(Errc::refused, "GPU 0000:05:00.0 is in use", "stop the VM first");
  serve(settings());
  const UniqueFd client = connect();
  send(client, request("a"));
  const auto answer = api::read_claim_answer(received(client));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::refused);
  EXPECT_EQ(answer.error().hint, "stop the VM first");
}

TEST_F(ClaimServerTest, LetsOnlyItsGroupIn) {
  serve(settings());
  EXPECT_EQ(status_of("run/ferry/claims").st_mode & 07777U, 0750U);
  EXPECT_EQ(status_of("run/ferry/claims").st_gid, ::getegid());
  EXPECT_EQ(status_of("run/ferry/claims/hostd.sock").st_mode & 07777U, 0660U);
  EXPECT_EQ(status_of("run/ferry/claims/hostd.sock").st_gid, ::getegid());
}

TEST_F(ClaimServerTest, RefusesAnotherUser) {
  serve({.user = ::geteuid() + 1, .group = ::getegid()});
  const UniqueFd client = connect();
  send(client, request("a"));
  EXPECT_THAT(error_received(client), HasSubstr("may not ask about claims"));
  EXPECT_THAT(served_, IsEmpty());
}

TEST_F(ClaimServerTest, AnotherUserTakesNoPlace) {
  ClaimServerSettings few = settings();
  few.user = ::geteuid() + 1;
  few.most_connections = 2;
  few.patience = 1h;
  serve(few);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(connect());
  send(clients[1], request("a"));
  send(clients[2], "garbage");
  send(clients[3], request("a"));
  send(clients[3], request("b"));
  for (const UniqueFd& client : clients) {
    EXPECT_THAT(error_received(client), HasSubstr("may not ask about claims"));
    EXPECT_EQ(received(client), "") << "the connection is closed";
  }
  EXPECT_THAT(served_, IsEmpty());
}

TEST_F(ClaimServerTest, RefusesWhatIsNoRequest) {
  serve(settings());
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"garbage", "the request: not JSON"},
           {std::string(1, '\0'), "the request: not JSON"},
           {request("../a"), "the request: claim: it cannot be a UID of Kubernetes"},
           {std::string(api::kLongestClaimMessage + 1, ' '), "the request: larger than 64 KiB"}}) {
    const UniqueFd client = connect();
    send(client, text);
    EXPECT_EQ(error_received(client), error);
  }
  EXPECT_THAT(served_, IsEmpty());
}

TEST_F(ClaimServerTest, ServesARequestWhoseClientHasGone) {
  serve(settings());
  send(connect(), request("a"));
  EXPECT_TRUE(becomes([&] { return served_.size() == 1; }));
  connect().reset();
  const UniqueFd client = connect();
  send(client, request("b"));
  EXPECT_NE(received(client), "");
  EXPECT_THAT(served_, ElementsAre("a", "b"));
}

TEST_F(ClaimServerTest, ServesInTheOrderOfTheConnections) {
  serve(settings());
  std::vector<UniqueFd> clients;
  for (const char* uid : {"a", "b", "c"}) {
    clients.push_back(connect());
    send(clients.back(), request(uid));
    if (clients.size() == 1) clients.front().reset();
  }
  EXPECT_NE(received(clients.back()), "");
  EXPECT_THAT(served_, ElementsAre("a", "b", "c"));
}

TEST_F(ClaimServerTest, LeavesTheLoopItsOtherWorkWhileClientsAskWithoutEnd) {
  std::optional<UniqueFd> next;
  ClaimServer server(*loop_, kernel_, settings(), [&](const api::ClaimRequest& asked) {
    served_.push_back(asked.claim);
    next = connect();  // the next request waits before this one is answered
    send(*next, request("a"));
    return std::vector<api::PreparedDevice>();
  });
  must(server.keep());
  next = connect();
  send(*next, request("a"));
  EXPECT_TRUE(becomes([&] { return served_.size() >= 3; }));
}

TEST_F(ClaimServerTest, ServesOthersWhileAClientIsSlow) {
  serve(settings());
  const UniqueFd slow = connect();
  const UniqueFd client = connect();
  send(client, request("a"));
  EXPECT_NE(received(client), "");
  send(slow, request("b"));
  EXPECT_NE(received(slow), "");
  EXPECT_THAT(served_, ElementsAre("a", "b"));
}

TEST_F(ClaimServerTest, BoundsItsConnectionsAndTheirTime) {
  ClaimServerSettings few = settings();
  few.most_connections = 2;
  few.patience = 50ms;
  serve(few);
  const UniqueFd first = connect();
  const UniqueFd second = connect();
  const UniqueFd third = connect();
  send(third, request("a"));
  EXPECT_NE(received(third), "") << "it is served once the idle connections have ended";
  EXPECT_EQ(received(first), "");
  EXPECT_EQ(received(second), "");
  EXPECT_THAT(served_, ElementsAre("a"));
}

TEST_F(ClaimServerTest, LetsNoRequestOvertakeThatOfAnEarlierConnection) {
  UniqueFd early;
  UniqueFd late;
  ClaimServer server(*loop_, kernel_, settings(), [&](const api::ClaimRequest& asked) {
    served_.push_back(asked.claim);
    if (asked.claim == "long") {
      send(early, request("early"));
      late = connect();
      send(late, request("late"));
    }
    return std::vector<api::PreparedDevice>();
  });
  must(server.keep());
  early = connect();
  const UniqueFd client = connect();
  send(client, request("long"));
  EXPECT_TRUE(becomes([&] { return served_.size() == 3; }));
  EXPECT_THAT(served_, ElementsAre("long", "early", "late"));
}

TEST_F(ClaimServerTest, ServesARequestThatCameWhileAnotherTookLong) {
  ClaimServerSettings by = settings();
  by.patience = 1s;  // this thread may lose the processor between the accepts and the request
  UniqueFd early;
  ClaimServer server(*loop_, kernel_, by, [&](const api::ClaimRequest& asked) {
    served_.push_back(asked.claim);
    if (asked.claim == "long") {
      send(early, request("early"));
      std::this_thread::sleep_for(by.patience + 50ms);
    }
    return std::vector<api::PreparedDevice>();
  });
  must(server.keep());
  early = connect();
  const UniqueFd client = connect();
  send(client, request("long"));
  EXPECT_NE(received(early), "");
  EXPECT_THAT(served_, ElementsAre("long", "early"));
}

TEST_F(ClaimServerTest, ListensAnewAfterItsFolderIsReplaced) {
  serve(settings());
  std::filesystem::remove_all(kernel_.root() / "run/ferry/claims");
  must(server_->keep());
  const UniqueFd client = connect();
  send(client, request("a"));
  EXPECT_NE(received(client), "");
  std::filesystem::remove(kernel_.root() / "run/ferry/claims/hostd.sock");
  must(server_->keep());
  must(server_->keep());
  EXPECT_NE(connect().get(), -1);
  server_.reset();
  EXPECT_FALSE(kernel_.exists("run/ferry/claims/hostd.sock"));
}

TEST_F(ClaimServerTest, DoesNotFollowALink) {
  kernel_.directory("run/elsewhere");
  kernel_.link("run/ferry/claims", "../elsewhere");
  ClaimServer server(*loop_, kernel_, settings(),
                     [](const api::ClaimRequest& /*request*/) { return std::vector<api::PreparedDevice>(); });
  EXPECT_FALSE(server.keep());
  EXPECT_FALSE(kernel_.exists("run/elsewhere/hostd.sock"));
}

}  // namespace
}  // namespace ferry::host
