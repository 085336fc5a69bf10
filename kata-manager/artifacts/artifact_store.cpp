// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <map>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "hostfs/descriptor_reads.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/artifacts/inner_path.h"
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
  artifact.earlier_urls = record.value("earlier_urls", std::vector<std::string>());
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

Error no_folder(const std::filesystem::path& path) {
  return {.code = make_error_code(Errc::refused),
          .message = fmt::format("/{} is a link or no folder", path.string()),
          .hint = "remove it; Ferry makes the folder"};
}

Result<UniqueFd> open_in(const UniqueFd& folder, const std::filesystem::path& path) {
  UniqueFd out(
      ::openat(folder.get(), path.filename().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!out.valid() && (errno == ELOOP || errno == ENOTDIR)) return fail(no_folder(path));
  if (!out.valid()) return fail(error_from_errno(errno, "open /" + path.string()));
  return out;
}

// Opens a folder of the store's path, and makes a missing one for the group of the folder above it.
Result<UniqueFd> open_or_make_for_group(const UniqueFd& folder, const std::filesystem::path& path) {
  constexpr mode_t kForGroup = S_ISGID | S_IRWXU | S_IRWXG | S_IROTH | S_IXOTH;
  const std::string what = "make folder /" + path.string();
  const bool is_made = ::mkdirat(folder.get(), path.filename().c_str(), 0775) == 0;
  if (!is_made && errno != EEXIST) return fail(error_from_errno(errno, what));
  auto out = open_in(folder, path);
  if (out && is_made && ::fchmod(out->get(), kForGroup) != 0) return fail(error_from_errno(errno, what));
  return out;
}

Result<std::string> read_in_store(const UniqueFd& store, const ArtifactPlaces& places,
                                  const std::string& name) {
  const HostFs inside(fmt::format("/proc/self/fd/{}", store.get()));
  auto text = inside.read_file(name, HostFs::Links::refused);
  if (!text) return fail(std::move(text).error().during("in /" + places.store().string()));
  return text;
}

bool is_folder_in(const UniqueFd& parent, const std::string& name) {
  struct stat status {};
  return ::fstatat(parent.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

// Folders that an earlier Ferry has put aside in the store, where the agent writes. They are not Ferry's.
bool is_put_aside_in_store(const DirectoryEntry& entry) {
  return entry.is_directory && (entry.name == "link" || entry.name.starts_with("replaced-"));
}

// Begins the name of a folder that a link replaced, in the artifacts' folder. It is never removed. The name
// of a class has no dot.
std::string put_aside_prefix(const ArtifactPlaces& places) {
  return fmt::format(".{}.replaced-", places.link().filename().string());
}

// The name of a link before it is in its place.
std::string fresh_name(const ArtifactPlaces& places) {
  return fmt::format(".{}.link", places.link().filename().string());
}

// How late a replaced folder was put aside; 0: the entry is none.
unsigned rank_of(const DirectoryEntry& entry, const std::string& prefix) {
  if (!entry.is_directory || !entry.name.starts_with(prefix)) return 0;
  const std::string_view digits = std::string_view(entry.name).substr(prefix.size());
  unsigned number = 0;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

// Moves the last replaced folder back to the link's place, unless that is taken.
Result<> put_back(const UniqueFd& top, const ArtifactPlaces& places) {
  const std::string prefix = put_aside_prefix(places);
  const auto entries = entries_of(top, places);
  if (!entries) return fail(Error(entries.error()));
  const auto rank = [&](const DirectoryEntry& entry) { return rank_of(entry, prefix); };
  const auto last = std::ranges::max_element(*entries, {}, rank);
  if (last == entries->end() || rank(*last) == 0) return {};
  const std::string what = fmt::format("put /{} back", (places.top() / last->name).string());
  if (::renameat2(top.get(), last->name.c_str(), top.get(), places.link().filename().c_str(),
                  RENAME_NOREPLACE) != 0) {
    return errno == EEXIST ? Result<>() : fail(error_from_errno(errno, what));
  }
  if (::fsync(top.get()) != 0) return fail(error_from_errno(errno, what));
  return {};
}

// The process ID in a lock; empty: the file has something else. Read from the open file: at its path may be
// another one by now, on which a read would wait.
std::string process_in(const UniqueFd& lock) {
  std::array<char, 20> text{};
  const ssize_t size = ::pread(lock.get(), text.data(), text.size(), 0);
  std::string out(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  if (out.ends_with('\n')) out.pop_back();
  const bool is_number = std::ranges::all_of(out, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? out : std::string();
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

Result<UniqueFd> open_top(const HostFs& host, const ArtifactPlaces& places) {
  return host.open(places.top().empty() ? "." : places.top(), O_RDONLY | O_DIRECTORY);
}

Result<UniqueFd> open_store(const UniqueFd& top, const ArtifactPlaces& places) {
  const auto all = open_in(top, places.store().parent_path());
  return all ? open_in(*all, places.store()) : Result<UniqueFd>(fail(Error(all.error())));
}

Result<UniqueFd> open_or_make_store(const UniqueFd& top, const ArtifactPlaces& places) {
  const auto all = open_or_make_for_group(top, places.store().parent_path());
  return all ? open_or_make_for_group(*all, places.store()) : Result<UniqueFd>(fail(Error(all.error())));
}

Result<UniqueFd> open_or_make_in(const UniqueFd& folder, const std::filesystem::path& path) {
  if (::mkdirat(folder.get(), path.filename().c_str(), 0775) != 0 && errno != EEXIST)
    return fail(error_from_errno(errno, "make folder /" + path.string()));
  return open_in(folder, path);
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
  const auto text = read_in_store(store, places, path.filename());
  if (!text && is_gone(text.error()))
    return fail(Errc::not_found, fmt::format("/{} is not there", path.string()));
  if (!text) return fail(text.error());
  try {
    const json record = parse_whole_json(*text);
    if (record.at("version").get<int>() != kVersionOfFormat)
      return fail(Errc::malformed_host,
                  fmt::format("/{}: written by another version of ferry", path.string()));
    Artifact artifact = artifact_of(record);
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

namespace {

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
  json record = {{"version", kVersionOfFormat},
                 {"url", artifact.url},
                 {"digest", artifact.digest},
                 {"configuration", artifact.configuration.lexically_relative(artifact.folder).string()},
                 {"files", std::move(files)}};
  if (!artifact.earlier_urls.empty()) record["earlier_urls"] = artifact.earlier_urls;
  return record.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

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
  const auto path = places.record(artifact.version.filename());
  return write_atomically(
      {.directory = store.get(), .name = path.filename(), .existing = -1, .path = "/" + path.string()},
      record_text(artifact));
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

namespace {

// Replaces a link or nothing: the kernel puts no link in the place of a folder.
Result<> place_link(const UniqueFd& top, const ArtifactPlaces& places, const std::filesystem::path& target) {
  const std::string name = places.link().filename();
  const std::string fresh = fresh_name(places);
  const std::string what = fmt::format("make the link /{}", places.link().string());
  // A killed run may have left it.
  if (::unlinkat(top.get(), fresh.c_str(), 0) != 0 && errno != ENOENT)
    return fail(error_from_errno(errno, what));
  if (::symlinkat(target.c_str(), top.get(), fresh.c_str()) != 0 ||
      ::renameat(top.get(), fresh.c_str(), top.get(), name.c_str()) != 0 || ::fsync(top.get()) != 0)
    return fail(error_from_errno(errno, what));
  return {};
}

std::filesystem::path target_of(const ArtifactPlaces& places, const Artifact& artifact) {
  const std::string version = artifact.version.filename();
  if (is_version(version) && artifact.version == "/" / places.version(version))
    return places.link_target(version);
  // As a fetch makes it from "DIR/".
  return artifact.version.has_filename() ? artifact.version : artifact.version.parent_path();
}

// hostd's own record, which only root writes: the links that hostd has made to folders of the host, and their
// targets. A link into the store shows by its form that it is Ferry's.
constexpr const char* kMadeLinks = "var/lib/ferry-hostd/kata/links.json";
using MadeLinks = std::map<std::string, std::vector<std::string>>;

Result<MadeLinks> made_links(const HostFs& host) {
  const auto text = host.read_file(kMadeLinks, HostFs::Links::refused);
  if (!text && is_gone(text.error())) return MadeLinks();
  if (!text) return fail(Error(text.error()));
  try {
    return parse_whole_json(*text).get<MadeLinks>();
  } catch (const json::exception& error) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", kMadeLinks, error.what()),
                "remove it, and the links of classes that Ferry made to folders of the host");
  }
}

Result<> write_made_links(HostFs& host, const MadeLinks& links) {
  if (links.empty()) return host.remove_file(kMadeLinks);
  return host.write_file(kMadeLinks, json(links).dump(2) + "\n");
}

std::string key_of(const ArtifactPlaces& places) {
  return "/" + places.link().string();
}

Result<> add_made_link(HostFs& host, const ArtifactPlaces& places, const std::string& target) {
  auto links = made_links(host);
  if (!links) return fail(Error(links.error()));
  auto& targets = (*links)[key_of(places)];
  if (std::ranges::find(targets, target) != targets.end()) return {};
  targets.push_back(target);
  return write_made_links(host, *links);
}

Result<> forget_made_links(HostFs& host, const ArtifactPlaces& places) {
  auto links = made_links(host);
  if (!links) return fail(Error(links.error()));
  if (links->erase(key_of(places)) == 0) return {};
  return write_made_links(host, *links);
}

// True if hostd, or a fetch into the store, has made the link in the class's place, which leads to `target`.
Result<bool> is_ferrys_link(const HostFs& host, const ArtifactPlaces& places, const std::string& target) {
  if (version_in_use(host, places)) return true;
  const auto links = made_links(host);
  if (!links) return fail(Error(links.error()));
  const auto known = links->find(key_of(places));
  return known != links->end() && std::ranges::find(known->second, target) != known->second.end();
}

Result<bool> is_same_folder(const HostFs& host, const UniqueFd& top, const std::string& name,
                            const std::filesystem::path& folder) {
  const auto other = host.open(folder.relative_path(), O_PATH | O_DIRECTORY);
  if (!other) return fail(Error(other.error()));
  struct stat one {};
  struct stat two {};
  if (::fstatat(top.get(), name.c_str(), &one, AT_SYMLINK_NOFOLLOW) != 0 || ::fstat(other->get(), &two) != 0)
    return fail(error_from_errno(errno, "stat " + folder.string()));
  return one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

enum class Way {
  passes_by,      // the way does not meet the link
  ends_at_link,   // it leads to the folder that the link leads to
  goes_on_there,  // it leads to an entry below that folder
};

// How the way to `folder` meets `link`, by any path. A link to such a folder in the place of `link` would
// lead to itself.
Result<Way> way_by_link(const HostFs& host, const std::filesystem::path& folder, const struct stat& link) {
  constexpr unsigned kMostLinks = 40;  // as the kernel has it
  std::deque<std::filesystem::path> rest(folder.begin(), folder.end());
  std::filesystem::path here;  // without links
  unsigned links = 0;
  while (!rest.empty()) {
    const std::filesystem::path part = rest.front();
    rest.pop_front();
    if (part.empty() || part == "." || part == "/") continue;
    if (part == "..") {
      here = here.parent_path();
      continue;
    }
    const auto next = here / part;
    const auto entry = host.open(next, O_PATH | O_NOFOLLOW);
    if (!entry && is_gone(entry.error())) return Way::passes_by;
    if (!entry) return fail(Error(entry.error()));
    struct stat status {};
    if (::fstat(entry->get(), &status) != 0) return fail(error_from_errno(errno, "stat /" + next.string()));
    if (status.st_dev == link.st_dev && status.st_ino == link.st_ino) {
      const bool is_end =
          std::ranges::all_of(rest, [](const auto& other) { return other.empty() || other == "."; });
      return is_end ? Way::ends_at_link : Way::goes_on_there;
    }
    if (!S_ISLNK(status.st_mode)) {
      here = next;
      continue;
    }
    if (++links > kMostLinks) return fail(error_from_errno(ELOOP, "open /" + next.string()));
    const auto target = host.link_target(next);
    if (!target) return fail(Error(target.error()));
    const std::filesystem::path to(*target);
    if (to.is_absolute()) here.clear();
    rest.insert(rest.begin(), to.begin(), to.end());
  }
  return Way::passes_by;
}

}  // namespace

Result<std::optional<std::filesystem::path>> link_to_make(const HostFs& host,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const Artifact& artifact) {
  using Target = std::optional<std::filesystem::path>;
  const auto places = ArtifactPlaces::of(artifacts_dir, artifact.name);
  if (!places) return fail(places.error());
  const std::filesystem::path target = target_of(*places, artifact);
  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return Target(target);
  if (!top) return fail(Error(top.error()));
  const std::string name = places->link().filename();
  const auto what = [&] { return "read link /" + places->link().string(); };
  struct stat entry {};
  if (::fstatat(top->get(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? Result<Target>(target) : fail(error_from_errno(errno, what()));
  if (S_ISLNK(entry.st_mode)) {
    const auto now = read_link(top->get(), name.c_str(), what);
    if (!now) return fail(Error(now.error()));
    if (*now == target) return Target();
    if (target.is_absolute()) {
      const auto way = way_by_link(host, target, entry);
      if (!way) return fail(Error(way.error()));
      if (*way == Way::ends_at_link) return Target();
      if (*way == Way::goes_on_there)
        return fail(Errc::refused,
                    fmt::format("{}: the way to it goes through /{}, the place of the class's link",
                                artifact.url, places->link().string()),
                    fmt::format("name the folder by a path without /{}", places->link().string()));
    }
    const auto is_ferrys = is_ferrys_link(host, *places, *now);
    if (!is_ferrys) return fail(Error(is_ferrys.error()));
    if (*is_ferrys) return Target(target);
    return fail(Errc::refused,
                fmt::format("/{} is a link to {} that Ferry did not make, in the place of the class's link",
                            places->link().string(), *now),
                fmt::format("remove it: `rm /{}`; hostd makes the link", places->link().string()));
  }
  if (S_ISDIR(entry.st_mode)) {
    const auto is_in_place = is_same_folder(host, *top, name, artifact.version);
    if (!is_in_place) return fail(Error(is_in_place.error()));
    if (*is_in_place) return Target();
  }
  return fail(Errc::refused,
              fmt::format("/{} is a {} that Ferry did not make, in the place of the class's link",
                          places->link().string(), S_ISDIR(entry.st_mode) ? "folder" : "file"),
              "move it elsewhere, or give the class another name; hostd makes the link");
}

Result<> make_link(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
                   const std::filesystem::path& target) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_or_make_folder(host, places->top());
  if (!top) return fail(Error(top.error()));
  // First the record: a target without a link does no harm.
  if (target.is_absolute())
    if (auto added = add_made_link(host, *places, target.string()); !added) return added;
  return place_link(*top, *places, target);
}

Result<bool> switch_link(const UniqueFd& top, const ArtifactPlaces& places,
                         const std::filesystem::path& target) {
  const std::string name = places.link().filename();
  const auto now = read_link(top.get(), name.c_str(), [&] { return "read link /" + places.link().string(); });
  if (now && *now == target) return false;
  if (!is_folder_in(top, name)) {
    if (auto placed = place_link(top, places, target); !placed) return fail(std::move(placed).error());
    return true;
  }
  // The replaced folder holds artifacts of another program, perhaps in use, so it is kept.
  const std::string what = fmt::format("switch /{}", places.link().string());
  for (unsigned number = 1;; ++number) {
    const std::string aside = put_aside_prefix(places) + std::to_string(number);
    if (::symlinkat(target.c_str(), top.get(), aside.c_str()) != 0) {
      if (errno == EEXIST) continue;
      return fail(error_from_errno(errno, what));
    }
    if (::renameat2(top.get(), aside.c_str(), top.get(), name.c_str(), RENAME_EXCHANGE) != 0 ||
        ::fsync(top.get()) != 0)
      return fail(error_from_errno(errno, what));
    return true;
  }
}

Result<> tidy_links(const UniqueFd& top, const ArtifactPlaces& places) {
  const auto entries = entries_of(top, places);
  if (!entries) return fail(Error(entries.error()));
  for (const DirectoryEntry& entry : *entries) {
    const bool is_left = entry.name == fresh_name(places) || entry.name.starts_with(put_aside_prefix(places));
    if (entry.is_directory || !is_left) continue;
    if (::unlinkat(top.get(), entry.name.c_str(), 0) != 0 && errno != ENOENT)
      return fail(error_from_errno(errno, "tidy /" + places.top().string()));
  }
  return {};
}

Result<> remove_all(const HostFs& host, const std::filesystem::path& path) {
  const auto parent = parent_of(host, path);
  if (!parent && is_gone(parent.error())) return {};
  if (!parent) return fail(parent.error());
  return remove_entry(*parent, path);
}

Result<UniqueFd> lock_artifacts(const HostFs& host, const std::filesystem::path& top) {
  // Another user may be able to write the folder, as an agent could under an earlier hostd: no link in the
  // lock's place leads to another file, and neither does another name of one. Without O_CREAT first, since
  // the kernel may refuse that for another user's file in a folder with the sticky bit
  // (fs.protected_regular).
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
    const std::string user = process_in(*fd);
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
                                                 const std::string& name, const std::string& url) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return std::optional<Artifact>();
  if (!top) return fail(Error(top.error()));
  const auto store = open_store(*top, *places);
  if (!store && is_gone(store.error())) return std::optional<Artifact>();
  if (!store) return fail(Error(store.error()));
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
  if (!top) return fail(Error(top.error()));
  const auto store = open_store(*top, *places);
  if (!store && is_gone(store.error())) return gone;
  if (!store) return fail(Error(store.error()));
  const auto entries = entries_of(*store, *places);
  if (!entries) return fail(entries.error());
  const auto lock = lock_artifacts(host, places->top());
  if (!lock) return fail(lock.error());
  const auto current = version_in_use(host, *places);
  const auto pulled = pulled_version(*store);  // hostd may switch the link to it later
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.is_directory || entry.name == current || entry.name == pulled || !is_version(entry.name))
      continue;
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

Result<> remove_artifact(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
                         Replaced replaced) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return {};
  if (!top) return fail(Error(top.error()));
  // A folder in the link's place is not Ferry's.
  if (const auto target = host.link_target(places->link())) {
    // hostd removes no administrator's link. Links that `ferry kata install` makes are not recorded.
    const auto goes =
        replaced == Replaced::comes_back ? Result<bool>(true) : is_ferrys_link(host, *places, *target);
    if (!goes) return fail(Error(goes.error()));
    if (*goes)
      if (auto removed = host.remove_file(places->link()); !removed) return removed;
  }
  if (auto forgotten = forget_made_links(host, *places); !forgotten) return forgotten;
  if (auto tidied = tidy_links(*top, *places); !tidied) return tidied;
  if (replaced == Replaced::comes_back)
    if (auto back = put_back(*top, *places); !back) return back;
  const auto store = open_store(*top, *places);
  if (!store && is_gone(store.error())) return {};
  if (!store) return fail(Error(store.error()));
  const auto entries = entries_of(*store, *places);
  if (!entries) return fail(entries.error());
  for (const DirectoryEntry& entry : *entries) {
    if (is_put_aside_in_store(entry)) continue;
    if (auto removed = remove_entry(*store, places->version(entry.name)); !removed) return removed;
  }
  const auto all = open_in(*top, places->store().parent_path());
  if (!all) return fail(Error(all.error()));
  // The store stays while it has a folder that is not Ferry's.
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
