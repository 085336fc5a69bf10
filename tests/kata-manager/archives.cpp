// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/archives.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <memory>
#include <stdexcept>
#include <string_view>

namespace ferry::test {
namespace {

struct FreeWriter {
  void operator()(archive* writer) const { ::archive_write_free(writer); }
};
struct FreeEntry {
  void operator()(archive_entry* entry) const { ::archive_entry_free(entry); }
};

la_ssize_t take(archive* /*writer*/, void* into, const void* bytes, std::size_t size) {
  static_cast<std::string*>(into)->append(static_cast<const char*>(bytes), size);
  return static_cast<la_ssize_t>(size);
}

void write(archive* writer, const TarEntry& from) {
  const std::unique_ptr<archive_entry, FreeEntry> entry(::archive_entry_new());
  const auto size = from.zeros != 0 ? from.zeros : from.content.size();
  ::archive_entry_set_pathname(entry.get(), from.path.c_str());
  ::archive_entry_set_perm(entry.get(), from.mode);
  ::archive_entry_set_filetype(entry.get(), from.folder             ? AE_IFDIR
                                            : from.device           ? AE_IFCHR
                                            : !from.symlink.empty() ? AE_IFLNK
                                                                    : AE_IFREG);
  if (from.device) ::archive_entry_set_rdev(entry.get(), 0x103);
  if (!from.symlink.empty()) ::archive_entry_set_symlink(entry.get(), from.symlink.c_str());
  if (!from.hardlink.empty()) ::archive_entry_set_hardlink(entry.get(), from.hardlink.c_str());
  const bool plain = !from.folder && !from.device && from.symlink.empty() && from.hardlink.empty();
  ::archive_entry_set_size(entry.get(), plain ? static_cast<la_int64_t>(size) : 0);
  if (::archive_write_header(writer, entry.get()) != ARCHIVE_OK)
    throw std::runtime_error(::archive_error_string(writer));
  if (!plain) return;
  const std::string zeros(from.zeros == 0 ? 0 : 1UL << 20, '\0');
  for (std::uint64_t left = from.zeros; left > 0;) {
    const auto now = std::min<std::uint64_t>(left, zeros.size());
    (void)::archive_write_data(writer, zeros.data(), now);
    left -= now;
  }
  if (!from.content.empty()) (void)::archive_write_data(writer, from.content.data(), from.content.size());
}

}  // namespace

std::string tar_of(const std::vector<TarEntry>& entries, Packed packed) {
  std::string out;
  const std::unique_ptr<archive, FreeWriter> writer(::archive_write_new());
  ::archive_write_set_format_pax_restricted(writer.get());
  switch (packed) {
    case Packed::plain:
      break;
    case Packed::gzip:
      ::archive_write_add_filter_gzip(writer.get());
      break;
    case Packed::xz:
      ::archive_write_add_filter_xz(writer.get());
      break;
    case Packed::zstd:
      ::archive_write_add_filter_zstd(writer.get());
      break;
  }
  ::archive_write_set_bytes_in_last_block(writer.get(), 1);  // else a packed one is padded with zeros
  if (::archive_write_open(writer.get(), &out, nullptr, take, nullptr) != ARCHIVE_OK)
    throw std::runtime_error(::archive_error_string(writer.get()));
  for (const TarEntry& entry : entries) write(writer.get(), entry);
  if (::archive_write_close(writer.get()) != ARCHIVE_OK)
    throw std::runtime_error(::archive_error_string(writer.get()));
  return out;
}

}  // namespace ferry::test
