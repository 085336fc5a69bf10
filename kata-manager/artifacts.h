// SPDX-License-Identifier: Apache-2.0
// The files of a Kata runtime (its configuration, the guest's kernel and image) on this host: fetched from an
// OCI registry, or lying here already.
//
//   <artifacts_dir>/<name>                     a link to the version in use; the paths below it stay valid
//   <artifacts_dir>/.ferry/<name>/sha256-…     a version, never changed once it is there
//   <artifacts_dir>/.ferry/<name>/sha256-….json  what is in it
//   <artifacts_dir>/.ferry/<name>/blobs, staging, link   half done: what a fetch that ended early goes on
//   with
//
// The network, TLS and archives are the business of another program, `ferry-fetch` (docs/adr/0012): it is
// started for one artifact, gets what it needs, credentials too, on its standard input, and loads the
// libraries that every other verb would pay for.
//
// A fetch that is killed anywhere leaves the version in use as it was; the next one goes on where it was. One
// fetch at a time works in a folder; the lock is that of the program this replaces (k8s-kata-manager.pid), so
// that the two never do at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

inline constexpr const char* kArtifactsDir = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses";

/// The folders that Kata's own build has for its configurations, and for its kernels and images.
inline constexpr const char* kKataDefaults = "share/defaults/kata-containers";
inline constexpr const char* kKataFiles = "share/kata-containers";

/// Where a registry is asked instead: mirrors, and registries that speak plain HTTP.
struct RegistryEndpoints {
  std::string registry;  ///< as references name it: "docker.io", "registry.example:5000"
  /// "https://HOST[:PORT]" or "http://…", in the order in which they are asked; a path behind it goes in
  /// front of the repository, as mirrors with several upstreams have it. The registry itself comes last, over
  /// https, unless one of these is it. Plain HTTP is spoken only where it is said here, and with the
  /// loopback.
  std::vector<std::string> endpoints;
};

/// What an artifact may be at most. Registries and archives are not trusted to say the truth.
struct ArtifactLimits {
  std::uint64_t bytes = 16ULL << 30;    ///< of all layers, and of all files once unpacked
  std::uint64_t files = 100'000;        ///< files, folders and links
  std::uint32_t layers = 256;           ///< of one manifest
  std::uint64_t document = 4ULL << 20;  ///< bytes of a manifest, an index or a token
};

/// For how long is waited, and how often is asked again.
struct FetchPatience {
  std::chrono::milliseconds connect{15'000};
  /// A server that sends less than `slow_bytes` a second for so long is given up and asked again.
  std::chrono::seconds slow{30};
  std::uint32_t slow_bytes = 1024;
  unsigned tries = 5;  ///< in a row without a MiB gained between them
  std::chrono::milliseconds first_pause{200};
  std::chrono::milliseconds longest_pause{30'000};  ///< also of what a server asks for (Retry-After)
};

struct FetchRequest {
  std::string name;  ///< of the runtime: is_handler_name()
  /// "HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]" (image_reference.h), or "file:///DIR": a folder of this host
  /// that has the files already; it is used where it lies.
  std::string url;
  std::filesystem::path artifacts_dir = kArtifactsDir;  ///< absolute, on the host
  /// The Kata configuration, relative to the artifact's folder; empty: the only *.toml at its top, or in
  /// kKataDefaults.
  std::filesystem::path configuration = {};
  std::string docker_config = {};  ///< content of a `.dockerconfigjson` or `.dockercfg`; empty: anonymous
  std::string authorities = {};    ///< PEM certificates that are trusted beside those of the system
  std::vector<RegistryEndpoints> registries = {};
  std::string proxy = {};                  ///< URL; empty: that of the environment, if any
  std::vector<std::string> no_proxy = {};  ///< hosts and domains that are reached without it
  std::string architecture = {};           ///< as OCI says it ("amd64"); empty: this machine's
  bool allow_setuid = false;    ///< else an archive with set-user-ID or set-group-ID files is refused
  bool check_contents = false;  ///< of a version that is here already: digests too, not sizes alone
  /// Where no registry can be reached: the version in use, if it is whole and was fetched from the same URL,
  /// and a note of it.
  bool or_what_is_here = false;
  ArtifactLimits limits = {};
  FetchPatience patience = {};
  std::chrono::seconds deadline{3600};  ///< for all of it; ferry-fetch is killed then
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
  std::string url;                ///< as it was asked for
  std::string digest;             ///< of the image's manifest; with file:// of the files' names and contents
  std::filesystem::path folder;   ///< <artifacts_dir>/<name>: the same for every version
  std::filesystem::path version;  ///< the folder that it leads to now
  std::filesystem::path configuration;  ///< of Kata, below `folder`
  std::vector<ArtifactFile> files;      ///< sorted by path
  bool changed = false;                 ///< something was written on the host
  std::vector<std::string> notes;  ///< what somebody should know: a mirror that failed, layers passed over
};

struct FetchProgress {
  std::uint64_t done = 0;   ///< bytes that are here, those of earlier tries included
  std::uint64_t total = 0;  ///< bytes of all layers
};

/// `ferry-fetch` beside our own executable, else the bare name for PATH to find.
std::filesystem::path fetch_program();

/// Makes <artifacts_dir>/<name> what `url` names, and nothing if it is so already. `told` is called as bytes
/// arrive, a few times a second.
/// Errors: Errc::usage (a value of the request is wrong); Errc::invalid_config (docker_config, authorities);
/// Errc::not_found (no such artifact or folder); Errc::unreachable (the registry, or ferry-fetch is not
/// there, or the deadline); Errc::malformed_host (an answer that cannot be read); Errc::refused (a path, an
/// entry or a size that is not let onto the host; several *.toml and none named; another fetch or
/// k8s-kata-manager at work here); Errc::failed (credentials not taken, a digest that does not hold). Only
/// when it returns a value has the version in use changed.
Result<Artifact> fetch(const HostFs& host, const FetchRequest& request,
                       const std::function<void(const FetchProgress&)>& told = {},
                       const std::filesystem::path& program = fetch_program());

/// The lock of a folder of artifacts, relative to the host's root and there: <top>/k8s-kata-manager.pid, with
/// our process ID in it, held until it is closed. Errc::refused: somebody else has it, and who.
Result<UniqueFd> lock_artifacts(const HostFs& host, const std::filesystem::path& top);

/// The version in use, as it was recorded; absent: there is none of ours (a folder that somebody else put
/// there, a file:// one included, is not). Asks no registry and reads no file's content.
Result<std::optional<Artifact>> current_artifact(const HostFs& host,
                                                 const std::filesystem::path& artifacts_dir,
                                                 const std::string& name);

/// Removes what a fetch has left behind: versions that are not in use now, save those for which `in_use` says
/// true: a sandbox that began with one opens its files again at times. A folder that was there before the
/// first fetch is not ours, and stays. The folders that are gone.
Result<std::vector<std::filesystem::path>> collect_versions(
    HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
    const std::function<bool(const std::filesystem::path& version)>& in_use);

/// Removes the artifact and all its versions; a folder that file:// named stays. A folder that stood in its
/// place before, the last of them, stands there again unless something does; others stay where they were put
/// aside. No sandbox may use it. That there is none is no error.
Result<> remove_artifact(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name);
/// The same by who has lock_artifacts().
Result<> remove_locked_artifact(HostFs& host, const std::filesystem::path& artifacts_dir,
                                const std::string& name);

}  // namespace ferry
