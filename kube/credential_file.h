// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"
#include "kube/cluster_access.h"

namespace ferry::kube {

/// The present content of a credential. The kubelet replaces a pod's token, and other programs their
/// certificates: the file is looked at each time, and read if it was replaced or written to. A text beside
/// the file counts while the file cannot be read.
class CredentialReader {
 public:
  explicit CredentialReader(Credential credential) : credential_(std::move(credential)) {}

  /// Empty: no credential. Valid until the next call. Errc::failed: the file is missing, no regular file,
  /// unreadable, or larger than 1 MiB.
  Result<const std::string*> now();

 private:
  Result<const std::string*> from_file();

  /// Device, inode, size, and the seconds and nanoseconds of the last write and of the last change.
  using Version = std::array<std::int64_t, 7>;

  Credential credential_;
  std::optional<Version> read_;  ///< the file's version when `text_` was read
  std::string text_;
};

/// The token in a file's text: one word that can stand in a header. Errc::failed: there is none.
Result<std::string> token_of(const std::string& text);

}  // namespace ferry::kube
