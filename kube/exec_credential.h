// SPDX-License-Identifier: Apache-2.0
// Credential plugins: programs of a kubeconfig that log a person in and print the credentials.
// ABI: client.authentication.k8s.io/v1 and v1beta1, ExecCredential; "client-go credential plugins".
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/process/this_process.h"
#include "common/result.h"
#include "kube/api_transport.h"
#include "kube/cluster_access.h"

namespace ferry::kube {

/// The credentials that a program has printed: a token, a certificate with its key, or both.
struct ExecCredential {
  std::string token = {};                                ///< empty: none
  std::string certificate = {};                          ///< PEM; empty: none
  std::string key = {};                                  ///< PEM; with `certificate`
  std::optional<std::chrono::sys_seconds> expires = {};  ///< absent: not said
};

/// Parses a time of RFC 3339: "2026-11-27T20:05:56Z", with a fraction, which is dropped, or with an offset.
std::optional<std::chrono::sys_seconds> parse_rfc3339(std::string_view text);

/// Reads the ExecCredential in a program's output. Errc::failed: it is none of `api_version`, or has no
/// usable credentials. The error names the key, and never has a secret.
Result<ExecCredential> parse_exec_credential(std::string_view output, const std::string& api_version);

/// The value of KUBERNETES_EXEC_INFO for a program. `authorities` is PEM, for a program that gets the
/// cluster; empty: the system's.
std::string exec_info(const ExecConfig& config, bool interactive, const std::string& authorities);

/// Obeys kubectl's own policy for credential plugins, in the file that KUBERC names, or HOME/.kube/kuberc if
/// there is one. Errc::invalid_config, with the place: the file forbids this program, or cannot be read.
/// ABI: kubectl.config.k8s.io/v1beta1, Preference: credentialPluginPolicy, credentialPluginAllowlist.
Result<> check_plugin_policy(const ExecConfig& config, const Environment& environment);

/// Runs a credential plugin and holds its credentials: the first time they are needed, again when they have
/// expired, and once again after the server has refused them. A run that has failed is repeated after a pause
/// of kFirstPause, doubled with each further failure up to kLongestPause; until then its error stays.
///
/// The program inherits standard error, and standard input if it may ask a person. It may take minutes, and
/// the calling thread waits for it.
class ExecAuthenticator {
 public:
  static constexpr std::chrono::minutes kFirstPause{1};
  static constexpr std::chrono::minutes kLongestPause{16};

  struct Settings {
    Environment environment = {};  ///< the program's, besides its own variables; PATH finds it
    bool has_terminal = false;     ///< standard input is a terminal
    std::function<std::chrono::system_clock::time_point()> now = std::chrono::system_clock::now;
    std::chrono::milliseconds most =
        std::chrono::minutes(10);  ///< for a program that cannot ask a person here
  };

  /// `authorities` are the cluster's.
  ExecAuthenticator(ExecConfig config, Credential authorities, Settings settings);

  /// The access gets its credentials from here: those of the newest run.
  void give_to(ClusterAccess& access) const;

  /// Runs the program if there are no credentials to use. Errc::failed: it cannot be started, has failed, or
  /// has printed no credentials; the error says where the kubeconfig names it.
  Result<> prepare();
  /// Runs so far, failed ones included.
  unsigned runs() const { return runs_; }
  /// The server has refused the credentials of this run: the next prepare() runs the program again, unless
  /// these credentials come from such a run, and the server has never accepted them.
  void refuse(unsigned run);
  /// The server has accepted the credentials of this run.
  void accept(unsigned run);

 private:
  Result<ExecCredential> run();
  tl::unexpected<Error> failed(const std::string& what, std::string hint = {}) const;

  ExecConfig config_;
  Credential authorities_;
  Settings settings_;
  std::shared_ptr<LiveCredential> token_ = std::make_shared<LiveCredential>();
  std::shared_ptr<LiveCredential> certificate_ = std::make_shared<LiveCredential>();
  std::shared_ptr<LiveCredential> key_ = std::make_shared<LiveCredential>();
  std::optional<std::chrono::sys_seconds> expires_;
  unsigned runs_ = 0;
  bool refused_ = false;  ///< the server does not accept the present credentials
  bool renewed_ = false;  ///< the present credentials followed a refusal, and were not accepted yet
  std::chrono::minutes pause_ = kFirstPause;             ///< after the next failed run
  std::chrono::system_clock::time_point next_run_ = {};  ///< the earliest time after a failed run
};

/// Passes requests on when their credentials are there, and gets new ones after an answer of 401: the next
/// request has them. A failed run is the error of the request.
class ExecTransport final : public ApiTransport {
 public:
  /// `under` must outlive this, and uses the authenticator's credentials. nullptr: no program gives any.
  ExecTransport(ApiTransport& under, std::shared_ptr<ExecAuthenticator> authenticator)
      : under_(under), authenticator_(std::move(authenticator)) {}

  Call send(ApiRequest request, ApiListener listener) override;
  void cancel(Call call) override { under_.cancel(call); }

 private:
  ApiTransport& under_;
  const std::shared_ptr<ExecAuthenticator> authenticator_;
};

}  // namespace ferry::kube
