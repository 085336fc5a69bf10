// SPDX-License-Identifier: Apache-2.0
// Parses the manifest of an artifact. ABI: OCI image specification, manifest.md and image-index.md; Docker
// image manifest version 2, schema 2. Titles and unpacking follow ORAS's annotations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/image_reference.h"

namespace ferry::kata {

struct ArtifactLayer {
  enum class Use {
    file,           ///< becomes the file `title`
    unpack_titled,  ///< a tar of the folder `title`
    unpack,         ///< a tar over the whole folder: a layer of an ordinary image
    nothing,        ///< neither a title nor a tar: skipped
  };
  Digest digest;
  std::uint64_t size = 0;
  std::string media_type;
  std::string title;  ///< org.opencontainers.image.title, checked by inner_path(); may be empty
  Use use = Use::nothing;
};

struct ArtifactManifest {
  std::vector<ArtifactLayer> layers;
  std::uint64_t size = 0;     ///< of all layers and the configuration, which skopeo copies too
  std::uint64_t largest = 0;  ///< of these
};

struct PlatformManifest {
  Digest digest;
  std::uint64_t size = 0;
  std::string os;            ///< empty: not stated
  std::string architecture;  ///< empty: not stated
};

using ImageIndex = std::vector<PlatformManifest>;

/// A text without a media type is an index if it has manifests. Errc::malformed_host: an unreadable manifest;
/// Errc::unsupported: neither an image nor an index; Errc::refused: a limit, or a title is no inner_path().
Result<std::variant<ArtifactManifest, ImageIndex>> parse_manifest(std::string_view text,
                                                                  const ArtifactLimits& limits);

/// The image for Linux on `architecture`, or the only image if that names no platform. Errc::not_found
/// lists the platforms.
Result<PlatformManifest> choose_platform(const ImageIndex& index, std::string_view architecture);

/// This host's architecture, in OCI's (Go's) words.
std::string own_architecture();

}  // namespace ferry::kata
