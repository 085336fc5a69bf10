// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/token_server.h"

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/process/spawn.h"
#include "tests/support/must.h"

namespace ferry::test {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string base64url(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(size));
  while (out.ends_with('=')) out.pop_back();
  for (char& c : out) {
    if (c == '+') c = '-';
    if (c == '/') c = '_';
  }
  return out;
}

/// RS256
std::string signature(const std::string& key, const std::string& text) {
  const std::unique_ptr<BIO, decltype(&::BIO_free)> bio(
      ::BIO_new_mem_buf(key.data(), static_cast<int>(key.size())), &::BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)> secret(
      ::PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr), &::EVP_PKEY_free);
  const std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context(::EVP_MD_CTX_new(),
                                                                          &::EVP_MD_CTX_free);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t size = 0;
  std::string out;
  if (::EVP_DigestSignInit(context.get(), nullptr, ::EVP_sha256(), nullptr, secret.get()) != 1 ||
      ::EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) != 1)
    return out;
  out.resize(size);
  if (::EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size, bytes,
                       text.size()) != 1)
    return {};
  out.resize(size);
  return out;
}

/// What stands between the marks of a PEM file, in one line.
std::string body_of(const std::string& pem) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < pem.size();) {
    const auto end = std::min(pem.find('\n', at), pem.size());
    const auto line = pem.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("-----")) {
      if (inside) return out;
      inside = true;
    } else if (inside) {
      out += line;
    }
  }
  return out;
}

}  // namespace

TokenServer::TokenServer(const ScratchDirectory& folder, Terms terms)
    : terms_(std::move(terms)), server_([this](const ReceivedRequest& seen) { return answer(seen); }) {
  const auto key = folder.path() / "token-key.pem";
  const auto cert = folder.path() / "token-cert.pem";
  const int pid = must(spawn("openssl",
                             {"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                              "-subj", "/CN=ferry tokens", "-keyout", key.string(), "-out", cert.string()},
                             {}));
  reap(pid);
  key_ = text_of(key);
  cert_ = body_of(text_of(cert));
}

HttpAnswer TokenServer::answer(const ReceivedRequest& seen) const {
  const bool by_password = seen.method == "GET" && seen.header("authorization") == "Basic " + terms_.basic;
  const bool by_token = seen.method == "POST" && !terms_.refresh_token.empty() &&
                        seen.body.find("refresh_token=" + terms_.refresh_token) != std::string::npos;
  if (!by_password && !by_token) {
    return {.status = 401,
            .headers = {"Content-Type: application/json"},
            .body = R"({"errors":[{"code":"UNAUTHORIZED","message":"not you"}]})"};
  }
  return {
      .headers = {"Content-Type: application/json"},
      .body = nlohmann::json({{by_token ? "access_token" : "token", token()}, {"expires_in", 300}}).dump()};
}

std::string TokenServer::token() const {
  using std::chrono::seconds;
  const auto now =
      std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const nlohmann::json head = {{"typ", "JWT"}, {"alg", "RS256"}, {"x5c", {cert_}}};
  const nlohmann::json claims = {
      {"iss", terms_.issuer},
      {"sub", "ferry"},
      {"aud", terms_.service},
      {"exp", now + 300},
      {"nbf", now - 60},
      {"iat", now},
      {"jti", "1"},
      {"access", {{{"type", "repository"}, {"name", terms_.repository}, {"actions", {terms_.action}}}}}};
  const std::string text = base64url(head.dump()) + "." + base64url(claims.dump());
  return text + "." + base64url(signature(key_, text));
}

}  // namespace ferry::test
