// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "tests/kata-manager/registry_store.h"
#include "tests/support/loopback.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// Debian's docker-registry on the loopback, that of FERRY_DOCKER_REGISTRY (scripts/lib/docker-registry).
class DockerRegistry final : public RegistryStore {
 public:
  struct Terms {
    bool tls = false;       ///< by cert.pem and key.pem of its folder
    std::string more = {};  ///< of its configuration: `auth`, `middleware`
    std::string username = {};
    std::string password = {};  ///< of who pushes
  };

  /// The program; empty: none is named.
  static std::string program();

  DockerRegistry() = default;
  DockerRegistry(const DockerRegistry&) = delete;
  DockerRegistry& operator=(const DockerRegistry&) = delete;
  DockerRegistry(DockerRegistry&&) = delete;
  DockerRegistry& operator=(DockerRegistry&&) = delete;
  ~DockerRegistry() override { stop(); }

  /// Starts it, or anew, with what it keeps; throws where it does not answer.
  void serve(Terms terms);

  const ScratchDirectory& folder() const { return folder_; }
  std::uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return (terms_.tls ? "https://" : "http://") + address(); }
  /// Where it keeps a blob, in its folder, and below the root of what serves its storage elsewhere.
  static std::filesystem::path blob_path(const std::string& digest);

  void keep_blob(const std::string& bytes) override;
  void keep_manifest(const std::string& tag, const std::string& type, const std::string& text) override;
  void damage_blob(const std::string& digest, const std::string& bytes) override;

 private:
  void stop();
  HttpAnswer ask(const ReceivedRequest& question, const std::string& url) const;
  HttpAnswer push(const ReceivedRequest& question, const std::string& url, int desired) const;

  ScratchDirectory folder_;
  std::uint16_t port_ = free_port();
  Terms terms_;
  int pid_ = -1;
};

}  // namespace ferry::test
