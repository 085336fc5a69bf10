// SPDX-License-Identifier: Apache-2.0
// A version of an artifact: the manifest that describes it, and the folder that is built of its layers.
//
// ABI of the manifest: OCI image specification, manifest.md and image-index.md; Docker image manifest version
// 2, schema 2. Titles and unpacking follow ORAS's annotations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/image_reference.h"

namespace ferry::kata {

/// Becomes a file or a folder of the artifact.
struct ArtifactLayer {
  Digest digest;
  std::uint64_t size = 0;
  std::string title;  ///< org.opencontainers.image.title, checked by inner_path(); may be empty
  /// A tar of the folder `title`, or without a title over the whole folder, as in an ordinary image. False:
  /// the file `title`.
  bool is_tar = false;

  /// True: it is neither a tar, nor has it a title.
  bool is_skipped() const { return !is_tar && title.empty(); }
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

/// Checks that `configuration` (relative to `folder`) can be read. Errc::refused: FILE:LINE and the reason.
/// `host` is the root of absolute links: of a version in a store, which an agent writes, the version itself.
Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration);

// The atomic changes of a store. `store` is open_store(), and `places` are for its names and messages.

/// Makes the folder `staging` the version of that name, in one step, after all of it is on the disk. An
/// existing folder of that name moves to `staging`.
Result<> publish_staging(const UniqueFd& store, const ArtifactPlaces& places, const std::string& version);

/// Removes unfinished work.
Result<> tidy_store(const UniqueFd& store, const ArtifactPlaces& places);

// Builds a version from its manifest, in the staging folder.

/// Makes the folder `staging` of the layers, which must not exist yet. `blobs`: Skopeo::copy(), on the same
/// file system. A layer's content goes there only after its digest matched. Errc::failed: another digest.
Result<> build_version(const UniqueFd& store, const ArtifactPlaces& places, const UniqueFd& blobs,
                       const ArtifactManifest& manifest, const FetchRequest& request);

}  // namespace ferry::kata
