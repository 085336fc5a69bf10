// SPDX-License-Identifier: Apache-2.0
// A registry's content: in memory here, and on the disk of the real program of docker_registry.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/http_standin.h"

namespace ferry::test {

struct ImageLayer {
  std::string content;
  std::string title = {};
  bool unpack = false;
  std::string media_type = "application/octet-stream";
  std::optional<std::uint64_t> said_size = {};  ///< in the manifest; absent: the true one
};

std::string sha256_of_text(std::string_view text);  ///< with "sha256:" in front

class RegistryStore {
 public:
  RegistryStore() = default;
  RegistryStore(const RegistryStore&) = delete;
  RegistryStore& operator=(const RegistryStore&) = delete;
  RegistryStore(RegistryStore&&) = delete;
  RegistryStore& operator=(RegistryStore&&) = delete;
  virtual ~RegistryStore() = default;

  /// They are there from now on, in the repository kata/gpu.
  virtual void keep_blob(const std::string& bytes) = 0;
  virtual void keep_manifest(const std::string& tag, const std::string& type, const std::string& text) = 0;
  /// Another content where that blob lies, as a disk that rots has it.
  virtual void damage_blob(const std::string& digest, const std::string& bytes) = 0;
};

/// Pushes an image as that tag; the digest of its manifest.
std::string push_image(RegistryStore& store, const std::vector<ImageLayer>& layers,
                       const std::string& tag = "1");

class MemoryStore final : public RegistryStore {
 public:
  void keep_blob(const std::string& bytes) override { blobs_[sha256_of_text(bytes)] = bytes; }
  void keep_manifest(const std::string& tag, const std::string& type, const std::string& text) override;
  void damage_blob(const std::string& digest, const std::string& bytes) override { blobs_[digest] = bytes; }
  HttpAnswer answer(const ReceivedRequest& seen);

 private:
  struct Manifest {
    std::string type;
    std::string text;
  };
  std::map<std::string, Manifest> manifests_;  // by tag and by digest
  std::map<std::string, std::string> blobs_;
};

}  // namespace ferry::test
