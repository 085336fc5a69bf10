// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "kata-manager/artifacts/digest.h"

namespace ferry::kata {

/// The name of an image or artifact: HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]. Without a host it is Docker
/// Hub's: the first part is a host if it has a '.' or a ':' or is "localhost". ABI: OCI distribution
/// specification, "Pulling manifests"; distribution's reference grammar.
struct ImageReference {
  std::string registry;    ///< "nvcr.io", "localhost:5000", "[::1]:5000"; Docker Hub is "docker.io"
  std::string repository;  ///< "nvidia/cloud-native/kata-gpu-artifacts", "library/alpine"
  std::string tag;         ///< empty only with a digest; "latest" if neither was given
  std::optional<Digest> digest;
  bool operator==(const ImageReference&) const = default;

  /// Errc::usage names the wrong part and the reason.
  static Result<ImageReference> parse(std::string_view text);
  std::string text() const;
  /// The key for the registry: the digest, else the tag.
  std::string wanted() const { return digest ? digest->text() : tag; }
};

/// "docker.io" for each name of Docker Hub, else the host in lower case.
std::string plain_registry(std::string_view host);

/// "localhost", 127.0.0.0/8 or "[::1]", with or without a port.
bool is_loopback(std::string_view host_and_port);

}  // namespace ferry::kata
