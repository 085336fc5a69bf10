// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "common/event_loop.h"
#include "common/result.h"
#include "kube/api_transport.h"
#include "kube/cluster_access.h"
#include "kube/credential_file.h"

namespace ferry::kube {

class CurlExchange;
class CurlPool;

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
  /// Listeners of unfinished requests hear nothing more.
  ~CurlTransport() override;

  Call send(ApiRequest request, ApiListener listener) override;
  void cancel(Call call) override;

 private:
  using Exchange = std::unique_ptr<CurlExchange>;

  Result<ClusterAccess> access_now();
  std::shared_ptr<CurlPool> pool();
  void begin(Call call);
  void watch_over(CurlExchange& exchange);
  void look_after(Call call);
  /// Takes the call out, so that nothing more happens to it and its listener may hear its end.
  Exchange take(Call call);
  void end(Call call, const std::function<Result<ApiReply>(CurlExchange&)>& outcome);

  EventLoop& loop_;
  ClusterAccess access_;
  CredentialReader authorities_;
  CredentialReader certificate_;
  CredentialReader key_;
  CredentialReader token_;
  /// The pool of new requests. Earlier pools live as long as requests in them do.
  std::shared_ptr<CurlPool> pool_;
  Call last_call_ = 0;
  std::map<Call, Exchange> calls_;
};

}  // namespace ferry::kube
