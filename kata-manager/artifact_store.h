// SPDX-License-Identifier: Apache-2.0
// Inside this room: where artifacts and what is half done of them lie (artifacts.h), and what is written
// about each version.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts.h"

namespace ferry {

/// The places of one artifact, relative to the host's root.
class ArtifactPlaces {
 public:
  /// Errc::usage: the folder is not absolute or climbs, or the name is no is_handler_name().
  static Result<ArtifactPlaces> of(const std::filesystem::path& artifacts_dir, const std::string& name);

  const std::filesystem::path& top() const { return top_; }    ///< artifacts_dir
  std::filesystem::path link() const { return top_ / name_; }  ///< what users see
  std::filesystem::path store() const { return top_ / ".ferry" / name_; }
  std::filesystem::path version(const std::string& version) const { return store() / version; }
  std::filesystem::path record(const std::string& version) const { return store() / (version + ".json"); }
  /// What link() says for it: relative, so that it holds wherever the host's root is mounted.
  std::filesystem::path link_target(const std::string& version) const {
    return std::filesystem::path(".ferry") / name_ / version;
  }

 private:
  std::filesystem::path top_;
  std::string name_;
};

// Names in a store beside the versions.
inline constexpr const char* kBlobs = "blobs";      ///< layers as they came; NAME.part: not whole yet
inline constexpr const char* kStaging = "staging";  ///< a version that is made ready
inline constexpr const char* kNewLink = "link";     ///< a link before it is in its place
/// What a folder of the store begins with that was in the place of a link of ours: never removed.
inline constexpr const char* kPutAside = "replaced-";

/// Whether a name in the store is a version's folder; others are half done, or were put aside.
bool is_version(std::string_view name);

/// The version that link() leads to; absent: none of ours.
std::optional<std::string> version_in_use(const HostFs& host, const ArtifactPlaces& places);

/// What is recorded of a version: without notes, and as unchanged. Errc::not_found: nothing is.
/// Errc::malformed_host: it cannot be read.
Result<Artifact> read_record(const HostFs& host, const std::filesystem::path& artifacts_dir,
                             const std::string& name, const std::string& version);
std::string record_text(const Artifact& artifact);

/// Makes folders that are missing, with mode 0775 less the umask, without leaving the host's root.
Result<UniqueFd> open_or_make_folder(const HostFs& host, const std::filesystem::path& path);

/// Removes a file, a link or a folder with all that is in it; that it is not there is no error.
Result<> remove_all(const HostFs& host, const std::filesystem::path& path);

}  // namespace ferry
