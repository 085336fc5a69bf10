// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_version.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/inner_path.h"
#include "kata-manager/artifacts/unpack.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration) {
  constexpr std::int64_t kMost = 1LL << 20;  // Kata's longest shipped file has 40 KiB
  const auto file = host.open(folder / configuration, O_PATH);
  if (!file) return fail(file.error());
  struct stat status {};
  if (::fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > kMost) {
    return fail(Errc::refused,
                fmt::format("Kata's configuration '{}' is no file of a MiB at most", configuration.string()));
  }
  const auto text = host.read_file(folder / configuration);
  if (!text) return fail(text.error());
  const auto parsed = parse_toml(*text, configuration.string());
  if (!parsed) return fail(Errc::refused, "Kata's configuration cannot be read: " + parsed.error().message);
  return {};
}

Result<> publish_staging(const UniqueFd& store, const ArtifactPlaces& places, const std::string& version) {
  const std::string what = fmt::format("publish /{}", places.version(version).string());
  const unsigned flags = is_folder_in(store, version) ? RENAME_EXCHANGE : 0;
  // A single call for the whole file system is faster than a call for each file.
  if (::syncfs(store.get()) != 0 ||
      ::renameat2(store.get(), kStaging, store.get(), version.c_str(), flags) != 0 ||
      ::fsync(store.get()) != 0)
    return fail(error_from_errno(errno, what));
  return {};
}

Result<> tidy_store(const UniqueFd& store, const ArtifactPlaces& places) {
  const auto entries = entries_of(store, places);
  if (!entries) return fail(entries.error());
  for (const DirectoryEntry& entry : *entries) {
    // Names that begin with a dot are files that were being written.
    const bool is_left = entry.name.starts_with('.') || entry.name == kStaging;
    if (!is_left) continue;
    if (auto removed = remove_entry(store, places.store() / entry.name); !removed) return removed;
  }
  return {};
}

namespace {

Result<> place(const ArtifactLayer& layer, const UniqueFd& blobs, SafeTree& tree, bool allow_setuid) {
  // Skopeo has compared the digest with what came; here, what lies on the disk is compared.
  const std::string& name = layer.digest.hex;
  const UniqueFd blob(::openat(blobs.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!blob.valid() || ::fstat(blob.get(), &status) != 0)
    return fail(error_from_errno(errno, "open blob " + layer.digest.text()));
  const bool is_whole = S_ISREG(status.st_mode) && static_cast<std::uint64_t>(status.st_size) == layer.size;
  auto hex = is_whole ? hash_of(blob.get(), name) : Result<std::string>();
  if (!hex) return fail(std::move(hex).error());
  if (*hex != name)
    return fail(Errc::failed, fmt::format("blob {}: what came is not of that digest and of {} bytes",
                                          layer.digest.text(), layer.size));

  // It becomes a file of the artifact, and is skopeo's user's until now.
  const bool is_ours = status.st_uid == ::geteuid();
  if ((!is_ours && ::fchown(blob.get(), ::geteuid(), ::getegid()) != 0) || ::fchmod(blob.get(), 0644) != 0)
    return fail(error_from_errno(errno, "take blob " + layer.digest.text()));

  InnerParts title;
  if (!layer.title.empty()) {
    auto parts = inner_path(layer.title);
    if (!parts) return fail(std::move(parts).error());
    title = std::move(*parts);
  }
  if (layer.use == ArtifactLayer::Use::file) return tree.adopt(title, blobs.get(), name, layer.size);
  return unpack(blob.get(), tree, {.below = title, .allow_setuid = allow_setuid});
}

}  // namespace

Result<> build_version(const UniqueFd& store, const ArtifactPlaces& places, const UniqueFd& blobs,
                       const ArtifactManifest& manifest, const FetchRequest& request) {
  auto staging = open_or_make_in(store, places.store() / kStaging);
  if (!staging) return fail(std::move(staging).error());
  SafeTree tree(std::move(*staging), request.limits);
  for (const ArtifactLayer& layer : manifest.layers) {
    if (layer.use == ArtifactLayer::Use::nothing) continue;
    if (auto placed = place(layer, blobs, tree, request.allow_setuid); !placed)
      return fail(std::move(placed).error().during(layer.title.empty() ? "layer" : layer.title));
  }
  return {};
}

}  // namespace ferry::kata
