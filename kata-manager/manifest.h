// SPDX-License-Identifier: Apache-2.0
// What a registry says an artifact is made of.
// ABI: OCI image specification, manifest.md and image-index.md; Docker image manifest version 2, schema 2.
// Titles and unpacking are as ORAS marks them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/digest.h"

namespace ferry {

/// For the Accept header: what parse_manifest() reads.
std::vector<std::string> manifest_media_types();

struct ArtifactLayer {
  enum class Use {
    file,           ///< becomes the file `title`
    unpack_titled,  ///< a tar of the folder `title`
    unpack,         ///< a tar over the whole folder: a layer of an ordinary image
    nothing,        ///< neither a name nor a tar: passed over
  };
  Digest digest;
  std::uint64_t size = 0;
  std::string media_type;
  std::string title;  ///< org.opencontainers.image.title, proven by inner_path(); may be empty
  Use use = Use::nothing;
};

struct ArtifactManifest {
  std::vector<ArtifactLayer> layers;
  std::uint64_t size = 0;  ///< of all layers that are used
};

struct PlatformManifest {
  Digest digest;
  std::uint64_t size = 0;
  std::string os;            ///< empty: it does not say
  std::string architecture;  ///< as os
};

using ImageIndex = std::vector<PlatformManifest>;

/// `content_type` is what the registry called it. Errc::malformed_host: what is wrong; Errc::unsupported: it
/// is something else than an image or an index; Errc::refused: it is beyond a limit, or a title is no
/// inner_path().
Result<std::variant<ArtifactManifest, ImageIndex>> parse_manifest(std::string_view text,
                                                                  std::string_view content_type,
                                                                  const ArtifactLimits& limits);

/// The image for Linux on `architecture`; the only one there is if it names no platform. Errc::not_found:
/// which there are.
Result<PlatformManifest> choose_platform(const ImageIndex& index, std::string_view architecture);

/// This machine's, in OCI's (Go's) words.
std::string own_architecture();

}  // namespace ferry
