// SPDX-License-Identifier: Apache-2.0
#include "kube/counted_transport.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace ferry::kube {
namespace {

std::string verb_of(const ApiRequest& request) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kVerbs = {
      {{"GET", "get"}, {"PATCH", "patch"}, {"POST", "post"}, {"PUT", "put"}, {"DELETE", "delete"}}};
  if (request.deadline.count() == 0) return "watch";
  const auto* const known =
      std::ranges::find(kVerbs, request.method, &std::pair<std::string_view, std::string_view>::first);
  return known == kVerbs.end() ? "other" : std::string(known->second);
}

std::string code_of(const Result<ApiReply>& reply) {
  constexpr int kFirst = 100;
  constexpr int kBeyond = 600;
  if (!reply) return "none";
  return reply->status >= kFirst && reply->status < kBeyond ? std::to_string(reply->status) : "other";
}

}  // namespace

ApiTransport::Call CountedTransport::send(ApiRequest request, ApiListener listener) {
  listener.ended = [counts = counts_, verb = verb_of(request),
                    ended = std::move(listener.ended)](Result<ApiReply> reply) {
    ++(*counts)[{.verb = verb, .code = code_of(reply)}];
    ended(std::move(reply));
  };
  return under_.send(std::move(request), std::move(listener));
}

}  // namespace ferry::kube
