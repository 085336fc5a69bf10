// SPDX-License-Identifier: Apache-2.0
// Internal: the places of artifacts and of unfinished work (artifacts.h), and the record of each version.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/runtime/container_runtime.h"

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
inline constexpr const char* kBlobs = "blobs";      ///< whole layers; NAME.part: not whole yet
inline constexpr const char* kStaging = "staging";  ///< a version in the making
inline constexpr const char* kNewLink = "link";     ///< a link before it is in its place
/// Prefix of folders that a link replaced. They are not Ferry's and are never removed.
inline constexpr const char* kPutAside = "replaced-";

/// True for a version's folder; other names are unfinished work or folders put aside.
bool is_version(std::string_view name);

/// The version that link() leads to; absent: none of Ferry's.
std::optional<std::string> version_in_use(const HostFs& host, const ArtifactPlaces& places);

/// The record of a version, without notes and as unchanged. Errc::not_found: no record.
/// Errc::malformed_host: it cannot be read.
Result<Artifact> read_record(const HostFs& host, const std::filesystem::path& artifacts_dir,
                             const std::string& name, const std::string& version);
std::string record_text(const Artifact& artifact);

/// Makes missing folders, with mode 0775 less the umask, and never leaves the host's root.
Result<UniqueFd> open_or_make_folder(const HostFs& host, const std::filesystem::path& path);

/// Opens the store of a class. No link below the artifacts' folder is followed, since an agent that is not
/// root writes there. ENOENT: there is no store. Errc::refused: a link or a file is in its place.
Result<UniqueFd> open_store(const HostFs& host, const ArtifactPlaces& places);

/// Frees the place of a class's link for an agent of another user. The sticky bit of the artifacts' folder
/// keeps the agent from replacing what this process's user has there. A link goes, since a fetch makes it
/// anew; a folder is put aside, as switch_link() does. Nothing is done without the sticky bit, for an entry
/// of another user, and while another program has the artifacts' lock.
Result<> make_way_for_agent(const HostFs& host, const std::filesystem::path& artifacts_dir,
                            const std::string& name);

/// Removes a file, a link or a folder with its content. A missing path is no error.
Result<> remove_all(const HostFs& host, const std::filesystem::path& path);

// Removes the versions of a class's artifact that earlier fetches left and no pod can use.

/// Returns the removed folders, of those that collect_versions() names. Nothing is removed while a pod may
/// use the class (kata_users.h), whichever version it began with. Nothing is removed either while the
/// runtime does not list its pods, because VMs outlive it. A version in the class's Kata configuration
/// stays. Callers collect before a fetch: the version in use until then stays for a sandbox that is being
/// made and is not listed yet. `others`: handlers of other classes (LeavingClasses). Errors: as
/// collect_versions().
Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const KataClass& kata,
                                                          std::vector<std::string> others = {});

}  // namespace ferry::kata
