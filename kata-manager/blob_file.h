// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/content_hash.h"
#include "kata-manager/digest.h"

namespace ferry {

/// A file that becomes a blob of known size and digest, from what there is of it already. It is read once,
/// when it is opened; after that each byte is hashed as it is written.
class BlobFile {
 public:
  /// `file`: open for reading and writing. More than `size` bytes in it are thrown away. `path`: for
  /// messages.
  static Result<BlobFile> resume(UniqueFd file, Digest digest, std::uint64_t size, std::string path);

  std::uint64_t have() const { return have_; }
  std::uint64_t size() const { return size_; }
  const Digest& digest() const { return digest_; }
  /// Whether some of it was there before, or came from more than one answer.
  bool is_patched() const { return patched_; }
  /// Whether what is there has the digest. Asked last: nothing more may be added.
  bool holds() { return hash_.hex() == digest_.hex; }
  int fd() const { return file_.get(); }

  /// Errc::malformed_host: more than its size.
  Result<> add(std::string_view bytes);
  /// What comes now is another answer's.
  void next_answer() { patched_ = have_ > 0; }
  /// From zero again.
  Result<> restart();
  /// To be asked when all is there: Errc::failed if the digest is another, and then it is empty again. What
  /// was written is on the disk when it holds.
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

}  // namespace ferry
