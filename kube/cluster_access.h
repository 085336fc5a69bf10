// SPDX-License-Identifier: Apache-2.0
// How a cluster is reached and who we are there, as plain values: those of a pod, or those of a kubeconfig.
//
// TLS is always verified. What would run a program, go round the verification or act as another user is
// refused.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/config_tree.h"
#include "common/result.h"
#include "kube/server_address.h"

namespace ferry {

/// A secret or a certificate, given in place or by the file that holds it and may get another content.
struct Credential {
  std::string text = {};
  std::filesystem::path file = {};  ///< counts where `text` is empty
  bool empty() const { return text.empty() && file.empty(); }
  bool operator==(const Credential&) const = default;
};

struct ClusterAccess {
  ServerAddress server;
  std::string tls_server_name = {};  ///< whose certificate the server has; empty: its host's
  std::string proxy = {};            ///< as libcurl takes it; empty: none
  Credential authorities = {};       ///< PEM: who may sign the server's certificate; empty: the system's
  Credential certificate = {};       ///< PEM: ours; with `key`
  Credential key = {};
  Credential token = {};      ///< bearer token
  std::string username = {};  ///< with `password`: Basic
  std::string password = {};
  std::string default_namespace = {};  ///< of the pod or the context; empty: not said
  bool compressed = true;              ///< answers may be
  std::string said_by = {};  ///< who says all this, for people: "context 'lab' of /root/.kube/config"
};

/// Where a pod's own token, authority and namespace lie.
constexpr const char* kServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What a pod has been given. Errc::invalid_config: KUBERNETES_SERVICE_HOST or _PORT cannot be, or the files
/// cannot be read.
/// ABI: "Accessing the Kubernetes API from a Pod"; the token is replaced by the kubelet before it ends.
Result<ClusterAccess> access_from_pod(const Environment& environment,
                                      const std::filesystem::path& service_account = kServiceAccount);

/// What one context of these files (`sources`, one at least) means; the first of them that has a thing
/// counts, as with several files in KUBECONFIG. `context` empty: the one that they name. Paths in a file are
/// relative to it. Of entries that the context does not lead to only the names are looked at, since they may
/// be for other programs; in the others a key that nobody knows is refused. Errc::invalid_config, "file:line:
/// key: what", never with a secret. ABI: k8s.io/client-go/tools/clientcmd/api/v1, Config.
Result<ClusterAccess> access_from_kubeconfig(const std::vector<ConfigText>& sources,
                                             const std::string& context, const Environment& environment);

struct AccessChoice {
  std::filesystem::path kubeconfig = {};  ///< the one file to read; empty: see cluster_access()
  std::string context = {};               ///< empty: the files' own
};

/// The file that was chosen, else those of KUBECONFIG (which are not there do not count), else the pod's own
/// where KUBERNETES_SERVICE_HOST is set and no context was asked for, else HOME/.kube/config. Errors: those
/// of the above; Errc::usage where there is none of them.
Result<ClusterAccess> cluster_access(const AccessChoice& choice, const Environment& environment,
                                     const std::filesystem::path& service_account = kServiceAccount);

}  // namespace ferry
