// SPDX-License-Identifier: Apache-2.0
// Credentials for registries, as Kubernetes Secrets carry them.
// ABI: kubernetes.io/dockerconfigjson (`auths` and in it a map) and kubernetes.io/dockercfg (the map alone);
// which of its keys counts for an image is the kubelet's rule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/image_reference.h"

namespace ferry {

struct RegistryCredentials {
  std::string username = {};
  std::string password = {};
  std::string identity_token = {};  ///< an OAuth2 refresh token; counts before a password
  std::string registry_token = {};  ///< a bearer token that is ready
  bool empty() const {
    return username.empty() && password.empty() && identity_token.empty() && registry_token.empty();
  }
  bool operator==(const RegistryCredentials&) const = default;
};

class DockerConfig {
 public:
  /// An empty text has no credentials. Errc::invalid_config: the key and what is wrong with it, never a
  /// secret.
  static Result<DockerConfig> parse(std::string_view text);

  /// Those of the longest key that fits: "HOST", "HOST:PORT", "HOST/PATH", with or without a scheme, "/v1/"
  /// and
  /// "/v2/"; '*' stands for letters within one label of a host. Empty ones if none fits.
  RegistryCredentials credentials(std::string_view registry, std::string_view repository) const;

  /// Some are said to be with a helper program (credsStore, credHelpers), which is not asked.
  bool names_helpers() const { return names_helpers_; }

 private:
  struct Entry {
    std::string host;
    std::string path;
    std::string key;
    RegistryCredentials credentials;
  };
  std::vector<Entry> entries_;  // the longest first
  bool names_helpers_ = false;
};

}  // namespace ferry
