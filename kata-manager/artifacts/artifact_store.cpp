// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <iterator>
#include <optional>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/file_status.h"
#include "common/text/text.h"
#include "common/text/whole_json.h"
#include "hostfs/descriptor_reads.h"
#include "kata-manager/artifacts/artifact_links.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/artifacts/inner_path.h"
#include "kata-manager/configuration/kata_configuration.h"
#include "kata-manager/configuration/kata_users.h"

namespace ferry::kata {
namespace {

using nlohmann::json;
constexpr int kVersionOfFormat = 1;
// The lock of the replaced program, so that the two never work together.
constexpr const char* kLock = "k8s-kata-manager.pid";

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

Result<UniqueFd> open_top(const HostFs& host, const ArtifactPlaces& places) {
  return host.open(places.top().empty() ? "." : places.top(), O_RDONLY | O_DIRECTORY);
}

Result<UniqueFd> open_store(const UniqueFd& top, const ArtifactPlaces& places) {
  const auto all = open_in(top, places.store().parent_path());
  return all ? open_in(*all, places.store()) : Result<UniqueFd>(fail(all.error()));
}

Result<UniqueFd> open_or_make_store(const UniqueFd& top, const ArtifactPlaces& places) {
  // The folders are for the group of the folder above them.
  constexpr mode_t kForGroup = S_ISGID | S_IRWXU | S_IRWXG | S_IROTH | S_IXOTH;
  const auto all = open_or_make_in(top, places.store().parent_path(), kForGroup);
  return all ? open_or_make_in(*all, places.store(), kForGroup) : Result<UniqueFd>(fail(all.error()));
}

Result<UniqueFd> open_in(const UniqueFd& folder, const std::filesystem::path& path) {
  UniqueFd out(
      ::openat(folder.get(), path.filename().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!out.valid() && (errno == ELOOP || errno == ENOTDIR))
    return fail(Errc::refused, fmt::format("/{} is a link or no folder", path.string()),
                "remove it; Ferry makes the folder");
  if (!out.valid()) return fail(error_from_errno(errno, "open /" + path.string()));
  return out;
}

Result<UniqueFd> open_or_make_in(const UniqueFd& folder, const std::filesystem::path& path,
                                 std::optional<mode_t> mode) {
  const std::string what = "make folder /" + path.string();
  const bool is_made = ::mkdirat(folder.get(), path.filename().c_str(), 0775) == 0;
  if (!is_made && errno != EEXIST) return fail(error_from_errno(errno, what));
  auto out = open_in(folder, path);
  if (out && is_made && mode && ::fchmod(out->get(), *mode) != 0) return fail(error_from_errno(errno, what));
  return out;
}

bool is_folder_in(const UniqueFd& parent, const std::string& name) {
  const auto status = entry_status(parent.get(), name);
  return status && S_ISDIR(status->st_mode);
}

Result<std::vector<DirectoryEntry>> entries_of(const UniqueFd& store, const ArtifactPlaces& places) {
  const auto what = [&] { return "list /" + places.store().string(); };
  if (::lseek(store.get(), 0, SEEK_SET) != 0) return fail(error_from_errno(errno, what()));
  return read_entries(store.get(), what);
}

Result<> remove_entry(const UniqueFd& folder, const std::filesystem::path& path) {
  // Goes through the open folder: a path from "/" could follow links out of the host's root.
  std::error_code failure;
  std::filesystem::remove_all(fmt::format("/proc/self/fd/{}/{}", folder.get(), path.filename().string()),
                              failure);
  if (failure) return fail(error_from_errno(failure.value(), "remove /" + path.string()));
  return {};
}

std::optional<std::string> pulled_version(const UniqueFd& store) {
  const HostFs inside(fmt::format("/proc/self/fd/{}", store.get()));
  const auto text = inside.read_file(kPulled, HostFs::Links::refused);
  return text && is_version(*text) ? std::optional(*text) : std::nullopt;
}

Result<> write_pulled_version(const UniqueFd& store, const ArtifactPlaces& places,
                              const std::string& version) {
  if (pulled_version(store) == version) return {};
  return write_atomically({.directory = store.get(),
                           .name = kPulled,
                           .existing = -1,
                           .path = "/" + (places.store() / kPulled).string()},
                          version);
}

Result<Artifact> read_record(const UniqueFd& store, const ArtifactPlaces& places,
                             const std::string& version) {
  const auto path = places.record(version);
  const HostFs inside(fmt::format("/proc/self/fd/{}", store.get()));
  auto text = inside.read_file(path.filename(), HostFs::Links::refused);
  if (!text && is_gone(text.error()))
    return fail(Errc::not_found, fmt::format("/{} is not there", path.string()));
  if (!text) return fail(std::move(text).error().during("in /" + places.store().string()));
  try {
    const json record = parse_whole_json(*text);
    if (record.at("version").get<int>() != kVersionOfFormat)
      return fail(Errc::malformed_host,
                  fmt::format("/{}: written by another version of ferry", path.string()));
    Artifact artifact;
    artifact.url = record.at("url").get<std::string>();
    artifact.earlier_urls = record.value("earlier_urls", std::vector<std::string>());
    artifact.digest = record.at("digest").get<std::string>();
    artifact.configuration = record.at("configuration").get<std::string>();
    for (const json& file : record.at("files")) {
      artifact.files.push_back({.path = file.at("path").get<std::string>(),
                                .size = file.value("size", std::uint64_t{0}),
                                .sha256 = file.value("sha256", ""),
                                .link = file.value("link", "")});
    }

    // An agent that is not root writes records, and root reads the configuration and names the files in it.
    const auto is_inside = [](const std::filesystem::path& file) {
      const auto parts = inner_path(file.native());
      return parts && !parts->empty();
    };
    if (!is_inside(artifact.configuration) ||
        !std::ranges::all_of(artifact.files, is_inside, &ArtifactFile::path))
      return fail(Errc::malformed_host,
                  fmt::format("/{}: it names a file that is not of the artifact", path.string()));
    artifact.name = places.link().filename();
    artifact.folder = "/" / places.link();
    artifact.version = "/" / places.version(version);
    artifact.configuration = artifact.folder / artifact.configuration;
    return artifact;
  } catch (const json::exception& error) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", path.string(), error.what()));
  }
}

void change_url(Artifact& artifact, const std::string& url) {
  constexpr std::size_t kMostEarlier = 15;
  if (artifact.url == url) return;
  auto& earlier = artifact.earlier_urls;
  earlier.insert(earlier.begin(), std::exchange(artifact.url, url));
  std::erase(earlier, url);
  if (earlier.size() > kMostEarlier) earlier.resize(kMostEarlier);
}

bool has_url(const Artifact& artifact, const std::string& url) {
  return artifact.url == url || std::ranges::find(artifact.earlier_urls, url) != artifact.earlier_urls.end();
}

Result<> write_record(const UniqueFd& store, const ArtifactPlaces& places, const Artifact& artifact) {
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
  json record = {{"version", kVersionOfFormat},
                 {"url", artifact.url},
                 {"digest", artifact.digest},
                 {"configuration", artifact.configuration.lexically_relative(artifact.folder).string()},
                 {"files", std::move(files)}};
  if (!artifact.earlier_urls.empty()) record["earlier_urls"] = artifact.earlier_urls;

  const auto path = places.record(artifact.version.filename());
  return write_atomically(
      {.directory = store.get(), .name = path.filename(), .existing = -1, .path = "/" + path.string()},
      record.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
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

Result<> remove_all(const HostFs& host, const std::filesystem::path& path) {
  const auto parent = host.open(path.parent_path(), O_RDONLY | O_DIRECTORY);
  if (!parent && is_gone(parent.error())) return {};
  if (!parent) return fail(parent.error());
  return remove_entry(*parent, path);
}

Result<UniqueFd> lock_artifacts(const HostFs& host, const std::filesystem::path& top) {
  // Another user may be able to write the folder: no link in the lock's place leads to another file, and
  // neither does another name of one. Without O_CREAT first, since the kernel may refuse that for another
  // user's file in a folder with the sticky bit (fs.protected_regular).
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
  auto fd = host.open(top / kLock, kFlags);
  if (!fd && fd.error().code == std::errc::no_such_file_or_directory)
    fd = host.open(top / kLock, kFlags | O_CREAT, 0664);
  const auto status = fd ? file_status(fd->get()) : std::nullopt;
  if (fd && !status) return fail(error_from_errno(errno, "lock /" + (top / kLock).string()));
  const bool is_link = !fd && fd.error().code == std::errc::too_many_symbolic_link_levels;
  if (is_link || (status && (!S_ISREG(status->st_mode) || status->st_nlink != 1)))
    return fail(Errc::refused, fmt::format("/{} is no file with one name", (top / kLock).string()),
                "remove it; Ferry makes the file");
  if (!fd) return fd;
  // hostd and an agent without root both lock the file, by its group. Only its owner may set the mode.
  static_cast<void>(::fchmod(fd->get(), 0664));
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock /" + (top / kLock).string()));
    // Read from the open file: at its path may be another one by now, on which a read would wait.
    std::array<char, 20> text{};
    const ssize_t size = ::pread(fd->get(), text.data(), text.size(), 0);
    std::string user(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    if (user.ends_with('\n')) user.pop_back();
    const bool is_process = !user.empty() && std::ranges::all_of(user, is_digit);
    return fail(Errc::refused,
                fmt::format("another program works in /{}{}", top.string(),
                            is_process ? fmt::format(" (process {})", user) : ""),
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
                                                 const std::string& name, const std::string& url) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return std::optional<Artifact>();
  if (!top) return fail(top.error());
  const auto store = open_store(*top, *places);
  if (!store && is_gone(store.error())) return std::optional<Artifact>();
  if (!store) return fail(store.error());
  std::optional<Error> wrong;
  for (const auto& version : {pulled_version(*store), version_in_use(host, *places)}) {
    if (!version) continue;
    auto artifact = read_record(*store, *places, *version);
    if (!artifact && artifact.error().code != Errc::not_found && !wrong) wrong = artifact.error();
    if (!artifact || !has_url(*artifact, url) || !is_folder_in(*store, *version)) continue;
    change_url(*artifact, url);
    return std::optional(std::move(*artifact));
  }
  if (wrong) return fail(std::move(*wrong));
  return std::optional<Artifact>();
}

Result<std::vector<std::filesystem::path>> collect_versions(
    HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
    const std::function<bool(const std::filesystem::path& version)>& in_use) {
  std::vector<std::filesystem::path> gone;
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return gone;
  if (!top) return fail(top.error());
  const auto store = open_store(*top, *places);
  if (!store && is_gone(store.error())) return gone;
  if (!store) return fail(store.error());
  const auto entries = entries_of(*store, *places);
  if (!entries) return fail(entries.error());
  const auto goes = [&](const DirectoryEntry& entry) {
    // hostd may switch the link to the version that was fetched last.
    return entry.is_directory && is_version(entry.name) && entry.name != version_in_use(host, *places) &&
           entry.name != pulled_version(*store) && !in_use("/" / places->version(entry.name));
  };
  // The lock is taken only if something goes: it would refuse a fetch that begins now.
  if (std::ranges::none_of(*entries, goes)) return gone;
  const auto lock = lock_artifacts(host, places->top());
  if (!lock) return fail(lock.error());
  for (const DirectoryEntry& entry : *entries) {
    if (!goes(entry)) continue;
    const auto path = places->version(entry.name);
    // The record goes last: a folder without a record counts as unknown, a record without a folder is
    // harmless.
    auto removed = remove_entry(*store, path);
    if (removed) removed = remove_entry(*store, places->record(entry.name));
    if (!removed) return fail(std::move(removed).error());
    gone.push_back("/" / path);
  }
  return gone;
}

Result<> remove_artifact(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
                         Replaced replaced) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return {};
  if (!top) return fail(top.error());
  if (auto removed = remove_link(host, *top, *places, replaced); !removed) return removed;
  const auto store = open_store(*top, *places);
  if (!store && is_gone(store.error())) return {};
  if (!store) return fail(store.error());
  const auto entries = entries_of(*store, *places);
  if (!entries) return fail(entries.error());
  for (const DirectoryEntry& entry : *entries)
    if (auto removed = remove_entry(*store, places->version(entry.name)); !removed) return removed;
  const auto all = open_in(*top, places->store().parent_path());
  if (!all) return fail(all.error());
  // The store stays if the agent has put something into it meanwhile.
  if (::unlinkat(all->get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT && errno != ENOTEMPTY)
    return fail(error_from_errno(errno, "remove /" + places->store().string()));
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
                                                          const ClassFile& file, const KataClass& kata) {
  const auto may_have_pods = [&] {
    LeavingClasses leaving{.classes = {kata.name}, .handlers = kata.handlers(), .others = {}};
    for (const KataClass& other : file.classes)
      if (other.name != kata.name) std::ranges::move(other.handlers(), std::back_inserter(leaving.others));
    const auto state = runtime.state();
    if (!state) return true;
    const auto who = who_has(host, runtime, *state, leaving);
    return !who || who->has_value();
  };
  std::optional<bool> has_pods;  // not asked yet
  return collect_versions(host, file.artifacts_dir, kata.name, [&](const auto& version) {
    if (!has_pods) has_pods = may_have_pods();
    return *has_pods || is_named(host, kata.name, version);
  });
}

}  // namespace ferry::kata
