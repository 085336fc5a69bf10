// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kube/api_transport.h"

namespace ferry {

/// The end of a request to the API server, as it is counted.
struct RequestOutcome {
  std::string verb;  ///< "get", "patch", "post", "put", "delete", "watch", "other"
  std::string code;  ///< "200"; "none": no answer came; "other": not a status of HTTP
  auto operator<=>(const RequestOutcome&) const = default;
};
using RequestCounts = std::map<RequestOutcome, std::uint64_t>;

/// Counts the requests that pass to another transport, each when it has ended, watches too. A cancelled
/// request is not counted.
class CountedTransport final : public ApiTransport {
 public:
  /// `under` must outlive this.
  explicit CountedTransport(ApiTransport& under) : under_(under) {}

  Call send(ApiRequest request, ApiListener listener) override;
  void cancel(Call call) override { under_.cancel(call); }

  const RequestCounts& counts() const { return *counts_; }

 private:
  ApiTransport& under_;
  const std::shared_ptr<RequestCounts> counts_ = std::make_shared<RequestCounts>();
};

}  // namespace ferry
