// SPDX-License-Identifier: Apache-2.0
#include "kube/curl_transport.h"

#include <map>
#include <utility>
#include <vector>

#include "kube/credential_file.h"
#include "kube/curl_exchange.h"
#include "kube/curl_pool.h"

namespace ferry {

class CurlTransport::Parts {
 public:
  Parts(EventLoop& loop, ClusterAccess access)
      : loop_(loop),
        access_(std::move(access)),
        authorities_(access_.authorities),
        certificate_(access_.certificate),
        key_(access_.key),
        token_(access_.token) {}
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  Parts(Parts&&) = delete;
  Parts& operator=(Parts&&) = delete;
  ~Parts() {
    for (const auto& [call, exchange] : calls_) loop_.cancel(exchange->watchdog);
  }

  Call send(ApiRequest request, ApiListener listener);
  void cancel(Call call);

 private:
  using Exchange = std::unique_ptr<CurlExchange>;

  Result<CredentialsNow> credentials();
  Result<> prepare(CurlExchange& exchange);
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

Result<CredentialsNow> CurlTransport::Parts::credentials() {
  CredentialsNow now;
  for (const auto& [reader, into] :
       {std::pair{&authorities_, &now.authorities}, std::pair{&certificate_, &now.certificate},
        std::pair{&key_, &now.key}, std::pair{&token_, &now.token}}) {
    const auto text = reader->now();
    if (!text) return fail(Error(text.error()));
    *into = **text;
  }
  if (access_.token.empty()) return now;
  auto token = token_of(now.token);
  if (!token)
    return fail(
        std::move(token).error().during(access_.token.file.empty() ? "token" : access_.token.file.string()));
  now.token = std::move(*token);
  return now;
}

Result<> CurlTransport::Parts::prepare(CurlExchange& exchange) {
  const auto now = credentials();
  if (!now) return fail(Error(now.error()).during(access_.server.text()));
  return exchange.prepare(access_, *now);
}

std::shared_ptr<CurlPool> CurlTransport::Parts::pool() {
  if (pool_ == nullptr) {
    pool_ = std::make_shared<CurlPool>(loop_, [this](CURL* request, CURLcode how) {
      char* of_request = nullptr;
      ::curl_easy_getinfo(request, CURLINFO_PRIVATE, &of_request);
      end(reinterpret_cast<CurlExchange*>(of_request)->call(),
          [how](CurlExchange& exchange) { return exchange.outcome(how); });
    });
  }
  return pool_;
}

ApiTransport::Call CurlTransport::Parts::send(ApiRequest request, ApiListener listener) {
  const Call call = ++last_call_;
  auto& exchange =
      *(calls_[call] = std::make_unique<CurlExchange>(call, std::move(request), std::move(listener)));
  if (const auto ready = prepare(exchange); !ready) {
    exchange.watchdog = loop_.at(EventLoop::Clock::now(), [this, call, error = ready.error()] {
      end(call, [&](CurlExchange&) { return fail(Error(error)); });
    });
    return call;
  }
  exchange.begun = [this, &exchange] { watch_over(exchange); };
  watch_over(exchange);
  if (const auto now = pool(); now->busy()) {
    now->when_idle([this, call] { begin(call); });
  } else {
    begin(call);
  }
  return call;
}

void CurlTransport::Parts::begin(Call call) {
  if (const auto found = calls_.find(call); found != calls_.end()) found->second->begin(pool());
}

void CurlTransport::Parts::watch_over(CurlExchange& exchange) {
  const auto at = exchange.late_at();
  loop_.cancel(exchange.watchdog);
  exchange.watchdog = {};
  if (at) exchange.watchdog = loop_.at(*at, [this, call = exchange.call()] { look_after(call); });
}

void CurlTransport::Parts::look_after(Call call) {
  CurlExchange& exchange = *calls_.at(call);
  const auto at = exchange.late_at();
  if (!at || *at > EventLoop::Clock::now()) return watch_over(exchange);
  // Over HTTP/2 libcurl keeps the connection; if it is dead, every later request would wait in vain.
  if (exchange.pool() == pool_) pool_.reset();
  end(call, [](CurlExchange& late) { return fail(late.too_late()); });
}

CurlTransport::Parts::Exchange CurlTransport::Parts::take(Call call) {
  auto found = calls_.extract(call);
  if (found.empty()) return nullptr;
  loop_.cancel(found.mapped()->watchdog);
  return std::move(found.mapped());
}

void CurlTransport::Parts::end(Call call, const std::function<Result<ApiReply>(CurlExchange&)>& outcome) {
  // The exchange lives until its listener has returned, since the listener may use it.
  if (const Exchange exchange = take(call)) exchange->listener().ended(outcome(*exchange));
}

void CurlTransport::Parts::cancel(Call call) {
  Exchange exchange = take(call);
  if (exchange == nullptr) return;
  exchange->cancel();
  // The exchange must outlive a libcurl call in progress, perhaps of the request's own listener.
  if (const auto pool = exchange->pool(); pool != nullptr && pool->busy())
    pool->when_idle([kept = std::shared_ptr<CurlExchange>(std::move(exchange))] {});
}

CurlTransport::CurlTransport(EventLoop& loop, ClusterAccess access)
    : parts_(std::make_unique<Parts>(loop, std::move(access))) {}

CurlTransport::~CurlTransport() = default;

ApiTransport::Call CurlTransport::send(ApiRequest request, ApiListener listener) {
  return parts_->send(std::move(request), std::move(listener));
}

void CurlTransport::cancel(Call call) {
  parts_->cancel(call);
}

}  // namespace ferry
