// SPDX-License-Identifier: Apache-2.0
// Internal: the places of artifacts and of unfinished work (artifacts.h), and the record of each version.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// The places of one artifact, relative to the host's root.
class ArtifactPlaces {
 public:
  /// Errc::usage: the folder is not absolute or has "..", or the name is no is_handler_name().
  static Result<ArtifactPlaces> of(const std::filesystem::path& artifacts_dir, const std::string& name);

  const std::filesystem::path& top() const { return top_; }    ///< artifacts_dir
  std::filesystem::path link() const { return top_ / name_; }  ///< the path for users
  std::filesystem::path store() const { return top_ / ".ferry" / name_; }
  std::filesystem::path version(const std::string& version) const { return store() / version; }
  std::filesystem::path record(const std::string& version) const { return store() / (version + ".json"); }
  /// The target of link(). It is relative, so that it holds wherever the host's root is mounted.
  std::filesystem::path link_target(const std::string& version) const {
    return std::filesystem::path(".ferry") / name_ / version;
  }

 private:
  std::filesystem::path top_;
  std::string name_;
};

// Names in a store, beside the versions.
inline constexpr const char* kPull = ".pull";       ///< the folder of a running skopeo
inline constexpr const char* kStaging = "staging";  ///< a version in the making
inline constexpr const char* kPulled =
    "pulled";  ///< a file with the name of the version that was fetched last

/// True for a version's folder. Other names are kPulled and unfinished work.
bool is_version(std::string_view name);

/// The version that link() leads to; absent: none of Ferry's.
std::optional<std::string> version_in_use(const HostFs& host, const ArtifactPlaces& places);

// The store of a class. An agent that is not root writes it, and root works there, too: a version is fetched
// by `ferry kata install`, read and removed by hostd. So each operation opens the store anew, follows no link
// to it or in it, and works in the open folder, which stays the same whatever the agent puts in its place.

/// Opens the artifacts' folder.
Result<UniqueFd> open_top(const HostFs& host, const ArtifactPlaces& places);

/// Opens the store of a class, in the open artifacts' folder. ENOENT: there is no store. Errc::refused: a
/// link or a file is in its place.
Result<UniqueFd> open_store(const UniqueFd& top, const ArtifactPlaces& places);

/// open_store(), and makes a missing store. The artifacts' folder gives it its group, which may write it.
Result<UniqueFd> open_or_make_store(const UniqueFd& top, const ArtifactPlaces& places);

/// Opens a folder in an open one. `path` is for messages, and its last part is the name. Errc::refused: a
/// link or a file is in its place.
Result<UniqueFd> open_in(const UniqueFd& folder, const std::filesystem::path& path);

/// open_in(), and makes a missing folder with `mode`, or with 0775 less the umask.
Result<UniqueFd> open_or_make_in(const UniqueFd& folder, const std::filesystem::path& path,
                                 std::optional<mode_t> mode = {});

/// True if the open folder has a folder of that name, and no link to one.
bool is_folder_in(const UniqueFd& parent, const std::string& name);

/// The names in an open store.
Result<std::vector<DirectoryEntry>> entries_of(const UniqueFd& store, const ArtifactPlaces& places);

/// Removes an entry of an open folder, with its content. `path` is for messages, and its last part is the
/// name.
Result<> remove_entry(const UniqueFd& folder, const std::filesystem::path& path);

/// The version that was fetched last; absent: none, or it is not known.
std::optional<std::string> pulled_version(const UniqueFd& store);
/// Records it; an equal record is not written again.
Result<> write_pulled_version(const UniqueFd& store, const ArtifactPlaces& places,
                              const std::string& version);

/// The record of a version, without notes and as unchanged. Errc::not_found: no record.
/// Errc::malformed_host: it cannot be read, or names a file outside of the version.
Result<Artifact> read_record(const UniqueFd& store, const ArtifactPlaces& places, const std::string& version);
/// Makes `url` the artifact's URL. The one until now stays among the earlier ones: a class that goes back to
/// it needs no fetch.
void change_url(Artifact& artifact, const std::string& url);
/// True if a fetch of `url` led to this version.
bool has_url(const Artifact& artifact, const std::string& url);
/// Writes the record of `artifact`'s version whole or not at all.
Result<> write_record(const UniqueFd& store, const ArtifactPlaces& places, const Artifact& artifact);

/// Makes missing folders, with mode 0775 less the umask, and never leaves the host's root.
Result<UniqueFd> open_or_make_folder(const HostFs& host, const std::filesystem::path& path);

/// Removes a file, a link or a folder with its content. A missing path is no error.
Result<> remove_all(const HostFs& host, const std::filesystem::path& path);

// Removes the versions of a class's artifact that earlier fetches left and no pod can use.

/// Removes old versions of `kata`, a class of `file`, and returns the folders that are gone, of those that
/// collect_versions() names. Nothing is removed while a pod may use the class (kata_users.h), whichever
/// version it began with: a sandbox that is being made and is not listed yet has a shim. Nothing is removed
/// either while the runtime does not list its pods, because VMs outlive it. A version in the class's Kata
/// configuration stays. Errors: as collect_versions().
Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const ClassFile& file, const KataClass& kata);

}  // namespace ferry::kata
