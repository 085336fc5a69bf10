// SPDX-License-Identifier: Apache-2.0
// Address and credentials of a cluster as plain values, from a pod or from a kubeconfig.
//
// A service of Ferry refuses an entry to run a program, to skip the check of the server or to act as another
// user. A program that a person starts takes them, as kubectl does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// A secret that a program has printed, or the reason why there is none.
struct LiveCredential {
  std::string text = {};
  std::optional<Error> error = {};
};

/// A secret or a certificate, given in place, by a file whose content may change, or by a program.
struct Credential {
  std::string text = {};            ///< counts where `file` is empty or cannot be read
  std::filesystem::path file = {};  ///< empty: none
  /// Counts before both. Its owner changes it when the program has run again.
  std::shared_ptr<const LiveCredential> live = {};
  bool empty() const { return text.empty() && file.empty() && live == nullptr; }
  bool operator==(const Credential&) const = default;
};

/// A credential plugin: a program that logs in, `exec` of a kubeconfig's user.
/// ABI: k8s.io/client-go/tools/clientcmd/api/v1, ExecConfig.
struct ExecConfig {
  enum class InteractiveMode { never, if_available, always };
  std::string place = {};              ///< for errors: "/root/.kube/config:11: users[0].user.exec"
  std::string api_version = {};        ///< "client.authentication.k8s.io/v1" or "…/v1beta1"
  std::string command = {};            ///< a name in PATH, or a path, as written
  std::filesystem::path program = {};  ///< the path, found from the kubeconfig's folder; empty: in PATH
  std::vector<std::string> arguments = {};
  Environment variables = {};     ///< in addition to ours
  std::string install_hint = {};  ///< help for a person who lacks the program; empty: none
  InteractiveMode interactive = InteractiveMode::if_available;
  /// JSON of spec.cluster, without the authorities; empty: the program gets no such thing.
  std::string cluster = {};
};

struct ClusterAccess {
  ServerAddress server;
  std::string tls_server_name = {};  ///< name in the server's certificate; empty: its host
  std::string proxy = {};            ///< in libcurl's form; empty: none
  Credential authorities = {};       ///< PEM: signers of the server's certificate; empty: the system's
  Credential certificate = {};       ///< PEM: the client's; with `key`
  Credential key = {};
  Credential token = {};      ///< bearer token; a program may give none
  std::string username = {};  ///< for Basic, with `password`
  std::string password = {};
  std::string default_namespace = {};           ///< the pod's or the context's; empty: not given
  bool compressed = true;                       ///< answers may be compressed
  bool insecure = false;                        ///< the server's certificate is not verified
  std::vector<std::string> impersonation = {};  ///< headers, "Impersonate-User: NAME"; empty: none
  std::optional<ExecConfig> exec = {};          ///< gives the credentials, of which there are none then
  std::string said_by = {};  ///< source of these values, for people: "context 'lab' of /root/.kube/config"
};

/// Directory of a pod's own token, authority and namespace.
constexpr const char* kServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The access that a pod is given. Errc::invalid_config: KUBERNETES_SERVICE_HOST or _PORT is invalid, or a
/// file cannot be read.
/// ABI: "Accessing the Kubernetes API from a Pod"; the kubelet replaces the token before it expires.
Result<ClusterAccess> access_from_pod(const Environment& environment,
                                      const std::filesystem::path& service_account = kServiceAccount);

/// The program that reads a kubeconfig.
enum class AccessFor {
  service,  ///< runs by itself: runs no program, verifies the server, acts as its own user
  person,   ///< a person has started it: takes all that kubectl takes
};

/// The access of one context of these files (`sources`, one at least); the first file that has a thing
/// counts, as with several files in KUBECONFIG. `context` empty: the files' current one. Paths are relative
/// to their file. Entries that the context does not use may be for other programs, so only their names are
/// read. In the others an unknown key is refused; for a person only if it looks like a known one.
/// Errc::invalid_config, "file:line: key: reason", never with a secret. Runs no program itself.
/// ABI: k8s.io/client-go/tools/clientcmd/api/v1, Config.
Result<ClusterAccess> access_from_kubeconfig(const std::vector<ConfigText>& sources,
                                             const std::string& context, const Environment& environment,
                                             AccessFor reader = AccessFor::service);

struct AccessChoice {
  std::filesystem::path kubeconfig = {};  ///< the only file to read; empty: see cluster_access()
  std::string context = {};               ///< empty: the files' own
  AccessFor reader = AccessFor::service;
};

/// Reads the chosen file, else the existing files of KUBECONFIG, else the pod's own access if
/// KUBERNETES_SERVICE_HOST is set and no context is chosen, else HOME/.kube/config. Errors: those of the
/// functions above; Errc::usage: there is none of them.
Result<ClusterAccess> cluster_access(const AccessChoice& choice, const Environment& environment,
                                     const std::filesystem::path& service_account = kServiceAccount);

}  // namespace ferry::kube
