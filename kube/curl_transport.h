// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "common/event_loop.h"
#include "kube/api_transport.h"
#include "kube/cluster_access.h"

namespace ferry {

/// The real way to an API server: TLS by libcurl, all requests on one connection where the server speaks
/// HTTP/2, in the loop's thread. Redirects are answers and not followed; nobody but the server gets
/// credentials. A credential in a file is looked at for each request, so that what has replaced it counts
/// from the next one on. A connection on which an answer did not come in time is not used again.
///
/// libcurl sends a request once more, by itself, if the server closed the connection while it was idle and no
/// byte of an answer has come.
class CurlTransport final : public ApiTransport {
 public:
  /// Bytes of an answer that is not taken as it comes; more is ApiErrc::too_large.
  static constexpr std::size_t kMostBody = std::size_t{16} << 20U;

  /// `loop` outlives it. Not to be destroyed from within a listener.
  CurlTransport(EventLoop& loop, ClusterAccess access);
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;
  CurlTransport(CurlTransport&&) = delete;
  CurlTransport& operator=(CurlTransport&&) = delete;
  /// Listeners of what has not ended hear nothing more.
  ~CurlTransport() override;

  Call send(ApiRequest request, ApiListener listener) override;
  void cancel(Call call) override;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ferry
