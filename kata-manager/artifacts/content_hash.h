// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace ferry::kata {

/// SHA-256 of a stream, by OpenSSL. The constructor throws if OpenSSL is missing. hash_of()
/// returns that as an error; ferry-fetch is linked with it.
class ContentHash {
 public:
  ContentHash();
  void add(std::string_view bytes);
  /// Lower-case hexadecimal digits. add() must not follow.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// How far a comparison of files is.
struct CheckProgress {
  std::uint64_t done = 0;   ///< bytes that are read
  std::uint64_t total = 0;  ///< bytes of all files
};

/// The hash of a whole open file; the file's offset stays. `on_progress`: the bytes read since the last call.
/// Errors: read errors; Errc::unsupported: OpenSSL is missing.
Result<std::string> hash_of(int fd, const std::string& path,
                            const std::function<void(std::size_t)>& on_progress = {});

/// Compares an artifact's files with its record. Returns a sentence for each difference, sorted by path: a
/// missing file, another size, another link target, or other content of the same size. Every byte is read,
/// and `on_progress` is called meanwhile. A folder that `file://` names has no hashes to compare. Errors:
/// read errors.
Result<std::vector<std::string>> changes_since_fetch(
    const HostFs& host, const Artifact& artifact,
    const std::function<void(const CheckProgress&)>& on_progress = {});

}  // namespace ferry::kata
