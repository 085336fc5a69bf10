// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/event_loop.h"
#include "common/unique_fd.h"
#include "kube/api_transport.h"
#include "tests/support/loopback.h"

namespace ferry::test {

/// What a transport answers (api_server.h), over HTTP/1.1 with TLS on the loopback. Where that loses a
/// request or ends a stream with an error the connection is cut; a client that turns away has its call
/// cancelled.
class TlsFront {
 public:
  /// Both must outlive this. Files of PEM; throws where they are none.
  TlsFront(EventLoop& loop, kube::ApiTransport& behind, const std::string& certificate,
           const std::string& key);
  TlsFront(const TlsFront&) = delete;
  TlsFront& operator=(const TlsFront&) = delete;
  TlsFront(TlsFront&&) = delete;
  TlsFront& operator=(TlsFront&&) = delete;
  ~TlsFront();

  std::uint16_t port() const { return listener_.port; }
  /// Grows with whatever comes and goes.
  std::size_t moved() const { return moved_; }
  std::size_t calls() const;                             ///< that have arrived and are not answered
  std::size_t connections() const { return accepted_; }  ///< that there have been

 private:
  struct Context;
  struct Connection;
  using Id = std::uint64_t;

  void accept_all();
  void drive(Id id);
  bool read(Connection& connection);
  bool flush(Connection& connection);
  void take_request(Id id);
  void begin(Id id, kube::ApiRequest request);
  void say(Id id, const std::string& bytes);
  void ended(Id id, const Result<kube::ApiReply>& reply);
  void close(Id id);

  EventLoop& loop_;
  kube::ApiTransport& behind_;
  std::unique_ptr<Context> context_;
  LoopbackListener listener_;
  Id accepted_ = 0;
  std::size_t moved_ = 0;
  std::map<Id, std::unique_ptr<Connection>> connections_;
};

}  // namespace ferry::test
