// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry::kata {

/// "sha256:" or "sha512:" and lower-case hexadecimal digits, as OCI names content. ABI: OCI image
/// specification, descriptor.md.
struct Digest {
  std::string algorithm;
  std::string hex;
  auto operator<=>(const Digest&) const = default;

  /// Errc::usage: not a digest, with the reason.
  static Result<Digest> parse(std::string_view text);
  std::string text() const { return algorithm + ":" + hex; }
  /// The digest as a name of a file or folder.
  std::string file_name() const { return algorithm + "-" + hex; }
};

}  // namespace ferry::kata
