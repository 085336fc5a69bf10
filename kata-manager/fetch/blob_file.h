// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/digest.h"

namespace ferry::kata {

/// A file for a blob of known size and digest, which may hold a first part already. That part is read once,
/// on opening; later bytes are hashed as they are written.
class BlobFile {
 public:
  /// `file`: open for reading and writing; if longer than `size`, it is emptied. `path`: for messages.
  static Result<BlobFile> resume(UniqueFd file, Digest digest, std::uint64_t size, std::string path);

  std::uint64_t have() const { return have_; }
  std::uint64_t size() const { return size_; }
  const Digest& digest() const { return digest_; }
  /// True if parts come from an earlier try or from several answers.
  bool is_patched() const { return patched_; }
  /// True if the content has the digest. Call it last: add() must not follow.
  bool holds() { return hash_.hex() == digest_.hex; }
  int fd() const { return file_.get(); }

  /// Errc::malformed_host: more bytes than the blob's size.
  Result<> add(std::string_view bytes);
  /// The next bytes come from another answer.
  void next_answer() { patched_ = have_ > 0; }
  /// Empties the file.
  Result<> restart();
  /// Call it when all bytes are there. Syncs the file to the disk. Errc::failed: another digest; the file
  /// is emptied.
  Result<> finish();

 private:
  BlobFile(UniqueFd file, Digest digest, std::uint64_t size, std::string path);

  UniqueFd file_;
  Digest digest_;
  std::uint64_t size_ = 0;
  std::uint64_t have_ = 0;
  bool patched_ = false;
  std::string path_;
  ContentHash hash_;
};

}  // namespace ferry::kata
