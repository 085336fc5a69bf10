// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch_request.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kata-manager/classes/pull_secret.h"

namespace ferry::kata {
namespace {

Result<std::string> text_of(const HostFs& host, const std::optional<std::filesystem::path>& path) {
  if (!path) return std::string();
  return host.read_file(path->relative_path());
}

std::vector<RegistryEndpoints> endpoints_of(const PullSettings& pull) {
  std::vector<RegistryEndpoints> out;
  out.reserve(pull.mirrors.size());
  for (const auto& [registry, mirrors] : pull.mirrors)
    out.push_back({.registry = registry, .endpoints = mirrors});
  return out;
}

}  // namespace

Result<std::string> credentials_of(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata) {
  if (kata.artifacts.folder()) return std::string();  // no registry is needed
  if (!credentials.secrets || kata.artifacts.pull_secret.empty())
    return text_of(host,
                   credentials.docker_config ? credentials.docker_config : file.pull.docker_configuration);
  auto secret = read_pull_secret(*credentials.secrets, kata.artifacts.pull_secret);
  if (!secret) return fail(std::move(secret).error().during(kata.place + ": " + kata.name));
  return secret;
}

Result<FetchRequest> fetch_request(const HostFs& host, const PullCredentials& credentials,
                                   const ClassFile& file, const KataClass& kata) {
  auto docker = credentials_of(host, credentials, file, kata);
  if (!docker) return fail(std::move(docker).error());
  auto authorities = text_of(host, file.pull.certificates);
  if (!authorities) return fail(std::move(authorities).error());
  return FetchRequest{.name = kata.name,
                      .url = kata.artifacts.url,
                      .artifacts_dir = file.artifacts_dir,
                      .configuration = kata.artifacts.configuration.value_or(std::filesystem::path()),
                      .docker_config = std::move(*docker),
                      .authorities = std::move(*authorities),
                      .registries = endpoints_of(file.pull),
                      .proxy = file.pull.proxy,
                      .no_proxy = file.pull.no_proxy,
                      .allow_setuid = kata.artifacts.allow_setuid};
}

Error explained(Error error, const KataClass& kata, const FetchRequest& request) {
  error = std::move(error).during(kata.place + ": " + kata.name);
  if (!kata.artifacts.pull_secret.empty() && request.docker_config.empty())
    error.hint = fmt::format(
        "nobody gave the Secret {0}: name a folder that has {0}/.dockerconfigjson with --pull-secrets, or "
        "a file of credentials with --docker-config",
        kata.artifacts.pull_secret);
  return error;
}

}  // namespace ferry::kata
