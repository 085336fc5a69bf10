// SPDX-License-Identifier: Apache-2.0
// An HTTP server on the loopback whose every answer the test writes, the broken ones too. One connection at a
// time, one request each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/loopback.h"

namespace ferry::test {

struct ReceivedRequest {
  std::string method = {};
  std::string path = {};                            ///< with its query
  std::map<std::string, std::string> headers = {};  ///< names in lower case
  std::string body = {};
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct HttpAnswer {
  int status = 200;
  std::vector<std::string> headers = {};  ///< "Name: value"
  std::string body = {};
  std::size_t sent = std::string::npos;  ///< bytes of the body that are sent before the connection is cut
  bool stalls = false;                   ///< instead of cutting it nothing more comes
  bool chunked = false;                  ///< the length is not said beforehand
};

class HttpStandin {
 public:
  explicit HttpStandin(std::function<HttpAnswer(const ReceivedRequest&)> handler);

  std::uint16_t port() const { return server_.port(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  std::vector<ReceivedRequest> seen() const;

 private:
  void answer(int connection);

  std::function<HttpAnswer(const ReceivedRequest&)> handler_;
  mutable std::mutex mutex_;
  std::vector<ReceivedRequest> seen_;
  LoopbackServer server_;
};

}  // namespace ferry::test
