// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_store.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <limits>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "hostfs/descriptor_reads.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/kata/kata_configuration.h"
#include "kata-manager/kata/kata_users.h"
#include "kata-manager/runtime/container_runtime.h"

namespace ferry::kata {
namespace {

using nlohmann::json;
constexpr int kVersionOfFormat = 1;
// The lock of the replaced program, so that the two never work together.
constexpr const char* kLock = "k8s-kata-manager.pid";

Artifact artifact_of(const json& record) {
  Artifact artifact;
  artifact.url = record.at("url").get<std::string>();
  artifact.digest = record.at("digest").get<std::string>();
  artifact.configuration = record.at("configuration").get<std::string>();
  for (const json& file : record.at("files")) {
    artifact.files.push_back({.path = file.at("path").get<std::string>(),
                              .size = file.value("size", std::uint64_t{0}),
                              .sha256 = file.value("sha256", ""),
                              .link = file.value("link", "")});
  }
  return artifact;
}

// An open folder, which stays the same while its path may change.
Result<UniqueFd> parent_of(const HostFs& host, const std::filesystem::path& path) {
  const auto parent = path.parent_path();
  return host.open(parent.empty() ? "." : parent, O_RDONLY | O_DIRECTORY);
}

Result<UniqueFd> open_top(const HostFs& host, const ArtifactPlaces& places) {
  return host.open(places.top().empty() ? "." : places.top(), O_RDONLY | O_DIRECTORY);
}

Error no_folder(const std::filesystem::path& store, const std::filesystem::path& part) {
  return {.code = make_error_code(Errc::refused),
          .message = fmt::format("/{}: '{}' is a link or no folder", store.string(), part.string()),
          .hint = "remove it; Ferry makes the folder"};
}

// Makes a class's store in a folder that the agent may write, too: it gets the folder's group (set-group-ID).
Result<UniqueFd> make_store(const UniqueFd& top, const ArtifactPlaces& places) {
  constexpr mode_t kForGroup = S_ISGID | S_IRWXU | S_IRWXG | S_IROTH | S_IXOTH;
  const auto path = places.store();
  const std::string what = "make folder /" + path.string();
  UniqueFd folder(::openat(top.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return fail(error_from_errno(errno, what));
  for (const auto& part : {path.parent_path().filename(), path.filename()}) {
    const bool is_made = ::mkdirat(folder.get(), part.c_str(), 0775) == 0;
    if (!is_made && errno != EEXIST) return fail(error_from_errno(errno, what));
    UniqueFd next(::openat(folder.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid() && (errno == ELOOP || errno == ENOTDIR)) return fail(no_folder(path, part));
    if (!next.valid()) return fail(error_from_errno(errno, what));
    if (is_made && ::fchmod(next.get(), kForGroup) != 0) return fail(error_from_errno(errno, what));
    folder = std::move(next);
  }
  return folder;
}

Result<std::vector<DirectoryEntry>> entries_of(const UniqueFd& store, const ArtifactPlaces& places) {
  return read_entries(store.get(), [&] { return "list /" + places.store().string(); });
}

Result<> remove_entry(const UniqueFd& folder, const std::filesystem::path& path) {
  // Goes through the open folder: a path from "/" could follow links out of the host's root.
  std::error_code failure;
  std::filesystem::remove_all(fmt::format("/proc/self/fd/{}/{}", folder.get(), path.filename().string()),
                              failure);
  if (failure) return fail(error_from_errno(failure.value(), "remove /" + path.string()));
  return {};
}

Result<std::string> read_in_store(const HostFs& host, const ArtifactPlaces& places, const std::string& name) {
  const auto store = open_store(host, places);
  if (!store) return fail(Error(store.error()));
  const HostFs inside(fmt::format("/proc/self/fd/{}", store->get()));
  auto text = inside.read_file(name, HostFs::Links::refused);
  if (!text) return fail(std::move(text).error().during("in /" + places.store().string()));
  return text;
}

// How late a replaced folder of the store was put aside; 0: the entry is Ferry's.
unsigned rank_of(const DirectoryEntry& entry) {
  // A killed switch has not put the replaced folder aside yet.
  if (entry.name == kNewLink) return entry.is_directory ? std::numeric_limits<unsigned>::max() : 0;
  const std::string_view name = entry.name;
  if (!entry.is_directory || !name.starts_with(kPutAside)) return 0;
  const std::string_view digits = name.substr(std::string_view(kPutAside).size());
  unsigned number = 0;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return std::max(number, 1U);
}

// Moves the last replaced folder back to the link's place, unless that is taken.
Result<> put_back(const HostFs& host, const ArtifactPlaces& places, const UniqueFd& store,
                  const std::vector<DirectoryEntry>& entries) {
  const auto last = std::ranges::max_element(entries, {}, rank_of);
  if (last == entries.end() || rank_of(*last) == 0) return {};
  const std::string what = fmt::format("put /{} back", places.version(last->name).string());
  const auto top = open_top(host, places);
  if (!top) return fail(Error(top.error()).during(what));
  if (::renameat2(store.get(), last->name.c_str(), top->get(), places.link().filename().c_str(),
                  RENAME_NOREPLACE) != 0) {
    return errno == EEXIST ? Result<>() : fail(error_from_errno(errno, what));
  }
  if (::fsync(top->get()) != 0) return fail(error_from_errno(errno, what));
  return {};
}

}  // namespace

Result<ArtifactPlaces> ArtifactPlaces::of(const std::filesystem::path& artifacts_dir,
                                          const std::string& name) {
  const bool climbs = std::ranges::any_of(artifacts_dir, [](const auto& part) { return part == ".."; });
  if (!artifacts_dir.is_absolute() || climbs)
    return fail(Errc::usage,
                fmt::format("artifacts folder '{}' is no absolute path", artifacts_dir.string()));
  if (!is_handler_name(name))
    return fail(Errc::usage, fmt::format("'{}' is no name of a runtime: lower-case letters, digits and inner "
                                         "dashes, 63 at most",
                                         name));
  ArtifactPlaces places;
  places.top_ = artifacts_dir.lexically_normal().relative_path();
  if (!places.top_.has_filename()) places.top_ = places.top_.parent_path();
  places.name_ = name;
  return places;
}

bool is_version(std::string_view name) {
  std::string text(name);
  const auto dash = text.find('-');
  if (dash == std::string::npos) return false;
  text[dash] = ':';
  return Digest::parse(text).has_value();
}

std::optional<std::string> version_in_use(const HostFs& host, const ArtifactPlaces& places) {
  const auto target = host.link_target(places.link());
  if (!target) return std::nullopt;
  auto version = std::filesystem::path(*target).filename().string();
  if (!is_version(version) || *target != places.link_target(version)) return std::nullopt;
  return version;
}

Result<Artifact> read_record(const HostFs& host, const std::filesystem::path& artifacts_dir,
                             const std::string& name, const std::string& version) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto path = places->record(version);
  const auto text = read_in_store(host, *places, path.filename());
  if (!text && is_gone(text.error()))
    return fail(Errc::not_found, fmt::format("/{} is not there", path.string()));
  if (!text) return fail(text.error());
  try {
    const json record = parse_whole_json(*text);
    if (record.at("version").get<int>() != kVersionOfFormat)
      return fail(Errc::malformed_host,
                  fmt::format("/{}: written by another version of ferry", path.string()));
    Artifact artifact = artifact_of(record);
    artifact.name = name;
    artifact.folder = "/" / places->link();
    artifact.version = "/" / places->version(version);
    artifact.configuration = artifact.folder / artifact.configuration;
    return artifact;
  } catch (const json::exception& error) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", path.string(), error.what()));
  }
}

std::string record_text(const Artifact& artifact) {
  json files = json::array();
  for (const ArtifactFile& file : artifact.files) {
    json entry = {{"path", file.path.string()}};
    if (file.link.empty()) {
      entry["size"] = file.size;
      entry["sha256"] = file.sha256;
    } else {
      entry["link"] = file.link;
    }
    files.push_back(std::move(entry));
  }
  const json record = {{"version", kVersionOfFormat},
                       {"url", artifact.url},
                       {"digest", artifact.digest},
                       {"configuration", artifact.configuration.lexically_relative(artifact.folder).string()},
                       {"files", std::move(files)}};
  return record.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<UniqueFd> open_or_make_folder(const HostFs& host, const std::filesystem::path& path) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY;
  auto opened = host.open(path.empty() ? "." : path, kFlags);
  if (opened || path.empty() || opened.error().code != std::errc::no_such_file_or_directory) return opened;
  const auto parent = open_or_make_folder(host, path.parent_path());
  if (!parent) return fail(parent.error());
  if (::mkdirat(parent->get(), path.filename().c_str(), 0775) != 0 && errno != EEXIST)
    return fail(error_from_errno(errno, "make folder /" + path.string()));
  return host.open(path, kFlags);
}

Result<UniqueFd> open_store(const HostFs& host, const ArtifactPlaces& places) {
  auto folder = open_top(host, places);
  if (!folder) return folder;
  const auto store = places.store();
  for (const auto& part : {store.parent_path().filename(), store.filename()}) {
    UniqueFd next(::openat(folder->get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid() && (errno == ELOOP || errno == ENOTDIR)) return fail(no_folder(store, part));
    if (!next.valid()) return fail(error_from_errno(errno, "open /" + store.string()));
    *folder = std::move(next);
  }
  return folder;
}

Result<> make_way_for_agent(const HostFs& host, const std::filesystem::path& artifacts_dir,
                            const std::string& name) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return {};
  if (!top) return fail(Error(top.error()));
  const std::string link = places->link().filename();
  const std::string what = fmt::format("make way for the link /{}", places->link().string());
  struct stat folder {};
  struct stat entry {};
  if (::fstat(top->get(), &folder) != 0) return fail(error_from_errno(errno, what));
  if ((folder.st_mode & S_ISVTX) == 0) return {};  // the agent itself replaces what is there
  if (::fstatat(top->get(), link.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? Result<>() : fail(error_from_errno(errno, what));
  const bool is_link = S_ISLNK(entry.st_mode);
  if (entry.st_uid != ::geteuid() || (!is_link && !S_ISDIR(entry.st_mode))) return {};
  const auto lock = lock_artifacts(host, places->top());
  // A fetch is at work: the next round tries again.
  if (!lock) return lock.error().code == Errc::refused ? Result<>() : fail(Error(lock.error()));
  if (is_link)
    return ::unlinkat(top->get(), link.c_str(), 0) == 0 ? Result<>() : fail(error_from_errno(errno, what));
  const auto store = make_store(*top, *places);
  if (!store) return fail(Error(store.error()));
  for (unsigned number = 1;; ++number) {
    const std::string aside = fmt::format("{}{}", kPutAside, number);
    if (::renameat2(top->get(), link.c_str(), store->get(), aside.c_str(), RENAME_NOREPLACE) == 0) return {};
    if (errno != EEXIST) return fail(error_from_errno(errno, what));
  }
}

Result<> remove_all(const HostFs& host, const std::filesystem::path& path) {
  const auto parent = parent_of(host, path);
  if (!parent && is_gone(parent.error())) return {};
  if (!parent) return fail(parent.error());
  return remove_entry(*parent, path);
}

Result<UniqueFd> lock_artifacts(const HostFs& host, const std::filesystem::path& top) {
  // An agent that is not root writes the folder: no link in the lock's place leads to another file, and
  // neither does another name of one. Without O_CREAT first, since the kernel may refuse that for another
  // user's file in a folder with the sticky bit (fs.protected_regular).
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
  auto fd = host.open(top / kLock, kFlags);
  if (!fd && fd.error().code == std::errc::no_such_file_or_directory)
    fd = host.open(top / kLock, kFlags | O_CREAT, 0664);
  struct stat status {};
  if (fd && ::fstat(fd->get(), &status) != 0)
    return fail(error_from_errno(errno, "lock /" + (top / kLock).string()));
  const bool is_link = !fd && fd.error().code == std::errc::too_many_symbolic_link_levels;
  if (is_link || (fd && (!S_ISREG(status.st_mode) || status.st_nlink != 1)))
    return fail(Errc::refused, fmt::format("/{} is no file with one name", (top / kLock).string()),
                "remove it; Ferry makes the file");
  if (!fd) return fd;
  // hostd and an agent without root both lock the file, by its group. Only its owner may set the mode.
  static_cast<void>(::fchmod(fd->get(), 0664));
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock /" + (top / kLock).string()));
    const std::string user = host.read_attribute(top / kLock).value_or("");
    return fail(Errc::refused,
                fmt::format("another program works in /{}{}", top.string(),
                            user.empty() ? "" : fmt::format(" (process {})", user)),
                "wait for the other ferry to end, or stop k8s-kata-manager");
  }
  // The process ID is for the message above only; the lock is flock's.
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd->get(), 0) != 0 || ::pwrite(fd->get(), pid.data(), pid.size(), 0) < 0)
    return fail(error_from_errno(errno, "write /" + (top / kLock).string()));
  return fd;
}

Result<std::optional<Artifact>> current_artifact(const HostFs& host,
                                                 const std::filesystem::path& artifacts_dir,
                                                 const std::string& name) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto version = version_in_use(host, *places);
  if (!version) return std::optional<Artifact>();
  auto artifact = read_record(host, artifacts_dir, name, *version);
  if (!artifact && artifact.error().code == Errc::not_found) return std::optional<Artifact>();
  if (!artifact) return fail(std::move(artifact).error());
  return std::optional(std::move(*artifact));
}

Result<std::vector<std::filesystem::path>> collect_versions(
    HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
    const std::function<bool(const std::filesystem::path& version)>& in_use) {
  std::vector<std::filesystem::path> gone;
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto store = open_store(host, *places);
  if (!store && is_gone(store.error())) return gone;
  if (!store) return fail(Error(store.error()));
  const auto entries = entries_of(*store, *places);
  if (!entries) return fail(entries.error());
  const auto lock = lock_artifacts(host, places->top());
  if (!lock) return fail(lock.error());
  const auto current = version_in_use(host, *places);
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.is_directory || entry.name == current || !is_version(entry.name)) continue;
    const auto path = places->version(entry.name);
    if (in_use("/" / path)) continue;
    // The record goes last: a folder without a record counts as unknown, a record without a folder is
    // harmless.
    auto removed = remove_entry(*store, path);
    if (removed) removed = remove_entry(*store, places->record(entry.name));
    if (!removed) return fail(std::move(removed).error());
    gone.push_back("/" / path);
  }
  return gone;
}

Result<> remove_artifact(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  // A folder in the link's place is not Ferry's.
  if (host.link_target(places->link()))
    if (auto removed = host.remove_file(places->link()); !removed) return removed;
  const auto store = open_store(host, *places);
  if (!store && is_gone(store.error())) return {};
  if (!store) return fail(Error(store.error()));
  const auto entries = entries_of(*store, *places);
  if (!entries) return fail(entries.error());
  if (auto back = put_back(host, *places, *store, *entries); !back) return back;
  for (const DirectoryEntry& entry : *entries) {
    if (rank_of(entry) > 0) continue;
    if (auto removed = remove_entry(*store, places->version(entry.name)); !removed) return removed;
  }
  // The store stays while it has a folder that is not Ferry's.
  if (auto removed = host.remove_empty_folder(places->store());
      !removed && removed.error().code != std::errc::directory_not_empty)
    return fail(std::move(removed).error());
  return {};
}

namespace {

/// True if the class's Kata configuration (Ferry's or an administrator's) names a file of this version. The
/// next sandbox uses that file, even after a newer fetch.
bool is_named(const HostFs& host, const std::string& name, const std::filesystem::path& version) {
  const auto folder = kata_configuration_folder(name).relative_path();
  const auto drop_ins = host.list(folder / "config.d");
  if (!drop_ins && !is_gone(drop_ins.error())) return true;
  std::vector<std::filesystem::path> files = {folder / "configuration.toml"};
  for (const std::string& file : drop_ins.value_or(std::vector<std::string>()))
    files.push_back(folder / "config.d" / file);
  return std::ranges::any_of(files, [&](const auto& file) {
    const auto text = host.read_file(file);
    return text ? text->find(version.string() + "/") != std::string::npos : !is_gone(text.error());
  });
}

}  // namespace

Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const KataClass& kata,
                                                          std::vector<std::string> others) {
  const auto state = runtime.state();
  if (!state) return std::vector<std::filesystem::path>();
  const auto who =
      who_has(host, runtime, *state,
              {.classes = {kata.name}, .handlers = kata.handlers(), .others = std::move(others)});
  if (!who || *who) return std::vector<std::filesystem::path>();
  return collect_versions(host, artifacts_dir, kata.name,
                          [&](const auto& version) { return is_named(host, kata.name, version); });
}

}  // namespace ferry::kata
