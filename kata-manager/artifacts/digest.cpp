// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/digest.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry::kata {

Result<Digest> Digest::parse(std::string_view text) {
  constexpr std::size_t kHexOfSha256 = 64;
  constexpr std::size_t kHexOfSha512 = 128;
  const auto colon = text.find(':');
  Digest digest{.algorithm = std::string(text.substr(0, colon)),
                .hex = std::string(colon == std::string_view::npos ? "" : text.substr(colon + 1))};
  const std::size_t wanted = digest.algorithm == "sha256"   ? kHexOfSha256
                             : digest.algorithm == "sha512" ? kHexOfSha512
                                                            : 0;
  if (colon == std::string_view::npos || wanted == 0) {
    return fail(Errc::usage, fmt::format("'{}' is no digest: sha256:… or sha512:… is", text));
  }
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digest.hex.size() != wanted || !std::ranges::all_of(digest.hex, is_hex)) {
    return fail(Errc::usage, fmt::format("'{}' is no digest: {} needs {} lower-case hexadecimal digits", text,
                                         digest.algorithm, wanted));
  }
  return digest;
}

}  // namespace ferry::kata
