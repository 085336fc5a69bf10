// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/version_switch.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace ferry::kata {
namespace {

Result<> sync_folder(const UniqueFd& folder, const std::string& what) {
  if (::fsync(folder.get()) != 0) return fail(error_from_errno(errno, what));
  return {};
}

bool is_folder(const UniqueFd& parent, const std::string& name) {
  struct stat status {};
  return ::fstatat(parent.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

// The replaced folder holds artifacts of another program, perhaps in use, so it is kept.
Result<> put_aside(const UniqueFd& store) {
  for (unsigned number = 1;; ++number) {
    const std::string name = fmt::format("{}{}", kPutAside, number);
    if (::renameat2(store.get(), kNewLink, store.get(), name.c_str(), RENAME_NOREPLACE) == 0) return {};
    if (errno != EEXIST) return fail(error_from_errno(errno, "put the folder aside"));
  }
}

}  // namespace

Result<> publish_staging(const HostFs& host, const ArtifactPlaces& places, const std::string& version) {
  const auto store = host.open(places.store(), O_RDONLY | O_DIRECTORY);
  if (!store) return fail(store.error());
  const std::string what = fmt::format("publish /{}", places.version(version).string());
  // A single call for the whole file system is faster than a call for each file.
  if (::syncfs(store->get()) != 0) return fail(error_from_errno(errno, what));
  const bool there = is_folder(*store, version);
  if (::renameat2(store->get(), kStaging, store->get(), version.c_str(), there ? RENAME_EXCHANGE : 0) != 0)
    return fail(error_from_errno(errno, what));
  return sync_folder(*store, what);
}

Result<bool> switch_link(const HostFs& host, const ArtifactPlaces& places,
                         const std::filesystem::path& target) {
  const auto current = host.link_target(places.link());
  if (current && *current == target) return false;
  const auto store = open_or_make_folder(host, places.store());
  if (!store) return fail(store.error());
  const auto top = host.open(places.top(), O_RDONLY | O_DIRECTORY);
  if (!top) return fail(top.error());
  const std::string name = places.link().filename();
  const std::string what = fmt::format("switch /{}", places.link().string());
  if (::symlinkat(target.c_str(), store->get(), kNewLink) != 0) return fail(error_from_errno(errno, what));
  const bool folder = is_folder(*top, name);
  if (::renameat2(store->get(), kNewLink, top->get(), name.c_str(), folder ? RENAME_EXCHANGE : 0) != 0)
    return fail(error_from_errno(errno, what));
  if (auto synced = sync_folder(*top, what); !synced) return fail(std::move(synced).error());
  if (folder) {
    if (auto aside = put_aside(*store); !aside) return fail(std::move(aside).error().during(what));
  }
  return true;
}

Result<> tidy_store(const HostFs& host, const ArtifactPlaces& places, bool blobs_too) {
  const auto store = host.open(places.store(), O_RDONLY | O_DIRECTORY);
  if (!store && is_gone(store.error())) return {};
  if (!store) return fail(store.error());
  if (is_folder(*store, kNewLink)) {
    if (auto aside = put_aside(*store); !aside) return aside;
  } else if (::unlinkat(store->get(), kNewLink, 0) != 0 && errno != ENOENT) {
    return fail(error_from_errno(errno, "tidy /" + places.store().string()));
  }
  const auto names = host.list(places.store());
  if (!names) return fail(names.error());
  for (const std::string& name : *names) {
    // Names that begin with a dot are files that were being written.
    if (!name.starts_with('.')) continue;
    if (auto removed = remove_all(host, places.store() / name); !removed) return removed;
  }
  auto removed = remove_all(host, places.store() / kStaging);
  if (removed && blobs_too) removed = remove_all(host, places.store() / kBlobs);
  return removed;
}

}  // namespace ferry::kata
