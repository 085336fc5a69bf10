// SPDX-License-Identifier: Apache-2.0
// A client of a registry and its mirrors, for manifests and blobs. ABI: OCI distribution specification,
// "Pull"; distribution's token and OAuth2 authentication.
//
//  - Credentials go only to their registry and to the realm that it names. A redirect to another host
//    carries none, and that host's challenge is not answered.
//  - No https server can lead to plain http.
//  - 408, 429, 5xx and broken connections are retried, with growing pauses and Retry-After; a blob resumes.
//  - If a mirror fails or has another digest, the next server is asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/fetch/http.h"
#include "kata-manager/fetch/registry_session.h"

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

struct RegistrySetup {
  ImageReference reference;
  DockerConfig credentials;
  std::vector<RegistryEndpoints> registries = {};
  HttpSetup http = {};
  ArtifactLimits limits = {};
  std::function<void(std::chrono::milliseconds)> pause = {};  ///< absent: sleeps
};

class RegistryClient {
 public:
  /// Errc::usage: an endpoint cannot be parsed.
  static Result<RegistryClient> open(RegistrySetup setup);
  RegistryClient(RegistryClient&&) noexcept;
  RegistryClient& operator=(RegistryClient&&) noexcept;
  RegistryClient(const RegistryClient&) = delete;
  RegistryClient& operator=(const RegistryClient&) = delete;
  ~RegistryClient();

  struct Document {
    std::string bytes;
    std::string content_type;
    Digest digest;  ///< of the bytes; equals a requested digest
  };
  /// A manifest or an index, by tag or digest.
  Result<Document> manifest(const std::string& tag_or_digest);

  /// Downloads until the file is whole. `on_progress`: called as bytes arrive; false ends it with
  /// Errc::failed.
  Result<> blob(BlobFile& into, const std::function<bool()>& on_progress);

  /// The mirrors that failed, and why.
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  explicit RegistryClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ferry::kata
