// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_version.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/artifacts/inner_path.h"
#include "kata-manager/fetch/unpack.h"
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

Result<> tidy_store(const UniqueFd& store, const ArtifactPlaces& places, bool blobs_too) {
  const auto entries = entries_of(store, places);
  if (!entries) return fail(entries.error());
  for (const DirectoryEntry& entry : *entries) {
    // Names that begin with a dot are files that were being written.
    const bool is_left = entry.name.starts_with('.') || entry.name == kStaging;
    if (!is_left && !(blobs_too && entry.name == kBlobs)) continue;
    if (auto removed = remove_entry(store, places.store() / entry.name); !removed) return removed;
  }
  return {};
}

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenWords{200};

struct Builder {
  const UniqueFd& store;
  const ArtifactPlaces& places;
  RegistryClient& registry;
  const ArtifactManifest& manifest;
  const FetchRequest& request;
  const FetchWorld& world;
  UniqueFd blobs = {};
  std::uint64_t done = 0;
  Clock::time_point last_word = {};

  Result<> build() {
    if (auto made = prepare(); !made) return made;
    for (const ArtifactLayer& layer : manifest.layers) {
      if (layer.use == ArtifactLayer::Use::nothing) continue;
      if (auto got = download(layer); !got)
        return fail(std::move(got).error().during(layer.title.empty() ? "layer" : layer.title));
    }
    auto staging = open_or_make_in(store, places.store() / kStaging);
    if (!staging) return fail(std::move(staging).error());
    SafeTree tree(std::move(*staging), request.limits);
    for (const ArtifactLayer& layer : manifest.layers) {
      if (auto placed = place(layer, tree); !placed)
        return fail(std::move(placed).error().during(layer.title.empty() ? "layer" : layer.title));
    }
    return {};
  }

  static std::string part_name(const ArtifactLayer& layer) { return layer.digest.file_name() + ".part"; }

  // Removes blobs of other manifests.
  Result<> prepare() {
    auto opened = open_or_make_in(store, places.store() / kBlobs);
    if (!opened) return fail(std::move(opened).error());
    blobs = std::move(*opened);
    std::set<std::string> needed;
    for (const ArtifactLayer& layer : manifest.layers)
      needed.insert({layer.digest.file_name(), part_name(layer)});
    const auto there = entries_of(blobs, places);
    if (!there) return fail(there.error());
    for (const DirectoryEntry& entry : *there) {
      if (needed.contains(entry.name)) continue;
      if (auto removed = remove_entry(blobs, places.store() / kBlobs / entry.name); !removed) return removed;
    }
    return {};
  }

  // Checks the digest again: the file may have changed since its download.
  bool is_whole(const ArtifactLayer& layer) const {
    const std::string name = layer.digest.file_name();
    UniqueFd fd(::openat(blobs.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
    if (static_cast<std::uint64_t>(status.st_size) != layer.size) return false;
    auto blob = BlobFile::resume(std::move(fd), layer.digest, layer.size, name);
    return blob && blob->holds();
  }

  Result<> download(const ArtifactLayer& layer) {
    const std::string name = layer.digest.file_name();
    if (is_whole(layer)) {
      done += layer.size;
      return {};
    }
    // The blob is removed, not overwritten: an existing version may share the file.
    if (auto removed = remove_entry(blobs, places.store() / kBlobs / name); !removed) return removed;
    const std::string part = part_name(layer);
    UniqueFd fd(
        ::openat(blobs.get(), part.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
    struct stat status {};
    if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return fail(error_from_errno(errno, "make " + part));
    // An agent that is not root may have put another name of a file there.
    if (!S_ISREG(status.st_mode) || status.st_nlink != 1)
      return fail(Errc::refused, fmt::format("{} is no file with one name", part), "remove it");
    if (::fchmod(fd.get(), 0644) != 0) return fail(error_from_errno(errno, "make " + part));
    auto blob = BlobFile::resume(std::move(fd), layer.digest, layer.size, part);
    if (!blob) return fail(std::move(blob).error());
    auto got = registry.blob(*blob, [&] { return report_progress(blob->have()); });
    if (!got) return got;
    if (::renameat(blobs.get(), part.c_str(), blobs.get(), name.c_str()) != 0)
      return fail(error_from_errno(errno, "rename " + part));
    done += layer.size;
    last_word = {};  // so that the end of each layer is reported
    if (!report_progress(0))
      return fail(Errc::failed, "ended: the program that asked for this download no longer waits for it");
    return {};
  }

  bool report_progress(std::uint64_t of_this_one) {
    const auto now = Clock::now();
    if (!world.on_progress || now < last_word + kBetweenWords) return true;
    last_word = now;
    return world.on_progress({.done = done + of_this_one, .total = manifest.size});
  }

  Result<> place(const ArtifactLayer& layer, SafeTree& tree) const {
    if (layer.use == ArtifactLayer::Use::nothing) return {};
    InnerParts title;
    if (!layer.title.empty()) {
      auto parts = inner_path(layer.title);
      if (!parts) return fail(std::move(parts).error());
      title = std::move(*parts);
    }
    const std::string name = layer.digest.file_name();
    if (layer.use == ArtifactLayer::Use::file) return tree.adopt(title, blobs.get(), name, layer.size);
    const UniqueFd archive(
        ::openat(blobs.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!archive.valid()) return fail(error_from_errno(errno, "open " + name));
    return unpack(archive.get(), tree, {.below = title, .allow_setuid = request.allow_setuid});
  }
};

}  // namespace

Result<> build_version(const UniqueFd& store, const ArtifactPlaces& places, RegistryClient& registry,
                       const ArtifactManifest& manifest, const FetchRequest& request,
                       const FetchWorld& world) {
  return Builder{store, places, registry, manifest, request, world}.build();
}

}  // namespace ferry::kata
