// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/version_builder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "kata-manager/artifacts/inner_path.h"
#include "kata-manager/fetch/unpack.h"

namespace ferry::kata {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenWords{200};

class Builder {
 public:
  Builder(const HostFs& host, const ArtifactPlaces& places, RegistryClient& registry,
          const ArtifactManifest& manifest, const FetchRequest& request, const FetchWorld& world)
      : host_(&host),
        places_(&places),
        registry_(&registry),
        manifest_(&manifest),
        request_(&request),
        world_(&world) {}

  Result<> build() {
    if (auto made = prepare(); !made) return made;
    for (const ArtifactLayer& layer : manifest_->layers) {
      if (layer.use == ArtifactLayer::Use::nothing) continue;
      if (auto got = download(layer); !got)
        return fail(std::move(got).error().during(layer.title.empty() ? "layer" : layer.title));
    }
    auto staging = open_or_make_folder(*host_, places_->store() / kStaging);
    if (!staging) return fail(std::move(staging).error());
    SafeTree tree(std::move(*staging), request_->limits);
    for (const ArtifactLayer& layer : manifest_->layers) {
      if (auto placed = place(layer, tree); !placed)
        return fail(std::move(placed).error().during(layer.title.empty() ? "layer" : layer.title));
    }
    return {};
  }

 private:
  static std::string part_name(const ArtifactLayer& layer) { return layer.digest.file_name() + ".part"; }

  // Removes blobs of other manifests.
  Result<> prepare() {
    auto opened = open_or_make_folder(*host_, places_->store() / kBlobs);
    if (!opened) return fail(std::move(opened).error());
    blobs_ = std::move(*opened);
    std::set<std::string> wanted;
    for (const ArtifactLayer& layer : manifest_->layers)
      wanted.insert({layer.digest.file_name(), part_name(layer)});
    const auto there = host_->list(places_->store() / kBlobs);
    if (!there) return fail(there.error());
    for (const std::string& name : *there) {
      if (wanted.contains(name)) continue;
      if (auto removed = remove_all(*host_, places_->store() / kBlobs / name); !removed) return removed;
    }
    return {};
  }

  // Checks the digest again: the file may have changed since its download.
  bool is_whole(const ArtifactLayer& layer) const {
    const std::string name = layer.digest.file_name();
    UniqueFd fd(::openat(blobs_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
    if (static_cast<std::uint64_t>(status.st_size) != layer.size) return false;
    auto blob = BlobFile::resume(std::move(fd), layer.digest, layer.size, name);
    return blob && blob->holds();
  }

  Result<> download(const ArtifactLayer& layer) {
    const std::string name = layer.digest.file_name();
    if (is_whole(layer)) {
      done_ += layer.size;
      return {};
    }
    // The blob is removed, not overwritten: an existing version may share the file.
    if (auto removed = remove_all(*host_, places_->store() / kBlobs / name); !removed) return removed;
    const std::string part = part_name(layer);
    UniqueFd fd(::openat(blobs_.get(), part.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!fd.valid() || ::fchmod(fd.get(), 0644) != 0) return fail(error_from_errno(errno, "make " + part));
    auto blob = BlobFile::resume(std::move(fd), layer.digest, layer.size, part);
    if (!blob) return fail(std::move(blob).error());
    auto got = registry_->blob(*blob, [&] { return tell(blob->have()); });
    if (!got) return got;
    if (::renameat(blobs_.get(), part.c_str(), blobs_.get(), name.c_str()) != 0)
      return fail(error_from_errno(errno, "rename " + part));
    done_ += layer.size;
    last_word_ = {};  // so that the end of each layer is reported
    if (!tell(0)) return fail(Errc::failed, "ended: nobody waits for it any more");
    return {};
  }

  bool tell(std::uint64_t of_this_one) {
    const auto now = Clock::now();
    if (!world_->told || now < last_word_ + kBetweenWords) return true;
    last_word_ = now;
    return world_->told({.done = done_ + of_this_one, .total = manifest_->size});
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
    if (layer.use == ArtifactLayer::Use::file) return tree.adopt(title, blobs_.get(), name, layer.size);
    const UniqueFd archive(::openat(blobs_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!archive.valid()) return fail(error_from_errno(errno, "open " + name));
    return unpack(archive.get(), tree, {.below = title, .allow_setuid = request_->allow_setuid});
  }

  const HostFs* host_;
  const ArtifactPlaces* places_;
  RegistryClient* registry_;
  const ArtifactManifest* manifest_;
  const FetchRequest* request_;
  const FetchWorld* world_;
  UniqueFd blobs_;
  std::uint64_t done_ = 0;
  Clock::time_point last_word_;
};

}  // namespace

Result<> build_version(const HostFs& host, const ArtifactPlaces& places, RegistryClient& registry,
                       const ArtifactManifest& manifest, const FetchRequest& request,
                       const FetchWorld& world) {
  return Builder(host, places, registry, manifest, request, world).build();
}

}  // namespace ferry::kata
