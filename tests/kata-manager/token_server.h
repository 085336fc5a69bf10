// SPDX-License-Identifier: Apache-2.0
// A server of bearer tokens that a real registry believes. ABI: distribution, docs/spec/auth/token.md and
// jwt.md.
#pragma once

#include <string>

#include "tests/support/http_standin.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

class TokenServer {
 public:
  struct Terms {
    std::string service = "ferry-registry";
    std::string issuer = "ferry-issuer";
    std::string basic;               ///< base64 of USER:PASSWORD that gets a token
    std::string repository;          ///< what it is good for
    std::string action = "pull";     ///< and what for there
    std::string refresh_token = {};  ///< gets one too, by POST; empty: nothing does
  };
  /// Signs with token-key.pem, which it makes in the folder with token-cert.pem.
  TokenServer(const ScratchDirectory& folder, Terms terms);

  std::string realm() const { return "http://" + server_.address() + "/token"; }
  std::vector<ReceivedRequest> seen() const { return server_.seen(); }

 private:
  HttpAnswer answer(const ReceivedRequest& seen) const;
  std::string token() const;

  Terms terms_;
  std::string key_;   // PEM
  std::string cert_;  // base64 of its DER
  HttpStandin server_;
};

}  // namespace ferry::test
