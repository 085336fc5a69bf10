// SPDX-License-Identifier: Apache-2.0
#include "dra/claims/hostd_client.h"

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "api/claim_request.h"
#include "common/event_loop.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::dra {
namespace {

using Answer = Result<std::vector<api::PreparedDevice>>;

/// A hostd that has accepted a call. It reads no request.
class AcceptedCall : public testing::Test {
 protected:
  void SetUp() override {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    folder_.directory("run");
    (folder_.path() / "run/claims.sock").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(0, ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
    ASSERT_EQ(0, ::listen(listener_.get(), 1));
    call_ = test::must(HostdCall::connect(*loop_, HostFs(folder_.path()), "run/claims.sock"));
    accepted_ = UniqueFd(::accept(listener_.get(), nullptr, nullptr));
    ASSERT_GE(accepted_.get(), 0);
  }

  void answer(const Answer& answer) const {
    const std::string text = api::claim_answer_text(answer);
    ASSERT_EQ(static_cast<ssize_t>(text.size()), ::send(accepted_.get(), text.data(), text.size(), 0));
  }

  Answer send() {
    std::optional<Answer> out;
    call_->send({}, std::chrono::minutes(1), [this, &out](Answer answer) {
      out = std::move(answer);
      loop_->finish();
    });
    loop_->run(std::stop_token{});
    return out.value();
  }

  const test::ScratchDirectory folder_;
  const UniqueFd listener_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  const std::unique_ptr<EventLoop> loop_ = test::must(EventLoop::create());
  std::unique_ptr<HostdCall> call_;
  UniqueFd accepted_;
};

// hostd answers a refused user and closes the connection before the request comes.
TEST_F(AcceptedCall, AnAnswerBeforeTheRequestIsRead) {
  answer(fail(Errc::refused, "user 1000 may not ask"));
  accepted_.reset();
  const Answer got = send();
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(Errc::refused, got.error().code);
  EXPECT_EQ("user 1000 may not ask", got.error().message);
  EXPECT_TRUE(call_->has_answered());
}

TEST_F(AcceptedCall, AnAnswerBeforeTheRequestIsReadWhileTheConnectionLasts) {
  answer(fail(Errc::refused, "user 1000 may not ask"));
  EXPECT_EQ(Errc::refused, send().error().code);
}

TEST_F(AcceptedCall, AConnectionThatClosesWithoutAnAnswerIsUnreachable) {
  accepted_.reset();
  const Answer got = send();
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(Errc::unreachable, got.error().code);
  EXPECT_FALSE(call_->has_answered());
}

}  // namespace
}  // namespace ferry::dra
