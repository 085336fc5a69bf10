// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>

#include "common/result.h"
#include "kube/cluster_access.h"

namespace ferry {

/// What a credential is now. The kubelet replaces a pod's token, and other programs their certificates, while
/// we run: the file is looked at each time, and read when it is another or has been written to.
class CredentialReader {
 public:
  explicit CredentialReader(Credential credential) : credential_(std::move(credential)) {}

  /// Empty for none. Valid until the next call. Errc::failed: the file is not there, no file, not to be read,
  /// or larger than 1 MiB.
  Result<const std::string*> now();

 private:
  struct Version {
    dev_t device;
    ino_t inode;
    off_t size;
    std::int64_t written;  ///< nanoseconds
    std::int64_t changed;
    bool operator==(const Version&) const = default;
  };

  Credential credential_;
  std::optional<Version> read_;  ///< what `text` was read from
  std::string text_;
};

/// The token in a file's text: one line of signs that can stand in a header. Errc::failed: there is none.
Result<std::string> token_of(const std::string& text);

}  // namespace ferry
