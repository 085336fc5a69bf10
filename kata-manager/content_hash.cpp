// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/content_hash.h"

#include <array>
#include <cerrno>
#include <new>
#include <openssl/evp.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

namespace ferry {
namespace {

EVP_MD_CTX* own(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

}  // namespace

void ContentHash::Free::operator()(void* context) const {
  ::EVP_MD_CTX_free(own(context));
}

ContentHash::ContentHash(std::string_view algorithm) : context_(::EVP_MD_CTX_new()) {
  // These fail for want of memory alone, as an allocation does.
  const EVP_MD* method = algorithm == "sha512" ? ::EVP_sha512() : ::EVP_sha256();
  if (context_ == nullptr || ::EVP_DigestInit_ex(own(context_.get()), method, nullptr) != 1)
    throw std::bad_alloc();
}

void ContentHash::add(std::string_view bytes) {
  if (::EVP_DigestUpdate(own(context_.get()), bytes.data(), bytes.size()) != 1) throw std::bad_alloc();
}

std::string ContentHash::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  if (::EVP_DigestFinal_ex(own(context_.get()), bytes.data(), &size) != 1) throw std::bad_alloc();
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

Result<std::string> sha256_of(int fd, const std::string& path, const std::function<void(std::size_t)>& told) {
  constexpr std::size_t kAtOnce = 256UL * 1024;
  ContentHash hash;
  std::vector<char> buffer(kAtOnce);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "read " + path));
    if (n == 0) return hash.hex();
    hash.add({buffer.data(), static_cast<std::size_t>(n)});
    at += n;
    if (told) told(static_cast<std::size_t>(n));
  }
}

}  // namespace ferry
