// SPDX-License-Identifier: Apache-2.0
// Address and credentials of a cluster as plain values, from a pod or from a kubeconfig.
//
// Ferry's services refuse an entry to run a program, to skip the check of the server or to act as another
// user. A person's ways in are kubectl's, which kubectl-ferry runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/config/config_tree.h"
#include "common/process/this_process.h"
#include "common/result.h"

namespace ferry::kube {

/// The address of an API server.
struct ServerAddress {
  bool tls = true;
  std::string host;  ///< in lower case; IPv6 without brackets
  std::uint16_t port = 443;
  std::string path;  ///< prefix of the API's paths: "/k8s/clusters/c-1"; no slash at its end
  bool operator==(const ServerAddress&) const = default;

  /// Parses "https://HOST[:PORT][/PATH]". Errc::usage: the error names the wrong part.
  static Result<ServerAddress> parse(std::string_view url);
  /// True: this machine itself, by "localhost" or a loopback address.
  bool is_loopback() const;
  std::string authority() const;  ///< "10.96.0.1:443", "[fd00::1]:443"
  std::string text() const;       ///< in parse()'s form
};

/// True: a word can be a host, by name or IP address (IPv6 without brackets, without a zone).
bool is_host(std::string_view text);

/// A proxy in libcurl's form. Errc::usage: no URL of http, https or socks5. The error never has the URL,
/// which may have a password in it.
Result<std::string> proxy_url(std::string_view text);

/// The proxy for a server by HTTPS_PROXY and NO_PROXY, as the rest of Kubernetes reads them; empty: none.
/// This machine itself has none. Errors: as in proxy_url(), with the variable's name.
///
/// ABI: golang.org/x/net/http/httpproxy, Config.
Result<std::string> proxy_of_environment(const ServerAddress& server, const Environment& environment);

/// A secret or a certificate, given in place, or by a file whose content may change.
struct Credential {
  std::string text = {};            ///< counts where `file` is empty or cannot be read
  std::filesystem::path file = {};  ///< empty: none
  bool empty() const { return text.empty() && file.empty(); }
  bool operator==(const Credential&) const = default;
};

struct ClusterAccess {
  ServerAddress server;
  std::string tls_server_name = {};  ///< name in the server's certificate; empty: its host
  std::string proxy = {};            ///< in libcurl's form; empty: none
  Credential authorities = {};       ///< PEM: signers of the server's certificate; empty: the system's
  Credential certificate = {};       ///< PEM: the client's; with `key`
  Credential key = {};
  Credential token = {};      ///< bearer token
  std::string username = {};  ///< for Basic, with `password`
  std::string password = {};
  std::string default_namespace = {};  ///< the pod's or the context's; empty: not given
  bool compressed = true;              ///< answers may be compressed
};

/// Directory of a pod's own token, authority and namespace.
constexpr const char* kServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The access that a pod is given. Errc::invalid_config: KUBERNETES_SERVICE_HOST or _PORT is invalid, or a
/// file cannot be read.
/// ABI: "Accessing the Kubernetes API from a Pod"; the kubelet replaces the token before it expires.
Result<ClusterAccess> access_from_pod(const Environment& environment,
                                      const std::filesystem::path& service_account = kServiceAccount);

/// The access of one context of a kubeconfig. `context` empty: its current one. Paths are relative to the
/// file. Entries that the context does not use may be for other programs, so only their names are read. In
/// the others an unknown key is refused, and one that would run a program, skip the check of the server or
/// act as another user. Errc::invalid_config, "file:line: key: reason", never with a secret. ABI:
/// k8s.io/client-go/tools/clientcmd/api/v1, Config.
Result<ClusterAccess> access_from_kubeconfig(const ConfigText& source, const std::string& context,
                                             const Environment& environment);

struct AccessChoice {
  std::filesystem::path kubeconfig = {};  ///< the only file to read; empty: see cluster_access()
  std::string context = {};               ///< empty: the file's own
};

/// Reads the chosen file, else the existing file of KUBECONFIG, else the pod's own access if
/// KUBERNETES_SERVICE_HOST is set and no context is chosen, else HOME/.kube/config. Errors: those of the
/// functions above; Errc::invalid_config: KUBECONFIG names several files that exist; Errc::usage: there is
/// none of them.
Result<ClusterAccess> cluster_access(const AccessChoice& choice, const Environment& environment,
                                     const std::filesystem::path& service_account = kServiceAccount);

}  // namespace ferry::kube
