// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/api_client.h"

namespace ferry::kube {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Pair;

class Under : public ApiTransport {
 public:
  Call send(ApiRequest request, ApiListener listener) override {
    requests.push_back(std::move(request));
    listeners.push_back(std::move(listener));
    return requests.size();
  }
  void cancel(Call call) override { cancelled.push_back(call); }

  std::vector<ApiRequest> requests;
  std::vector<ApiListener> listeners;
  std::vector<Call> cancelled;
};

class CountedTransportTest : public testing::Test {
 protected:
  void ask(ApiRequest request, Result<ApiReply> reply) {
    counted_.send(std::move(request), {.ended = [this](const Result<ApiReply>&) { ++heard_; }});
    under_.listeners.back().ended(std::move(reply));
  }
  static ApiReply reply(int status) { return {.status = status, .body = {}}; }
  static auto count(const char* verb, const char* code, std::uint64_t times) {
    return Pair(RequestOutcome{.verb = verb, .code = code}, times);
  }

  Under under_;
  CountedTransport counted_{under_};
  int heard_ = 0;
};

TEST_F(CountedTransportTest, CountsByVerbAndCode) {
  ask({.method = "GET", .path = "/a"}, reply(200));
  ask({.method = "GET", .path = "/b"}, reply(200));
  ask({.method = "PATCH", .path = "/a"}, reply(409));
  ask({.method = "GET", .path = "/a?watch=1", .deadline = {}}, reply(410));
  ask({.method = "DELETE", .path = "/a"}, fail(Errc::unreachable, "gone"));
  EXPECT_THAT(counted_.counts(), ElementsAre(count("delete", "none", 1), count("get", "200", 2),
                                             count("patch", "409", 1), count("watch", "410", 1)));
  EXPECT_EQ(heard_, 5);
  EXPECT_THAT(under_.requests, testing::Contains(Field(&ApiRequest::path, "/a?watch=1")));
}

TEST_F(CountedTransportTest, WhatNobodyKnowsDoesNotMultiply) {
  for (const char* method : {"BREW", "get", ""}) ask({.method = method, .path = "/a"}, reply(200));
  for (const int status : {0, 99, 600, -7, 12'345}) ask({.method = "GET", .path = "/a"}, reply(status));
  EXPECT_THAT(counted_.counts(), ElementsAre(count("get", "other", 5), count("other", "200", 3)));
}

TEST_F(CountedTransportTest, ACancelledRequestIsNotCounted) {
  const auto call = counted_.send({.method = "GET", .path = "/a"}, {.ended = [](const Result<ApiReply>&) {}});
  counted_.cancel(call);
  EXPECT_THAT(under_.cancelled, ElementsAre(call));
  EXPECT_THAT(counted_.counts(), IsEmpty());
}

}  // namespace
}  // namespace ferry::kube
