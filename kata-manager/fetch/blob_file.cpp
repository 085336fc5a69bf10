// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/blob_file.h"

#include <cerrno>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

namespace ferry::kata {

BlobFile::BlobFile(UniqueFd file, Digest digest, std::uint64_t size, std::string path)
    : file_(std::move(file)),
      digest_(std::move(digest)),
      size_(size),
      path_(std::move(path)),
      hash_(digest_.algorithm) {}

Result<BlobFile> BlobFile::resume(UniqueFd file, Digest digest, std::uint64_t size, std::string path) {
  constexpr std::size_t kAtOnce = 256UL * 1024;
  BlobFile blob(std::move(file), std::move(digest), size, std::move(path));
  std::vector<char> buffer(kAtOnce);
  for (;;) {
    const ssize_t n = ::pread(blob.fd(), buffer.data(), buffer.size(), static_cast<off_t>(blob.have_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "read " + blob.path_));
    if (n == 0) break;
    blob.have_ += static_cast<std::uint64_t>(n);
    if (blob.have_ > size) {  // not this blob: start over
      if (auto restarted = blob.restart(); !restarted) return fail(std::move(restarted).error());
      return blob;
    }
    blob.hash_.add({buffer.data(), static_cast<std::size_t>(n)});
  }
  blob.patched_ = blob.have_ > 0;
  return blob;
}

Result<> BlobFile::add(std::string_view bytes) {
  if (bytes.size() > size_ - have_)
    return fail(Errc::malformed_host,
                fmt::format("blob {}: there is more of it than its {} bytes", digest_.text(), size_));
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(have_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "write " + path_));
    const auto written = static_cast<std::size_t>(n);
    hash_.add(bytes.substr(0, written));
    have_ += written;
    bytes.remove_prefix(written);
  }
  return {};
}

Result<> BlobFile::restart() {
  if (::ftruncate(file_.get(), 0) != 0) return fail(error_from_errno(errno, "empty " + path_));
  have_ = 0;
  patched_ = false;
  hash_ = ContentHash(digest_.algorithm);
  return {};
}

Result<> BlobFile::finish() {
  const std::string hex = hash_.hex();
  if (hex != digest_.hex) {
    if (auto restarted = restart(); !restarted) return restarted;
    return fail(Errc::failed, fmt::format("blob {}: what came has the digest {}:{}", digest_.text(),
                                          digest_.algorithm, hex));
  }
  if (::fsync(file_.get()) != 0) return fail(error_from_errno(errno, "write " + path_));
  return {};
}

}  // namespace ferry::kata
