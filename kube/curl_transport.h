// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "common/event_loop.h"
#include "kube/api_transport.h"
#include "kube/cluster_access.h"

namespace ferry {

/// The real transport to an API server: TLS by libcurl, in the loop's thread, with all requests on one
/// connection if the server speaks HTTP/2. A redirect is an answer and is not followed; only the server gets
/// credentials. A credential file is looked at for each request, so that a new one counts from the next
/// request on. A connection on which an answer was late is not used again.
///
/// libcurl by itself sends a request once more if the server closed the idle connection before any byte of an
/// answer.
class CurlTransport final : public ApiTransport {
 public:
  /// Bytes of an answer without ApiListener::received; more is ApiErrc::too_large.
  static constexpr std::size_t kMostBody = std::size_t{16} << 20U;

  /// `loop` must outlive this. Not to be destroyed within a listener.
  CurlTransport(EventLoop& loop, ClusterAccess access);
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;
  CurlTransport(CurlTransport&&) = delete;
  CurlTransport& operator=(CurlTransport&&) = delete;
  /// Listeners of unfinished requests hear nothing more.
  ~CurlTransport() override;

  Call send(ApiRequest request, ApiListener listener) override;
  void cancel(Call call) override;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ferry
