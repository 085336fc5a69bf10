// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>

#include "common/file_status.h"
#include "kata-manager/artifacts/artifact_links.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/artifact_tree.h"
#include "kata-manager/artifacts/artifact_version.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/skopeo.h"

namespace ferry::kata {
namespace {

constexpr std::string_view kFileScheme = "file://";

// Identifies a folder by its device and inode, independent of its path. Inode 0: it is not known.
using FolderIdentity = std::pair<dev_t, ino_t>;

FolderIdentity identity(const UniqueFd& folder) {
  const auto status = file_status(folder.get());
  return status ? FolderIdentity(status->st_dev, status->st_ino) : FolderIdentity();
}

struct Fetch {
  HostFs& host;
  const FetchRequest& request;
  const ArtifactPlaces& places;
  const UniqueFd& top;
  const UniqueFd& store;  ///< open_store(); not needed for a folder of the host
  bool answered = false;  ///< the registry, with the version

  Result<Artifact> from_folder() {
    const std::filesystem::path folder = request.url.substr(kFileScheme.size());
    const bool climbs = std::ranges::any_of(folder, [](const auto& part) { return part == ".."; });
    if (!folder.is_absolute() || climbs)
      return fail(Errc::usage, fmt::format("'{}' names no folder: file:///DIR does", request.url));
    auto inside = folder.lexically_normal().relative_path();
    // "DIR/" must equal DIR: as another path, it would make the link lead to itself.
    if (!inside.has_filename()) inside = inside.parent_path();
    auto opened = host.open(inside, O_RDONLY | O_DIRECTORY);
    if (!opened && is_gone(opened.error()))
      return fail(Errc::not_found, fmt::format("{}: /{} is not there", request.url, inside.string()));
    if (!opened) return fail(std::move(opened).error().during(request.url));
    const auto in_place = is_in_place(inside, *opened);
    if (!in_place) return fail(in_place.error());

    auto listing = list_tree(std::move(*opened), true, request.limits.files);
    if (!listing) return fail(std::move(listing).error().during(request.url));
    Artifact artifact = described(std::move(listing->files));
    ContentHash hash;
    for (const ArtifactFile& file : artifact.files)
      hash.add(file.path.string() + '\0' + file.sha256 + '\0' + file.link + '\n');
    artifact.digest = "sha256:" + hash.hex();
    artifact.version = "/" / inside;

    if (auto chosen = choose(artifact, host, inside); !chosen) return fail(std::move(chosen).error());
    if (*in_place) return artifact;
    auto switched = lead_to(artifact.version);
    if (!switched) return fail(std::move(switched).error());
    artifact.changed = *switched;
    return artifact;
  }

  Result<Artifact> from_registry() {
    auto reference = ImageReference::parse(request.url);
    if (!reference) return fail(std::move(reference).error());
    if (reference->digest) {
      // Content named by its digest cannot have changed.
      if (auto here = in_use()) return use(std::move(*here));
    }
    auto credentials = DockerConfig::parse(request.docker_config);
    if (!credentials) return fail(std::move(credentials).error());
    auto endpoints = registry_endpoints(*reference, request, *credentials);
    if (!endpoints) return fail(std::move(endpoints).error());

    auto artifact = asked(*reference, *endpoints);
    // If the registry answered, the version may have changed, so the present one is not used.
    if (!artifact && artifact.error().code == Errc::unreachable && request.or_what_is_here && !answered) {
      const std::string why = artifact.error().message;
      if (auto here = in_use()) artifact = use(std::move(*here));
      if (artifact)
        artifact->notes.push_back(
            fmt::format("the registry cannot be reached, and what it gave before is used, {}: {}",
                        artifact->digest, why));
    }

    // A registry says so if it has refused the credentials, or the lack of them.
    constexpr std::array kDenials = {
        "unauthorized", "authentication required", "denied: ",       "access denied",
        "is denied",    "StatusCode: 401",         "StatusCode: 403"};
    const bool is_denied = !artifact && artifact.error().code == Errc::failed &&
                           std::ranges::any_of(kDenials, [&](const char* word) {
                             return artifact.error().message.find(word) != std::string::npos;
                           });
    if (is_denied) {
      const RegistryEndpoint& itself = endpoints->back();
      artifact.error().hint = itself.credentials.empty()
                                  ? fmt::format("there are no credentials for {}: give some", itself.host)
                                  : fmt::format("the credentials for {} do not let in", itself.host);
      if (credentials->names_helpers())
        artifact.error().hint += "; programs that docker asks for credentials are not asked";
    }
    if (!artifact) return fail(std::move(artifact).error().during(reference->text()));
    return artifact;
  }

  // True if link() leads to this folder already, by any path. A folder below the link or in the store is
  // refused: the fetch would replace it.
  Result<bool> is_in_place(const std::filesystem::path& inside, const UniqueFd& folder) const {
    if (inside == places.link()) return true;
    const auto link = identity_of(places.link());
    const auto own_store = identity_of(places.store());
    const auto own = identity(folder);
    UniqueFd parent;
    for (auto at = own;;) {
      const bool below_link = at == link && at != own;
      if (at.second != 0 && (below_link || at == own_store))
        return fail(Errc::refused,
                    fmt::format("{}: it lies in /{}, whose content it would replace", request.url,
                                (below_link ? places.link() : places.store()).string()),
                    "name a folder elsewhere");
      const int below = parent.valid() ? parent.get() : folder.get();
      UniqueFd up(::openat(below, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!up.valid()) return fail(error_from_errno(errno, request.url));
      parent = std::move(up);
      const auto above = identity(parent);
      if (above == at) break;  // the root is its own parent
      at = above;
    }
    return own == link;
  }

  Result<Artifact> asked(const ImageReference& reference, std::span<const RegistryEndpoint> endpoints) {
    // Root's folder for skopeo is in no folder of the store: the agent's group may write there.
    const bool is_root = ::geteuid() == 0;
    const UniqueFd& parent = is_root ? top : store;
    const auto path = (is_root ? places.top() : places.store()) / kPull;
    if (::mkdirat(parent.get(), kPull, S_IRWXU) != 0)
      return fail(error_from_errno(errno, "make folder /" + path.string()));
    auto folder = open_or_make_in(parent, path);
    if (!folder) return fail(std::move(folder).error());

    const auto skopeo = Skopeo::prepare(std::move(*folder), reference, endpoints, request);
    if (!skopeo) return fail(skopeo.error());
    auto document = skopeo->manifest(reference.manifest_key());
    if (!document) return fail(std::move(document).error());
    answered = true;
    auto parsed = parse_manifest(document->bytes, request.limits);
    if (!parsed) return fail(std::move(parsed).error());
    if (const auto* const index = std::get_if<ImageIndex>(&*parsed)) {
      auto platform = choose_platform(*index, own_architecture());
      if (!platform) return fail(std::move(platform).error());
      document = skopeo->manifest(platform->digest.text());
      if (!document) return fail(std::move(document).error());
      parsed = parse_manifest(document->bytes, request.limits);
      if (!parsed) return fail(std::move(parsed).error());
    }
    const auto* const manifest = std::get_if<ArtifactManifest>(&*parsed);
    if (manifest == nullptr) return fail(Errc::malformed_host, "manifest: an index leads to an index");

    const std::string version = document->digest.file_name();
    auto here = sound(version);
    auto artifact = here ? use(std::move(*here)) : made(*skopeo, *manifest, document->digest);
    if (!artifact) return artifact;
    const auto passed_over = std::ranges::count_if(manifest->layers, &ArtifactLayer::is_skipped);
    if (passed_over > 0)
      artifact->notes.push_back(
          fmt::format("layers without a title that are no archive were passed over: {}", passed_over));
    return artifact;
  }

  // The version that was fetched last or that link() leads to, if it is sound and of the same URL.
  std::optional<Artifact> in_use() {
    for (const auto& version : {pulled_version(store), version_in_use(host, places)}) {
      if (!version) continue;
      auto here = sound(*version);
      if (here && has_url(*here, request.url)) return std::move(*here);
    }
    return std::nullopt;
  }

  // A present version, if the sizes of its files equal its record. Contents are not read.
  Result<Artifact> sound(const std::string& version) {
    auto artifact = read_record(store, places, version);
    if (!artifact) return artifact;
    const auto listing = list_in_store(version, false);
    if (!listing) return fail(listing.error());
    // The version may be from a time when such files were allowed. The files' present modes count.
    if (!request.allow_setuid && !listing->privileged.empty())
      return fail(Errc::not_found, "it has set-user-ID or set-group-ID files, which are not allowed");
    std::vector<ArtifactFile> recorded = artifact->files;
    for (ArtifactFile& file : recorded) file.sha256.clear();
    if (listing->files == recorded) return artifact;
    return fail(Errc::not_found, "it is not as it was recorded");
  }

  Result<Artifact> use(Artifact artifact) {
    const std::string version = artifact.version.filename();
    const Artifact before = artifact;
    change_url(artifact, request.url);
    if (auto chosen = choose_in_store(artifact, version); !chosen) return fail(std::move(chosen).error());
    if (artifact.url != before.url || artifact.configuration != before.configuration) {
      if (auto written = write_record(store, places, artifact); !written)
        return fail(std::move(written).error());
      artifact.changed = true;
    }
    auto finished = finish(version);
    if (!finished) return fail(std::move(finished).error());
    artifact.changed |= *finished;
    return artifact;
  }

  Result<Artifact> made(const Skopeo& skopeo, const ArtifactManifest& manifest, const Digest& digest) {
    const auto blobs = skopeo.copy(digest, manifest.largest);
    if (!blobs) return fail(blobs.error());
    if (auto built = build_version(store, places, *blobs, manifest, request); !built)
      return fail(std::move(built).error());
    auto listing = list_in_store(kStaging, true);
    if (!listing) return fail(std::move(listing).error());
    Artifact artifact = described(std::move(listing->files));
    artifact.digest = digest.text();
    artifact.version = "/" / places.version(digest.file_name());
    artifact.changed = true;
    if (auto chosen = choose_in_store(artifact, kStaging); !chosen) return fail(std::move(chosen).error());
    if (auto before = read_record(store, places, digest.file_name())) {
      change_url(*before, artifact.url);
      artifact.earlier_urls = std::move(before->earlier_urls);
    }
    // The record comes first: a record without a folder has no effect.
    if (auto written = write_record(store, places, artifact); !written)
      return fail(std::move(written).error());
    if (auto published = publish_staging(store, places, digest.file_name()); !published)
      return fail(std::move(published).error());
    if (auto finished = finish(digest.file_name()); !finished) return fail(std::move(finished).error());
    return artifact;
  }

  // Makes a version that is whole the one in use. False: it is already.
  Result<bool> finish(const std::string& version) {
    const bool is_last = pulled_version(store) == version;
    if (auto written = write_pulled_version(store, places, version); !written)
      return fail(std::move(written).error());
    auto switched = lead_to(places.link_target(version));
    if (!switched) return switched;
    if (auto tidied = tidy_store(store, places); !tidied) return fail(std::move(tidied).error());
    return !is_last || *switched;
  }

  // Makes the link, unless that is hostd's to do. False: nothing is changed.
  Result<bool> lead_to(const std::filesystem::path& target) {
    return request.makes_link ? switch_link(top, places, target) : Result<bool>(false);
  }

  Artifact described(std::vector<ArtifactFile> files) const {
    Artifact artifact;
    artifact.name = request.name;
    artifact.url = request.url;
    artifact.folder = "/" / places.link();
    artifact.files = std::move(files);
    return artifact;
  }

  // `root`: HostFs of check_configuration().
  Result<> choose(Artifact& artifact, const HostFs& root, const std::filesystem::path& folder) const {
    auto chosen = choose_configuration(artifact.files, request.configuration);
    if (!chosen) return fail(std::move(chosen).error());
    if (auto checked = check_configuration(root, folder, *chosen); !checked) return checked;
    artifact.configuration = artifact.folder / *chosen;
    return {};
  }

  Result<TreeListing> list_in_store(const std::string& name, bool contents) const {
    auto folder = open_in(store, places.store() / name);
    if (!folder) return fail(std::move(folder).error());
    return list_tree(std::move(*folder), contents, request.limits.files);
  }

  Result<> choose_in_store(Artifact& artifact, const std::string& name) const {
    const auto folder = open_in(store, places.store() / name);
    if (!folder) return fail(folder.error());
    return choose(artifact, HostFs(fmt::format("/proc/self/fd/{}", folder->get())), {});
  }

  FolderIdentity identity_of(const std::filesystem::path& folder) const {
    const auto opened = host.open(folder, O_RDONLY | O_DIRECTORY);
    return opened ? identity(*opened) : FolderIdentity{};
  }
};

// Removes root's folder of a skopeo that was killed. The agent cannot, and needs not.
Result<> tidy_pull(const UniqueFd& top, const ArtifactPlaces& places) {
  return ::geteuid() == 0 && is_folder_in(top, kPull) ? remove_entry(top, places.top() / kPull) : Result<>();
}

}  // namespace

Result<Artifact> fetch_here(HostFs& host, const FetchRequest& request) {
  auto places = ArtifactPlaces::of(request.artifacts_dir, request.name);
  if (!places) return fail(std::move(places).error());
  const auto top = open_or_make_folder(host, places->top());
  if (!top) return fail(top.error());
  const auto lock = lock_artifacts(host, places->top());
  if (!lock) return fail(lock.error());
  if (request.makes_link)
    if (auto tidied = tidy_links(*top, *places); !tidied) return fail(std::move(tidied).error());
  if (auto tidied = tidy_pull(*top, *places); !tidied) return fail(std::move(tidied).error());
  const bool is_of_host = request.url.starts_with(kFileScheme);
  auto opened = is_of_host ? open_store(*top, *places) : open_or_make_store(*top, *places);
  if (!opened && !(is_of_host && is_gone(opened.error()))) return fail(std::move(opened).error());
  const UniqueFd store = opened ? std::move(*opened) : UniqueFd();
  if (store.valid())
    if (auto tidied = tidy_store(store, *places); !tidied) return fail(std::move(tidied).error());
  Fetch fetch{host, request, *places, *top, store};
  auto artifact = is_of_host ? fetch.from_folder() : fetch.from_registry();
  // A failed removal is not reported: the fetch's own result matters, and the next fetch tries again.
  (void)tidy_pull(*top, *places);
  if (!artifact && store.valid()) (void)tidy_store(store, *places);
  return artifact;
}

}  // namespace ferry::kata
