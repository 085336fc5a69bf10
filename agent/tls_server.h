// SPDX-License-Identifier: Apache-2.0
// A TLS server without a socket: it converts bytes to bytes. TLS 1.2 and 1.3, by OpenSSL.
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

/// A single connection. It keeps the parameters of its handshake to its end.
class TlsSession {
 public:
  explicit TlsSession(const std::shared_ptr<SSL_CTX>& context);

  /// Takes the client's bytes and appends the decrypted ones to `plain`. Errors: the client's TLS is not
  /// accepted; to_send() then has the alert.
  Result<> receive(std::string_view bytes, std::string& plain);
  /// Encrypts `plain` for the client. Only after receive() has returned data.
  void say(std::string_view plain);
  /// Ends the server's side; nothing may follow.
  void finish();
  /// The bytes to send to the client now.
  std::string to_send();

 private:
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

/// The server's certificate and key, from files that may be replaced.
class TlsFiles {
 public:
  TlsFiles(std::filesystem::path certificate, std::filesystem::path key);

  /// Context of a new connection, from the present files. If these do not match, the last pair stays, which
  /// is logged. Errors: there has been no valid pair.
  Result<std::shared_ptr<SSL_CTX>> now();

 private:
  Result<std::shared_ptr<SSL_CTX>> load();

  CredentialReader certificate_;
  CredentialReader key_;
  std::string loaded_;  ///< the files that `context_` was made of
  std::shared_ptr<SSL_CTX> context_;
  std::string told_;
};

}  // namespace ferry
