// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/unpack.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <new>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/file_status.h"
#include "kata-manager/artifacts/inner_path.h"

namespace ferry::kata {
namespace {

std::string text_of(const InnerParts& path) {
  return fmt::format("{}", fmt::join(path, "/"));
}

Error refusal(const InnerParts& path, std::string_view why, Errc code = Errc::refused) {
  return {.code = make_error_code(code), .message = fmt::format("'{}' {}", text_of(path), why), .hint = {}};
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
  const auto status = entry_status(from->get(), of.back());
  if (!status || !S_ISREG(status->st_mode))
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

namespace {

Error unreadable(archive* reader) {
  const char* const why = ::archive_error_string(reader);
  return {.code = make_error_code(Errc::malformed_host),
          .message = fmt::format("archive: {}", why == nullptr ? "it cannot be read" : why),
          .hint = {}};
}

// In a locale without UTF-8, libarchive's plain getter returns null for UTF-8 names.
std::string either(const char* plain, const char* utf8) {
  if (plain != nullptr) return plain;
  return utf8 != nullptr ? utf8 : "";
}

Result<> write_all(int fd, const char* bytes, std::size_t size, std::int64_t at) {
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, bytes, size, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "write"));
    bytes += n;
    size -= static_cast<std::size_t>(n);
    at += n;
  }
  return {};
}

struct Unpacker {
  archive* reader;
  SafeTree& into;
  const UnpackOptions& options;
  std::uint64_t headers = 0;

  Result<> entry(archive_entry* entry) {
    // Limits the entries, even those that make nothing (a folder again and again), and the bytes between
    // them.
    constexpr std::uint64_t kPerEntry = 64ULL << 10;  // long names, attributes and padding
    const ArtifactLimits& limits = into.limits();
    if (++headers > limits.files)
      return fail(Errc::refused, fmt::format("archive: it has more than {} entries", limits.files));
    const auto read =
        static_cast<std::uint64_t>(std::max<std::int64_t>(::archive_filter_bytes(reader, 0), 0));
    if (read > limits.bytes && read - limits.bytes > headers * kPerEntry)
      return fail(Errc::refused, fmt::format("archive: it is more than {} bytes", limits.bytes));

    auto path = inner_path(either(::archive_entry_pathname(entry), ::archive_entry_pathname_utf8(entry)));
    if (!path) return fail(std::move(path).error().during("archive"));
    const auto [rest, missing] = std::ranges::mismatch(*path, options.below);
    if (missing != options.below.end()) {
      // Folders above `below` are skipped.
      if (::archive_entry_filetype(entry) == AE_IFDIR && rest == path->end()) return {};
      return fail(refusal(*path, fmt::format("is not below '{}'", text_of(options.below))).during("archive"));
    }
    if (!path->empty() && path->back().starts_with(".wh."))
      return fail(refusal(*path, "removes a file of another layer", Errc::unsupported).during("archive"));
    if (const auto other = either(::archive_entry_hardlink(entry), ::archive_entry_hardlink_utf8(entry));
        !other.empty()) {
      auto of = inner_path(other);
      if (!of) return fail(std::move(of).error().during("archive"));
      return into.another_name(*path, *of);
    }
    switch (::archive_entry_filetype(entry)) {
      case AE_IFDIR:
        return into.folder(*path);
      case AE_IFLNK:
        return into.link(*path, either(::archive_entry_symlink(entry), ::archive_entry_symlink_utf8(entry)));
      case AE_IFREG:
        return file(*path, entry);
      default:
        return fail(refusal(*path, "is no file, folder or link").during("archive"));
    }
  }

  Result<> file(const InnerParts& path, archive_entry* entry) {
    const auto said = static_cast<unsigned>(::archive_entry_perm(entry));
    constexpr unsigned kSpecial = S_ISUID | S_ISGID;
    if ((said & kSpecial) != 0 && !options.allow_setuid)
      return fail(
          refusal(path, "would run as its owner or group (set-user-ID, set-group-ID)").during("archive"));
    // The whole size counts before the first byte, so that a file that is too large is not begun.
    const auto size = ::archive_entry_size_is_set(entry) != 0 ? ::archive_entry_size(entry) : 0;
    if (auto counted = into.count_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 0)));
        !counted)
      return fail(std::move(counted).error().during("archive"));
    constexpr unsigned kReadable = S_IRUSR;
    constexpr unsigned kOwnersOnly = S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH;
    const auto fd = into.file(path, (said & (kOwnersOnly | kSpecial)) | kReadable);
    if (!fd) return fail(fd.error());
    auto end = content(fd->get(), size);
    if (!end) return fail(std::move(end).error().during(text_of(path)));
    // A hole at the end has no block.
    if (*end < size && ::ftruncate(fd->get(), size) != 0) return fail(error_from_errno(errno, "lengthen"));
    return {};
  }

  // Returns the end of the last block.
  Result<std::int64_t> content(int fd, std::int64_t counted) {
    std::int64_t end = 0;
    for (;;) {
      const void* block = nullptr;
      std::size_t size = 0;
      std::int64_t at = 0;
      const int got = ::archive_read_data_block(reader, &block, &size, &at);
      if (got == ARCHIVE_EOF) return end;
      if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return fail(unreadable(reader));
      const std::int64_t block_end = at + static_cast<std::int64_t>(size);
      if (at < 0 || block_end > counted)
        return fail(Errc::malformed_host, "archive: there is more of it than its header says");
      if (auto written = write_all(fd, static_cast<const char*>(block), size, at); !written)
        return fail(std::move(written).error());
      end = std::max(end, block_end);
    }
  }
};

}  // namespace

Result<> unpack(int archive_fd, SafeTree& into, const UnpackOptions& options) {
  constexpr std::size_t kAtOnce = 128UL * 1024;
  const std::unique_ptr<archive, int (*)(archive*)> reader(::archive_read_new(), ::archive_read_free);
  if (reader == nullptr) throw std::bad_alloc();
  // Only the needed formats are enabled, to keep the attack surface small.
  ::archive_read_support_filter_gzip(reader.get());
  ::archive_read_support_filter_xz(reader.get());
  ::archive_read_support_filter_zstd(reader.get());
  ::archive_read_support_format_tar(reader.get());
  if (::lseek(archive_fd, 0, SEEK_SET) != 0) return fail(error_from_errno(errno, "archive"));
  if (::archive_read_open_fd(reader.get(), archive_fd, kAtOnce) != ARCHIVE_OK)
    return fail(unreadable(reader.get()));
  Unpacker unpacker{.reader = reader.get(), .into = into, .options = options};
  for (;;) {
    archive_entry* entry = nullptr;
    const int got = ::archive_read_next_header(reader.get(), &entry);
    if (got == ARCHIVE_EOF) return {};
    // A warning is about metadata that is dropped (owners, names in another encoding).
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return fail(unreadable(reader.get()));
    if (auto done = unpacker.entry(entry); !done) return done;
  }
}

}  // namespace ferry::kata
