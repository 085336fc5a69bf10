// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_links.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <map>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/file_status.h"
#include "common/text/whole_json.h"
#include "hostfs/descriptor_reads.h"

namespace ferry::kata {
namespace {

using nlohmann::json;

// Begins the name of a folder that a link replaced, in the artifacts' folder. It is never removed. The name
// of a class has no dot.
std::string put_aside_prefix(const ArtifactPlaces& places) {
  return fmt::format(".{}.replaced-", places.link().filename().string());
}

// The name of a link before it is in its place.
std::string fresh_name(const ArtifactPlaces& places) {
  return fmt::format(".{}.link", places.link().filename().string());
}

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

// hostd's own record, which only root writes: the links that hostd has made to folders of the host, and their
// targets. A link into the store shows by its form that it is Ferry's.
constexpr const char* kMadeLinks = "var/lib/ferry-hostd/kata/links.json";
using MadeLinks = std::map<std::string, std::vector<std::string>>;

Result<MadeLinks> made_links(const HostFs& host) {
  const auto text = host.read_file(kMadeLinks, HostFs::Links::refused);
  if (!text && is_gone(text.error())) return MadeLinks();
  if (!text) return fail(text.error());
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

// True if hostd, or a fetch into the store, has made the link in the class's place, which leads to `target`.
Result<bool> is_ferrys_link(const HostFs& host, const ArtifactPlaces& places, const std::string& target) {
  if (version_in_use(host, places)) return true;
  const auto links = made_links(host);
  if (!links) return fail(links.error());
  const auto known = links->find(key_of(places));
  return known != links->end() && std::ranges::find(known->second, target) != known->second.end();
}

Result<bool> is_same_folder(const HostFs& host, const struct stat& entry,
                            const std::filesystem::path& folder) {
  const auto other = host.open(folder.relative_path(), O_PATH | O_DIRECTORY);
  if (!other) return fail(other.error());
  const auto status = file_status(other->get());
  if (!status) return fail(error_from_errno(errno, "stat " + folder.string()));
  return entry.st_dev == status->st_dev && entry.st_ino == status->st_ino;
}

// The rest of the way to `folder`, by any path, after it has met `link`. Empty: it leads to the folder that
// the link leads to. Absent: it does not meet the link. A link to such a folder in the place of `link` would
// lead to itself.
Result<std::optional<std::filesystem::path>> way_behind_link(const HostFs& host,
                                                             const std::filesystem::path& folder,
                                                             const struct stat& link) {
  using Rest = std::optional<std::filesystem::path>;
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
    if (!entry && is_gone(entry.error())) return Rest();
    if (!entry) return fail(entry.error());
    const auto status = file_status(entry->get());
    if (!status) return fail(error_from_errno(errno, "stat /" + next.string()));
    if (status->st_dev == link.st_dev && status->st_ino == link.st_ino) {
      Rest behind(std::in_place);
      for (const auto& other : rest)
        if (!other.empty() && other != ".") *behind /= other;
      return behind;
    }
    if (!S_ISLNK(status->st_mode)) {
      here = next;
      continue;
    }
    if (++links > kMostLinks) return fail(error_from_errno(ELOOP, "open /" + next.string()));
    const auto target = host.link_target(next);
    if (!target) return fail(target.error());
    const std::filesystem::path to(*target);
    if (to.is_absolute()) here.clear();
    rest.insert(rest.begin(), to.begin(), to.end());
  }
  return Rest();
}

}  // namespace

Result<std::optional<std::filesystem::path>> link_to_make(const HostFs& host,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const Artifact& artifact) {
  using Target = std::optional<std::filesystem::path>;
  const auto places = ArtifactPlaces::of(artifacts_dir, artifact.name);
  if (!places) return fail(places.error());
  // A fetch from "DIR/" makes the link without the slash.
  std::filesystem::path target =
      artifact.version.has_filename() ? artifact.version : artifact.version.parent_path();
  const std::string version = artifact.version.filename();
  if (is_version(version) && artifact.version == "/" / places->version(version))
    target = places->link_target(version);

  const auto top = open_top(host, *places);
  if (!top && is_gone(top.error())) return Target(target);
  if (!top) return fail(top.error());
  const std::string name = places->link().filename();
  const auto what = [&] { return "read link /" + places->link().string(); };
  const auto entry = entry_status(top->get(), name);
  if (!entry) return errno == ENOENT ? Result<Target>(target) : fail(error_from_errno(errno, what()));
  if (S_ISLNK(entry->st_mode)) {
    const auto now = read_link(top->get(), name.c_str(), what);
    if (!now) return fail(now.error());
    if (*now == target) return Target();
    if (target.is_absolute()) {
      const auto way = way_behind_link(host, target, *entry);
      if (!way) return fail(way.error());
      const auto& behind = *way;
      if (behind && behind->empty()) return Target();
      if (behind)
        return fail(Errc::refused,
                    fmt::format("{}: the way to it goes through /{}, the place of the class's link",
                                artifact.url, places->link().string()),
                    fmt::format("name the folder by a path without /{}", places->link().string()));
    }
    const auto is_ferrys = is_ferrys_link(host, *places, *now);
    if (!is_ferrys) return fail(is_ferrys.error());
    if (*is_ferrys) return Target(target);
    return fail(Errc::refused,
                fmt::format("/{} is a link to {} that Ferry did not make, in the place of the class's link",
                            places->link().string(), *now),
                fmt::format("remove it: `rm /{}`; hostd makes the link", places->link().string()));
  }
  if (S_ISDIR(entry->st_mode)) {
    const auto is_in_place = is_same_folder(host, *entry, artifact.version);
    if (!is_in_place) return fail(is_in_place.error());
    if (*is_in_place) return Target();
  }
  return fail(Errc::refused,
              fmt::format("/{} is a {} that Ferry did not make, in the place of the class's link",
                          places->link().string(), S_ISDIR(entry->st_mode) ? "folder" : "file"),
              "move it elsewhere, or give the class another name; hostd makes the link");
}

Result<> make_link(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
                   const std::filesystem::path& target) {
  const auto places = ArtifactPlaces::of(artifacts_dir, name);
  if (!places) return fail(places.error());
  const auto top = open_or_make_folder(host, places->top());
  if (!top) return fail(top.error());
  // First the record: a target without a link does no harm.
  if (target.is_absolute()) {
    auto links = made_links(host);
    if (!links) return fail(links.error());
    auto& targets = (*links)[key_of(*places)];
    if (std::ranges::find(targets, target.string()) == targets.end()) {
      targets.push_back(target.string());
      if (auto written = write_made_links(host, *links); !written) return written;
    }
  }
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
  if (!entries) return fail(entries.error());
  for (const DirectoryEntry& entry : *entries) {
    const bool is_left = entry.name == fresh_name(places) || entry.name.starts_with(put_aside_prefix(places));
    if (entry.is_directory || !is_left) continue;
    if (::unlinkat(top.get(), entry.name.c_str(), 0) != 0 && errno != ENOENT)
      return fail(error_from_errno(errno, "tidy /" + places.top().string()));
  }
  return {};
}

Result<> remove_link(HostFs& host, const UniqueFd& top, const ArtifactPlaces& places, Replaced replaced) {
  // A folder in the link's place is not Ferry's.
  if (const auto target = host.link_target(places.link())) {
    // hostd removes no administrator's link. Links that `ferry kata install` makes are not recorded.
    const auto goes =
        replaced == Replaced::comes_back ? Result<bool>(true) : is_ferrys_link(host, places, *target);
    if (!goes) return fail(goes.error());
    if (*goes)
      if (auto removed = host.remove_file(places.link()); !removed) return removed;
  }
  auto links = made_links(host);
  if (!links) return fail(links.error());
  if (links->erase(key_of(places)) > 0)
    if (auto written = write_made_links(host, *links); !written) return written;
  if (auto tidied = tidy_links(top, places); !tidied) return tidied;
  if (replaced == Replaced::stays) return {};

  // The last replaced folder moves back to the link's place, unless that is taken.
  const std::string prefix = put_aside_prefix(places);
  const auto entries = entries_of(top, places);
  if (!entries) return fail(entries.error());
  std::string last;
  unsigned highest = 0;
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.is_directory || !entry.name.starts_with(prefix)) continue;
    unsigned number = 0;
    const char* const end = entry.name.data() + entry.name.size();
    (void)std::from_chars(entry.name.data() + prefix.size(), end, number);
    if (number <= highest) continue;
    highest = number;
    last = entry.name;
  }
  if (last.empty()) return {};
  const std::string name = places.link().filename();
  const std::string what = fmt::format("put /{} back", (places.top() / last).string());
  if (::renameat2(top.get(), last.c_str(), top.get(), name.c_str(), RENAME_NOREPLACE) != 0)
    return errno == EEXIST ? Result<>() : fail(error_from_errno(errno, what));
  if (::fsync(top.get()) != 0) return fail(error_from_errno(errno, what));
  return {};
}

}  // namespace ferry::kata
