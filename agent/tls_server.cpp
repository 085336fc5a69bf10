// SPDX-License-Identifier: Apache-2.0
#include "agent/tls_server.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <new>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <utility>

#include <spdlog/spdlog.h>

namespace ferry {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free_all)>;

// The first error in OpenSSL's queue; its texts are short and name no secret.
std::string openssl_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  return reason == nullptr ? "OpenSSL says no reason" : reason;
}

Bio reader_of(const std::string& text) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  return {::BIO_new_mem_buf(text.data(), static_cast<int>(std::min(text.size(), kMost))), &BIO_free_all};
}

// OpenSSL's own function would ask on the terminal.
int no_pass_phrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) {
  return -1;
}

tl::unexpected<Error> unusable(const std::string& what, const char* hint) {
  return fail(Errc::failed, what + ": " + openssl_error(), hint);
}

Result<> use_certificates(SSL_CTX* context, const std::string& text) {
  constexpr const char* kHint = "a PEM file: the server's certificate first, then those that signed it";
  const auto bio = reader_of(text);
  const std::unique_ptr<X509, decltype(&X509_free)> own(
      ::PEM_read_bio_X509_AUX(bio.get(), nullptr, no_pass_phrase, nullptr), &X509_free);
  if (!own || ::SSL_CTX_use_certificate(context, own.get()) != 1) return unusable("the certificate", kHint);
  while (X509* const next = ::PEM_read_bio_X509(bio.get(), nullptr, no_pass_phrase, nullptr)) {
    if (::SSL_CTX_add0_chain_cert(context, next) == 1) continue;
    ::X509_free(next);
    return unusable("the certificate's chain", kHint);
  }
  ::ERR_clear_error();  // the end of the file is an error too
  return {};
}

Result<> use_key(SSL_CTX* context, const std::string& text) {
  const auto bio = reader_of(text);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      ::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, nullptr), &EVP_PKEY_free);
  if (!key) return unusable("the key", "a PEM file without a pass phrase");
  if (::SSL_CTX_use_PrivateKey(context, key.get()) != 1 || ::SSL_CTX_check_private_key(context) != 1)
    return unusable("the key", "is it that of the certificate?");
  return {};
}

}  // namespace

TlsSession::TlsSession(const std::shared_ptr<SSL_CTX>& context) : ssl_(::SSL_new(context.get()), &SSL_free) {
  BIO* const in = ::BIO_new(::BIO_s_mem());
  BIO* const out = ::BIO_new(::BIO_s_mem());
  if (!ssl_ || in == nullptr || out == nullptr) {
    ::BIO_free(in);
    ::BIO_free(out);
    throw std::bad_alloc();
  }
  ::SSL_set_bio(ssl_.get(), in, out);
  ::SSL_set_accept_state(ssl_.get());
}

Result<> TlsSession::receive(std::string_view bytes, std::string& plain) {
  ::ERR_clear_error();
  ::BIO_write(::SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
  constexpr std::size_t kPiece = 4'096;
  std::array<char, kPiece> piece{};
  while (true) {
    const int count = ::SSL_read(ssl_.get(), piece.data(), static_cast<int>(piece.size()));
    if (count > 0) {
      plain.append(piece.data(), static_cast<std::size_t>(count));
      continue;
    }
    const int why = ::SSL_get_error(ssl_.get(), count);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_ZERO_RETURN) return {};
    return fail(Errc::unreachable, "TLS with a client: " + openssl_error());
  }
}

void TlsSession::say(std::string_view plain) {
  ::ERR_clear_error();
  // A memory BIO takes all bytes.
  if (!plain.empty()) ::SSL_write(ssl_.get(), plain.data(), static_cast<int>(plain.size()));
}

void TlsSession::finish() {
  ::ERR_clear_error();
  ::SSL_shutdown(ssl_.get());
}

std::string TlsSession::to_send() {
  BIO* const out = ::SSL_get_wbio(ssl_.get());
  std::string bytes(::BIO_ctrl_pending(out), '\0');
  if (!bytes.empty()) ::BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

TlsFiles::TlsFiles(std::filesystem::path certificate, std::filesystem::path key)
    : certificate_(Credential{.text = {}, .file = std::move(certificate)}),
      key_(Credential{.text = {}, .file = std::move(key)}) {}

Result<std::shared_ptr<SSL_CTX>> TlsFiles::load() {
  const auto certificate = certificate_.now();
  if (!certificate) return fail(Error(certificate.error()));
  const auto key = key_.now();
  if (!key) return fail(Error(key.error()));
  std::string both = **certificate + '\0' + **key;
  if (context_ && both == loaded_) return context_;
  ::ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(::SSL_CTX_new(::TLS_server_method()), &SSL_CTX_free);
  if (!context) return unusable("TLS", "");
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  ::SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  ::SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (auto used = use_certificates(context.get(), **certificate); !used) return fail(std::move(used).error());
  if (auto used = use_key(context.get(), **key); !used) return fail(std::move(used).error());
  loaded_ = std::move(both);
  return context;
}

Result<std::shared_ptr<SSL_CTX>> TlsFiles::now() {
  auto loaded = load();
  if (loaded) {
    if (context_ && context_ != *loaded) spdlog::info("metrics: the server's certificate has been replaced");
    told_.clear();
    context_ = *loaded;
    return context_;
  }
  if (!context_) return fail(std::move(loaded).error());
  if (told_ != loaded.error().message) {
    told_ = loaded.error().message;
    spdlog::error("metrics: the certificate stays as it was: {}", told_);
  }
  return context_;
}

}  // namespace ferry
