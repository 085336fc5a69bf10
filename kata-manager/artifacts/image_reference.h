// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry::kata {

/// "sha256:" and lower-case hexadecimal digits, as OCI names content. ABI: OCI image specification,
/// descriptor.md. Skopeo checks no other algorithm.
struct Digest {
  std::string hex;
  auto operator<=>(const Digest&) const = default;

  /// Errc::usage: not a digest, with the reason.
  static Result<Digest> parse(std::string_view text);
  std::string text() const { return "sha256:" + hex; }
  /// The digest as a name of a file or folder.
  std::string file_name() const { return "sha256-" + hex; }
};

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
  std::string manifest_key() const { return digest ? digest->text() : tag; }
};

/// "docker.io" for each name of Docker Hub, else the host in lower case.
std::string plain_registry(std::string_view host);

/// "localhost", 127.0.0.0/8 or "[::1]", with or without a port.
bool is_loopback(std::string_view host_and_port);

}  // namespace ferry::kata
