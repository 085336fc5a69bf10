// SPDX-License-Identifier: Apache-2.0
// TLS as a server speaks it, from bytes to bytes: no socket here. TLS 1.2 and 1.3, by OpenSSL.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"
#include "kube/credential_file.h"

using SSL = struct ssl_st;
using SSL_CTX = struct ssl_ctx_st;

namespace ferry {

/// One connection. What has been agreed on at its beginning holds to its end.
class TlsSession {
 public:
  explicit TlsSession(const std::shared_ptr<SSL_CTX>& context);

  /// Takes what the client has sent and adds what it says to `plain`. Errors: it is no TLS that we speak;
  /// what is to be sent then is the reason.
  Result<> receive(std::string_view bytes, std::string& plain);
  /// Says this to the client. Only after receive() has given something.
  void say(std::string_view plain);
  /// Nothing more will be said.
  void finish();
  /// What is to be sent to the client now.
  std::string to_send();

 private:
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

/// The server's certificate and its key, from files that others replace.
class TlsFiles {
 public:
  TlsFiles(std::filesystem::path certificate, std::filesystem::path key);

  /// For a connection that begins now: by the files as they are, or as they last were a pair, which is
  /// logged. Errors: they have never been one.
  Result<std::shared_ptr<SSL_CTX>> now();

 private:
  Result<std::shared_ptr<SSL_CTX>> load();

  CredentialReader certificate_;
  CredentialReader key_;
  std::string loaded_;  ///< what `context_` was made of
  std::shared_ptr<SSL_CTX> context_;
  std::string told_;
};

}  // namespace ferry
