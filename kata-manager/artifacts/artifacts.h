// SPDX-License-Identifier: Apache-2.0
// The files of a Kata class (its configuration, the guest's kernel and image) on this host, fetched from an
// OCI registry or present in a folder.
//
//   <artifacts_dir>/<name>                     a link to the version in use; the paths below it stay valid
//   <artifacts_dir>/.ferry/<name>/sha256-…     a version, never changed once it is there
//   <artifacts_dir>/.ferry/<name>/sha256-….json  its record: URLs, digest, files
//   <artifacts_dir>/.ferry/<name>/pulled       the name of the version that was fetched last
//   <artifacts_dir>/.ferry/<name>/pull, staging   unfinished work, which the next fetch removes
//   <artifacts_dir>/.<name>.replaced-N         a folder that was in the link's place
//
// On a cluster the agent, which is not root, fetches into `.ferry` alone. Root writes the folder above: hostd
// makes the link once the change is permitted, and `ferry kata install` makes it at the end of its fetch.
//
// Another program, `ferry-fetch` (docs/adr/0043), unpacks archives, and runs skopeo(1) for network and TLS.
// It runs for one artifact, reads the request and its credentials from standard input, and loads the
// libraries that would slow down every other verb.
//
// A fetch that is killed anywhere leaves the version in use unchanged. Only one fetch at a time works in a
// folder. Its lock is that of the replaced program (k8s-kata-manager.pid), so that the two never work
// together.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/process/spawn.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"

namespace ferry::kata {

/// Folders in Kata's own build: its configurations, and its kernels and images.
inline constexpr const char* kKataDefaults = "share/defaults/kata-containers";
inline constexpr const char* kKataFiles = "share/kata-containers";

/// Limits of an artifact. The sizes that registries and archives state are not trusted.
struct ArtifactLimits {
  std::uint64_t bytes = 16ULL << 30;    ///< of all layers, and of all files once unpacked
  std::uint64_t files = 100'000;        ///< files, folders and links
  std::uint32_t layers = 256;           ///< of one manifest
  std::uint64_t document = 4ULL << 20;  ///< bytes of a manifest or an index
};

struct FetchRequest {
  std::string name;  ///< the class's; is_handler_name()
  /// "HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]" (image_reference.h), or "file:///DIR", a folder of this host
  /// that is used in place.
  std::string url;
  std::filesystem::path artifacts_dir = {};  ///< absolute, on the host
  /// Kata's configuration, relative to the artifact's folder; empty: the only *.toml at its top, or in
  /// kKataDefaults.
  std::filesystem::path configuration = {};
  std::string docker_config = {};  ///< content of a `.dockerconfigjson` or `.dockercfg`; empty: anonymous
  std::string authorities = {};    ///< PEM certificates, trusted beside the system's
  /// The servers of a registry ("docker.io", "registry.example:5000", as in references), in order of trial:
  /// "https://HOST[:PORT]" or "http://…". A path goes in front of the repository, for mirrors with several
  /// upstreams. The registry itself comes last, over https, unless the list has it. Plain HTTP is spoken only
  /// with servers listed so, and with the loopback.
  std::map<std::string, std::vector<std::string>> registries = {};
  std::string proxy = {};                  ///< URL; empty: from the environment, if set
  std::vector<std::string> no_proxy = {};  ///< hosts and domains that bypass the proxy
  /// False: only the store is written, for a caller that may not write the artifacts' folder. hostd makes the
  /// link.
  bool makes_link = true;
  bool allow_setuid = false;  ///< false: archives with set-user-ID or set-group-ID files are refused
  /// If no registry can be reached, the version that was fetched last or is in use serves, with a note, if it
  /// is whole and of the same URL.
  bool or_what_is_here = false;
  ArtifactLimits limits = {};
  unsigned retries = 3;                 ///< of what time may mend, after pauses of 1 s, 2 s, 4 s, …
  std::chrono::seconds deadline{3600};  ///< for the whole fetch; then ferry-fetch is killed
};

struct ArtifactFile {
  std::filesystem::path path;  ///< relative to the artifact's folder
  std::uint64_t size = 0;      ///< 0 for a link
  std::string sha256;          ///< 64 hexadecimal digits; empty for a link
  std::string link;            ///< target of a link; empty for a file
  bool operator==(const ArtifactFile&) const = default;
};

struct Artifact {
  std::string name;
  std::string url;  ///< the requested URL
  /// URLs of earlier fetches that led to the same version, the latest first. Only a record has them.
  std::vector<std::string> earlier_urls = {};
  std::string digest = {};        ///< of the image's manifest; with file://, of the files' names and contents
  std::filesystem::path folder;   ///< <artifacts_dir>/<name>, equal for all versions
  std::filesystem::path version;  ///< the folder that `folder` leads to now
  std::filesystem::path configuration = {};  ///< Kata's, below `folder`
  std::vector<ArtifactFile> files = {};      ///< sorted by path
  bool changed = false;                      ///< something was written on the host
  std::vector<std::string> notes = {};  ///< for the administrator: an older version is used, skipped layers
};

inline constexpr const char* kFetchProgram = "ferry-fetch";

/// Makes <artifacts_dir>/<name> the artifact of `url`, or only its store; no change if it is already.
/// Errors: Errc::usage: a wrong value in the request; Errc::invalid_config: docker_config; Errc::not_found:
/// no such artifact or folder; Errc::unreachable: the registry, a missing ferry-fetch or skopeo, or the
/// deadline; Errc::malformed_host: an unreadable answer; Errc::refused: a forbidden path, entry or size,
/// several *.toml and none named, or another fetch or k8s-kata-manager at work; Errc::failed: refused
/// credentials, a wrong digest, and all else that skopeo reports. After an error the version in use is
/// unchanged.
Result<Artifact> fetch(const HostFs& host, const FetchRequest& request,
                       const std::filesystem::path& program = program_beside(kFetchProgram));

/// A running ferry-fetch, for callers with an event loop. Callers that block have fetch().
class FetchProcess {
 public:
  /// Starts `program` for one artifact. The request with its credentials is in an unnamed memory file: in
  /// no argument, no environment and on no disk. Errc::unreachable: the program is missing.
  static Result<FetchProcess> start(const HostFs& host, const FetchRequest& request,
                                    const std::filesystem::path& program = program_beside(kFetchProgram));
  FetchProcess(FetchProcess&& other) noexcept;
  FetchProcess& operator=(FetchProcess&&) = delete;
  FetchProcess(const FetchProcess&) = delete;
  FetchProcess& operator=(const FetchProcess&) = delete;
  /// Kills the process and waits for its end. Its skopeo ends with it.
  ~FetchProcess();
  /// Kills the process. It ends, and hear() returns true, after its present read or write: on a disk that
  /// hangs, this takes long.
  void kill() const;

  /// poll() takes this descriptor; reads never block.
  int fd() const { return output_.get(); }

  /// Reads the answer so far, once fd() is readable. True: the process ended, or closed its output.
  Result<bool> hear();

  /// The result, as of fetch(). Call it once hear() returned true.
  Result<Artifact> answer();

 private:
  FetchProcess(int pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}

  int pid_;  ///< 0: reaped already
  UniqueFd output_;
  std::string text_;
};

/// Locks a folder of artifacts, relative to the host's root: <top>/k8s-kata-manager.pid, with this
/// process's ID in it, until it is closed. Errc::refused: another process, which the error names, has the
/// lock.
Result<UniqueFd> lock_artifacts(const HostFs& host, const std::filesystem::path& top);

/// The record of the version with this URL: the one that was fetched last, else the one in use. Absent: Ferry
/// fetched none (a folder from elsewhere, such as one of file://, has no record). Asks no registry and reads
/// no file's content.
Result<std::optional<Artifact>> current_artifact(const HostFs& host,
                                                 const std::filesystem::path& artifacts_dir,
                                                 const std::string& name, const std::string& url);

/// Removes versions that are neither in use nor fetched last, except those for which `in_use` is true: a
/// sandbox may open files of the version that it began with. A folder that was there before the first fetch
/// stays. Returns the removed folders.
Result<std::vector<std::filesystem::path>> collect_versions(
    HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
    const std::function<bool(const std::filesystem::path& version)>& in_use);

/// A folder that a link has replaced (`.<name>.replaced-N`), once the artifact goes.
enum class Replaced {
  comes_back,  ///< the last one, unless its place is taken; others stay put aside
  stays,       ///< put aside: hostd moves no folder
};

/// Removes an artifact and its versions; a folder that file:// named stays. With Replaced::stays, a link
/// stays that Ferry did not make. No sandbox may use the artifact. A missing artifact is no error. The caller
/// holds lock_artifacts().
Result<> remove_artifact(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
                         Replaced replaced);

}  // namespace ferry::kata
