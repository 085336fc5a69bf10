// SPDX-License-Identifier: Apache-2.0
// kubectl as a child process. It has the way to the cluster, the login and the user's flags; Ferry has none
// of its own.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "kube/api_path.h"

namespace ferry::kubectl {

/// A flag of kubectl that `kubectl ferry` takes and hands on.
struct HandedOn {
  const char* name;   ///< as CLI11 takes it: "-s,--server"
  const char* value;  ///< the word of its value in help; nullptr: it takes none
  const char* help;
};
// ABI: `kubectl options`.
inline constexpr std::array<HandedOn, 15> kHandedOn = {{
    {"--kubeconfig", "FILE", "the kubeconfig of kubectl"},
    {"--context", "NAME", "the context of that file; the default is its current context"},
    {"--cluster", "NAME", "the cluster of that file, instead of the context's"},
    {"--user", "NAME", "the user of that file, instead of the context's"},
    {"-s,--server", "URL", "the address of the API server"},
    {"--token", "TOKEN", "the bearer token for the API server"},
    {"--as", "USER", "act as this user"},
    {"--as-group", "GROUP ...", "act as a member of this group; may be repeated"},
    {"--as-uid", "UID", "act as the user of this UID"},
    {"--certificate-authority", "FILE", "the certificate of the authority of the API server"},
    {"--client-certificate", "FILE", "the certificate of the user"},
    {"--client-key", "FILE", "the key of that certificate"},
    {"--tls-server-name", "NAME", "the name in the certificate of the API server"},
    {"--insecure-skip-tls-verify", nullptr, "do not verify the certificate of the API server"},
    {"--request-timeout", "TIME", "the time for one request, such as 30s; the default is no limit"},
}};
/// "--server" for "-s,--server".
std::string_view long_name(const HandedOn& flag);

/// The words of `--kubectl`, else of `variable` (KUBECTL of the environment), else `kubectl`. Words have
/// blanks between them: "k3s kubectl".
std::vector<std::string> kubectl_words(const std::string& option, const std::string& variable);

struct Kubectl {
  std::vector<std::string> program = {"kubectl"};  ///< and its first arguments
  std::vector<std::string> flags = {};             ///< kHandedOn with their values, each "--name=value"
  /// Time for one child. A person may have to log in within it.
  std::chrono::milliseconds limit = std::chrono::minutes(10);
  /// Bytes of one answer. A list in smaller parts (kube/paged_list.h) may succeed after more.
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20U;

  // Each runs `kubectl get --raw PATH` and waits for its end. Errors: those of kube::ApiErrc for the API
  // server's refusals and for too large an answer; Errc::failed: kubectl cannot be started or has failed,
  // with its own words; Errc::unreachable: it has not ended in time; Errc::usage: a name that no object can
  // have.

  Result<nlohmann::json> list(const kube::Selection& selection, const kube::ListRange& range = {}) const;
  Result<std::string> log(const kube::ObjectRef& pod, const kube::LogEnd& end) const;

  /// The namespace of the context; "default": it has none, or kubectl does not say.
  std::string default_namespace() const;
};

}  // namespace ferry::kubectl
