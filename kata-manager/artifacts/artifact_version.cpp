// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_version.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/file_status.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/inner_path.h"
#include "kata-manager/artifacts/strict_json.h"
#include "kata-manager/artifacts/unpack.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 2> kManifests = {
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"};
constexpr std::array<std::string_view, 2> kIndexes = {
    "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"};
constexpr std::array<std::string_view, 7> kTars = {"application/vnd.oci.image.layer.v1.tar",
                                                   "application/vnd.oci.image.layer.v1.tar+gzip",
                                                   "application/vnd.oci.image.layer.v1.tar+zstd",
                                                   "application/vnd.docker.image.rootfs.diff.tar.gzip",
                                                   "application/x-tar",
                                                   "application/gzip",
                                                   "application/zstd"};
constexpr const char* kTitle = "org.opencontainers.image.title";
constexpr const char* kUnpack = "io.deis.oras.content.unpack";

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& known, std::string_view word) {
  return std::ranges::find(known, word) != known.end();
}

// Thrown by the readers below and caught in parse_manifest(), as the JSON library's exceptions are.
[[noreturn]] void unreadable(std::string why, Errc code = Errc::malformed_host) {
  throw Error{.code = make_error_code(code), .message = std::move(why), .hint = {}};
}

const json& member(const json& object, const char* key, json::value_t type) {
  if (!object.is_object()) unreadable("something in it is no JSON object");
  const auto found = object.find(key);
  if (found == object.end()) unreadable(fmt::format("'{}' is missing", key));
  const bool fits = found->type() == type || (type == json::value_t::number_unsigned &&
                                              found->is_number_integer() && found->get<std::int64_t>() >= 0);
  if (!fits) unreadable(fmt::format("'{}' is of another type than it has to be", key));
  return *found;
}

std::string text_or_empty(const json& object, const char* key) {
  return object.is_object() && object.contains(key)
             ? member(object, key, json::value_t::string).get<std::string>()
             : std::string();
}

Digest digest_of(const json& descriptor) {
  auto digest =
      Digest::parse(member(descriptor, "digest", json::value_t::string).get_ref<const std::string&>());
  if (!digest) unreadable(digest.error().message);
  return std::move(*digest);
}

std::uint64_t size_of(const json& descriptor) {
  return member(descriptor, "size", json::value_t::number_unsigned).get<std::uint64_t>();
}

// Skopeo would fetch it from any address, past the registry's settings.
void refuse_urls(const json& descriptor) {
  if (descriptor.contains("urls"))
    unreadable("'urls': a layer or a configuration is to come from outside the registry", Errc::refused);
}

ArtifactLayer layer_of(const json& value) {
  ArtifactLayer layer{.digest = digest_of(value), .size = size_of(value), .title = {}};
  const std::string media_type = member(value, "mediaType", json::value_t::string);
  refuse_urls(value);
  bool unpack = false;
  if (value.contains("annotations")) {
    const json& annotations = member(value, "annotations", json::value_t::object);
    layer.title = text_or_empty(annotations, kTitle);
    unpack = text_or_empty(annotations, kUnpack) == "true";
  }
  if (!layer.title.empty()) {
    auto path = inner_path(layer.title);
    if (!path) unreadable("layer title: " + path.error().message, Errc::refused);
    if (path->empty()) unreadable(fmt::format("layer title: '{}' names no file", layer.title), Errc::refused);
    layer.title = fmt::format("{}", fmt::join(*path, "/"));
  }
  layer.is_tar = layer.title.empty() ? is_one_of(kTars, media_type) : unpack;
  return layer;
}

ArtifactManifest manifest_of(const json& document, const ArtifactLimits& limits) {
  if (document.contains("manifests")) unreadable("it has layers and manifests: it can be read in two ways");
  const json& layers = member(document, "layers", json::value_t::array);
  if (layers.size() > limits.layers)
    unreadable(fmt::format("{} layers, and {} is the limit", layers.size(), limits.layers), Errc::refused);
  ArtifactManifest manifest;
  const auto count = [&](std::uint64_t size) {
    if (size > limits.bytes - manifest.size)
      unreadable(fmt::format("its layers have more than {} bytes, the limit", limits.bytes), Errc::refused);
    manifest.size += size;
    manifest.largest = std::max(manifest.largest, size);
  };
  if (document.contains("config")) {
    count(size_of(document.at("config")));
    refuse_urls(document.at("config"));
  }
  std::set<std::string> titles;
  for (const json& value : layers) {
    ArtifactLayer layer = layer_of(value);
    if (!layer.title.empty() && !titles.insert(layer.title).second)
      unreadable(fmt::format("two layers have the title '{}'", layer.title));
    count(layer.size);
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

ImageIndex index_of(const json& document) {
  if (document.contains("layers")) unreadable("it has manifests and layers: it can be read in two ways");
  ImageIndex index;
  for (const json& value : member(document, "manifests", json::value_t::array)) {
    // Skips an index within an index.
    if (!is_one_of(kManifests, text_or_empty(value, "mediaType"))) continue;
    PlatformManifest entry{.digest = digest_of(value), .size = size_of(value), .os = {}, .architecture = {}};
    if (value.contains("platform")) {
      const json& platform = member(value, "platform", json::value_t::object);
      entry.os = text_or_empty(platform, "os");
      entry.architecture = text_or_empty(platform, "architecture");
    }
    index.push_back(std::move(entry));
  }
  return index;
}

}  // namespace

Result<std::variant<ArtifactManifest, ImageIndex>> parse_manifest(std::string_view text,
                                                                  const ArtifactLimits& limits) {
  const auto document = parse_strict_json(text, "manifest", Errc::malformed_host);
  if (!document) return fail(document.error());
  try {
    if (!document->is_object()) unreadable("it is no JSON object");
    const std::string type = text_or_empty(*document, "mediaType");
    const bool is_index = type.empty() ? document->contains("manifests") : is_one_of(kIndexes, type);
    if (!type.empty() && !is_index && !is_one_of(kManifests, type))
      unreadable(fmt::format("'{}' is no image and no index", type), Errc::unsupported);
    if (member(*document, "schemaVersion", json::value_t::number_unsigned) != 2)
      unreadable("its schemaVersion is not 2");
    if (is_index) return index_of(*document);
    return manifest_of(*document, limits);
  } catch (Error& error) {
    return fail(std::move(error).during("manifest"));
  } catch (const json::exception& error) {
    return fail(Errc::malformed_host, fmt::format("manifest: {}", error.what()));
  }
}

Result<PlatformManifest> choose_platform(const ImageIndex& index, std::string_view architecture) {
  for (const PlatformManifest& entry : index)
    if (entry.os == "linux" && entry.architecture == architecture) return entry;
  if (index.size() == 1 && index.front().os.empty() && index.front().architecture.empty())
    return index.front();
  std::vector<std::string> there;
  for (const PlatformManifest& entry : index) there.push_back(entry.os + "/" + entry.architecture);
  return fail(Errc::not_found,
              fmt::format("the image is not there for linux/{}, only for: {}", architecture,
                          there.empty() ? "nothing" : fmt::format("{}", fmt::join(there, ", "))));
}

std::string own_architecture() {
  utsname names{};
  if (::uname(&names) != 0) return {};
  std::string machine(static_cast<const char*>(names.machine));
  if (machine == "x86_64") return "amd64";
  if (machine == "aarch64") return "arm64";
  return machine;
}

Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration) {
  constexpr std::int64_t kMost = 1LL << 20;  // Kata's longest shipped file has 40 KiB
  const auto file = host.open(folder / configuration, O_PATH);
  if (!file) return fail(file.error());
  const auto status = file_status(file->get());
  if (!status || !S_ISREG(status->st_mode) || status->st_size > kMost) {
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
  const auto status = file_status(blob.get());
  if (!status) return fail(error_from_errno(errno, "open blob " + layer.digest.text()));
  const bool is_whole = S_ISREG(status->st_mode) && static_cast<std::uint64_t>(status->st_size) == layer.size;
  auto hex = is_whole ? hash_of(blob.get(), name) : Result<std::string>();
  if (!hex) return fail(std::move(hex).error());
  if (*hex != name)
    return fail(Errc::failed, fmt::format("blob {}: what came is not of that digest and of {} bytes",
                                          layer.digest.text(), layer.size));

  // It becomes a file of the artifact, and is skopeo's user's until now.
  const bool is_ours = status->st_uid == ::geteuid();
  if ((!is_ours && ::fchown(blob.get(), ::geteuid(), ::getegid()) != 0) || ::fchmod(blob.get(), 0644) != 0)
    return fail(error_from_errno(errno, "take blob " + layer.digest.text()));

  InnerParts title;
  if (!layer.title.empty()) {
    auto parts = inner_path(layer.title);
    if (!parts) return fail(std::move(parts).error());
    title = std::move(*parts);
  }
  if (!layer.is_tar) return tree.adopt(title, blobs.get(), name, layer.size);
  return unpack(blob.get(), tree, {.below = title, .allow_setuid = allow_setuid});
}

}  // namespace

Result<> build_version(const UniqueFd& store, const ArtifactPlaces& places, const UniqueFd& blobs,
                       const ArtifactManifest& manifest, const FetchRequest& request) {
  auto staging = open_or_make_in(store, places.store() / kStaging);
  if (!staging) return fail(std::move(staging).error());
  SafeTree tree(std::move(*staging), request.limits);
  for (const ArtifactLayer& layer : manifest.layers) {
    if (layer.is_skipped()) continue;
    if (auto placed = place(layer, blobs, tree, request.allow_setuid); !placed)
      return fail(std::move(placed).error().during(layer.title.empty() ? "layer" : layer.title));
  }
  return {};
}

}  // namespace ferry::kata
