// SPDX-License-Identifier: Apache-2.0
#include "kube/cluster_access.h"

#include <optional>

#include <fmt/format.h>

#include "kube/credential_file.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHost = "KUBERNETES_SERVICE_HOST";
constexpr const char* kPort = "KUBERNETES_SERVICE_PORT";

tl::unexpected<Error> invalid(Error error, std::string hint) {
  return fail(Errc::invalid_config, std::move(error.message), std::move(hint));
}

Result<std::string> text_in(const fs::path& file) {
  CredentialReader reader({.text = {}, .file = file});
  const auto text = reader.now();
  if (!text) return fail(Error(text.error()));
  return **text;
}

// The existing files of KUBECONFIG; absent: it is not set.
Result<std::optional<std::vector<ConfigText>>> files_of_environment(const Environment& environment) {
  const std::string list = value_of(environment, "KUBECONFIG");
  if (list.empty()) return std::optional<std::vector<ConfigText>>();
  std::vector<ConfigText> files;
  for (std::size_t at = 0; at <= list.size();) {
    const auto end = std::min(list.find(':', at), list.size());
    const fs::path file = list.substr(at, end - at);
    at = end + 1;
    std::error_code ignored;
    if (file.empty() || !fs::exists(file, ignored)) continue;
    auto text = read_config_text(file);
    if (!text) return fail(std::move(text).error());
    files.push_back(std::move(*text));
  }
  if (files.empty())
    return fail(Errc::invalid_config, "none of the files in KUBECONFIG is there: " + list,
                "name one that is, or unset it");
  return std::optional(std::move(files));
}

}  // namespace

Result<ClusterAccess> access_from_pod(const Environment& environment, const fs::path& service_account) {
  ClusterAccess out;
  const std::string host = value_of(environment, kHost);
  const bool six = host.find(':') != std::string::npos;
  auto server = ServerAddress::parse(
      fmt::format("https://{}{}{}:{}", six ? "[" : "", host, six ? "]" : "", value_of(environment, kPort)));
  if (!server || !server->path.empty())
    return fail(Errc::invalid_config,
                fmt::format("{}='{}' and {}='{}' are not where an API server is", kHost, host, kPort,
                            value_of(environment, kPort)),
                "Kubernetes sets both in each container");
  out.server = std::move(*server);
  out.said_by = fmt::format("{} and {} of this pod", kHost, kPort);
  auto proxy = proxy_of_environment(out.server, environment);
  if (!proxy) return invalid(std::move(proxy).error(), "correct the variable");
  out.proxy = std::move(*proxy);
  out.token.file = service_account / "token";
  out.authorities.file = service_account / "ca.crt";
  for (const fs::path& file : {out.token.file, out.authorities.file}) {
    if (auto text = text_in(file); !text)
      return invalid(std::move(text).error(), "the pod needs a service account whose token is mounted");
  }
  // The namespace file is not mounted everywhere, and only Ferry reads it, so it may be missing.
  out.default_namespace = text_in(service_account / "namespace").value_or("");
  return out;
}

Result<ClusterAccess> cluster_access(const AccessChoice& choice, const Environment& environment,
                                     const fs::path& service_account) {
  if (!choice.kubeconfig.empty()) {
    auto file = read_config_text(choice.kubeconfig);
    if (!file) return fail(std::move(file).error());
    return access_from_kubeconfig({std::move(*file)}, choice.context, environment);
  }
  auto files = files_of_environment(environment);
  if (!files) return fail(std::move(files).error());
  if (const auto& named = *files; named) return access_from_kubeconfig(*named, choice.context, environment);
  if (!value_of(environment, kHost).empty() && choice.context.empty())
    return access_from_pod(environment, service_account);
  const fs::path home = value_of(environment, "HOME");
  const fs::path usual = home / ".kube" / "config";
  std::error_code ignored;
  if (home.empty() || !fs::exists(usual, ignored))
    return fail(Errc::usage, "no cluster is known: this is no pod, and there is no kubeconfig",
                "name one with --kubeconfig or KUBECONFIG");
  auto file = read_config_text(usual);
  if (!file) return fail(std::move(file).error());
  return access_from_kubeconfig({std::move(*file)}, choice.context, environment);
}

}  // namespace ferry
