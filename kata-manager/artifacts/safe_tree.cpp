// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/safe_tree.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/artifacts/inner_path.h"

namespace ferry::kata {
namespace {

std::string text_of(const InnerParts& path) {
  return fmt::format("{}", fmt::join(path, "/"));
}

Error refusal(const InnerParts& path, std::string_view why) {
  return {.code = make_error_code(Errc::refused),
          .message = fmt::format("'{}' {}", text_of(path), why),
          .hint = {}};
}

}  // namespace

// Opens each folder by its own name, so that no link on the way is followed.
Result<UniqueFd> SafeTree::open_folder(const InnerParts& path, std::size_t depth, bool make) {
  UniqueFd at(::openat(top_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t i = 0; at.valid() && i < depth; ++i) {
    const char* const name = path[i].c_str();
    if (make && ::mkdirat(at.get(), name, 0775) == 0) {
      if (auto counted = count_entry(); !counted) return fail(std::move(counted).error());
    }
    UniqueFd next(::openat(at.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid() && (errno == ELOOP || errno == ENOTDIR))
      return fail(refusal(path, fmt::format("would be written through '{}', which is no folder", name)));
    at = std::move(next);
  }
  if (!at.valid()) return fail(error_from_errno(errno, "open folder of " + text_of(path)));
  return at;
}

Result<> SafeTree::count_entry() {
  if (++entries_ <= limits_.files) return {};
  return fail(Errc::refused, fmt::format("it has more than {} files and folders, the limit", limits_.files));
}

Result<> SafeTree::count_bytes(std::uint64_t bytes) {
  if (bytes > limits_.bytes - bytes_)
    return fail(Errc::refused, fmt::format("it becomes more than {} bytes, the limit", limits_.bytes));
  bytes_ += bytes;
  return {};
}

Result<UniqueFd> SafeTree::parent_for_new(const InnerParts& path) {
  if (path.empty()) return fail(refusal(path, "names the whole folder"));
  if (auto counted = count_entry(); !counted) return fail(std::move(counted).error());
  auto parent = open_folder(path, path.size() - 1, true);
  if (!parent) return parent;
  if (::unlinkat(parent->get(), path.back().c_str(), 0) != 0 && errno != ENOENT) {
    if (errno == EISDIR || errno == EPERM) return fail(refusal(path, "is a folder already"));
    return fail(error_from_errno(errno, "replace " + text_of(path)));
  }
  return parent;
}

Result<> SafeTree::folder(const InnerParts& path) {
  const auto made = open_folder(path, path.size(), true);
  if (!made) return fail(made.error());
  return {};
}

Result<UniqueFd> SafeTree::file(const InnerParts& path, mode_t mode) {
  const auto parent = parent_for_new(path);
  if (!parent) return fail(parent.error());
  UniqueFd fd(::openat(parent->get(), path.back().c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  // fchmod() ignores the umask.
  if (!fd.valid() || ::fchmod(fd.get(), mode) != 0)
    return fail(error_from_errno(errno, "make " + text_of(path)));
  return fd;
}

Result<> SafeTree::link(const InnerParts& path, const std::string& target) {
  if (path.empty() || !link_stays_inside({path.begin(), path.end() - 1}, target))
    return fail(refusal(path, "is a link that leads out of its folder"));
  const auto parent = parent_for_new(path);
  if (!parent) return fail(parent.error());
  if (::symlinkat(target.c_str(), parent->get(), path.back().c_str()) != 0)
    return fail(error_from_errno(errno, "make link " + text_of(path)));
  return {};
}

Result<> SafeTree::another_name(const InnerParts& path, const InnerParts& of) {
  if (of.empty() || path == of) return fail(refusal(path, "is a link to itself or to its folder"));
  const auto from = open_folder(of, of.size() - 1, false);
  if (!from) return fail(from.error());
  struct stat status {};
  if (::fstatat(from->get(), of.back().c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(status.st_mode))
    return fail(refusal(path, fmt::format("is another name of '{}', which is no file", text_of(of))));
  return adopt(path, from->get(), of.back(), 0);
}

Result<> SafeTree::adopt(const InnerParts& path, int from_folder, const std::string& from_name,
                         std::uint64_t size) {
  if (auto counted = count_bytes(size); !counted) return counted;
  const auto parent = parent_for_new(path);
  if (!parent) return fail(parent.error());
  if (::linkat(from_folder, from_name.c_str(), parent->get(), path.back().c_str(), 0) != 0)
    return fail(error_from_errno(errno, "make " + text_of(path)));
  return {};
}

}  // namespace ferry::kata
