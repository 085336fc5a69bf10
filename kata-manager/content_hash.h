// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// SHA-256 or SHA-512 of bytes as they come, by OpenSSL. Where that is not here making one throws:
/// sha256_of() says so instead, and what fetches has it by libcurl.
class ContentHash {
 public:
  /// "sha256" or "sha512", as Digest::parse() lets through.
  explicit ContentHash(std::string_view algorithm = "sha256");
  void add(std::string_view bytes);
  /// Lower-case hexadecimal digits; nothing more may be added.
  std::string hex();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

/// SHA-256 of an open file from its beginning; where it is read at does not move. `told`: how many bytes were
/// read since it was called last. Errors: it cannot be read; Errc::unsupported: there is no OpenSSL here.
Result<std::string> sha256_of(int fd, const std::string& path,
                              const std::function<void(std::size_t)>& told = {});

}  // namespace ferry
