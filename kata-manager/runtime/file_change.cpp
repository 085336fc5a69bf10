// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/file_change.h"

namespace ferry::kata {

Result<std::optional<std::string>> content_of(const HostFs& host, const std::filesystem::path& path) {
  auto text = host.read_file(path.relative_path());
  if (text) return std::optional(std::move(*text));
  if (text.error().code == std::errc::no_such_file_or_directory) return std::optional<std::string>();
  return fail(std::move(text).error());
}

Result<> check_is_no_link(const HostFs& host, const std::filesystem::path& path) {
  const auto target = host.link_target(path.relative_path());
  if (!target) return {};
  return fail(Errc::refused,
              path.string() + " is a link to " + *target + ", and whoever made it writes that file",
              "name the file itself: `runtime: {config: ...}` in the class file");
}

Result<> make(HostFs& host, const FileChange& change) {
  const auto now = content_of(host, change.path);
  if (!now) return fail(Error(now.error()));
  if (*now == change.after) return {};
  if (auto r = check_is_no_link(host, change.path); !r) return r;
  if (*now != change.before) {
    return fail(Errc::refused, change.path.string() + " has been changed by somebody else meanwhile",
                "try again: what to write is planned anew");
  }
  if (change.after) return host.write_file(change.path.relative_path(), *change.after);
  return host.remove_file(change.path.relative_path());
}

FileChange undone(const FileChange& change) {
  return {.path = change.path, .before = change.after, .after = change.before};
}

}  // namespace ferry::kata
