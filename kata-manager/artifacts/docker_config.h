// SPDX-License-Identifier: Apache-2.0
// Registry credentials in the format of Kubernetes Secrets. ABI: kubernetes.io/dockerconfigjson (`auths`,
// which has a map) and kubernetes.io/dockercfg (the map alone). The choice of a key for an image follows
// the kubelet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry::kata {

struct RegistryCredentials {
  std::string username = {};
  std::string password = {};
  std::string identity_token = {};  ///< an OAuth2 refresh token; preferred to a password
  std::string registry_token = {};  ///< a ready bearer token, which skopeo takes from no file
  bool empty() const {
    return username.empty() && password.empty() && identity_token.empty() && registry_token.empty();
  }
  bool operator==(const RegistryCredentials&) const = default;
};

class DockerConfig {
 public:
  /// An empty text has no credentials. Errc::invalid_config names the key and the fault, never a secret.
  static Result<DockerConfig> parse(std::string_view text);

  /// The credentials of the longest matching key: "HOST", "HOST:PORT" or "HOST/PATH", with or without a
  /// scheme, "/v1/" and "/v2/". A '*' stands for letters within one label of a host. Empty: no key matches.
  RegistryCredentials credentials(std::string_view registry, std::string_view repository) const;

  /// True: a helper program (credsStore, credHelpers) has more credentials. Ferry does not ask it.
  bool names_helpers() const { return names_helpers_; }

 private:
  struct Entry {
    std::string host;
    std::string path;
    std::string key;
    RegistryCredentials credentials;
  };
  std::vector<Entry> entries_;  // sorted by precedence
  bool names_helpers_ = false;
};

}  // namespace ferry::kata
