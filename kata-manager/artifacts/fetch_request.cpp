// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch_request.h"

#include <array>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/config/config_tree.h"

namespace ferry::kata {
namespace {

// ABI: the keys of Secrets of the types kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg.
constexpr std::array kKeys = {".dockerconfigjson", ".dockercfg"};

Error not_there(const std::filesystem::path& place, const std::string& name, const std::string& why) {
  return {
      .code = Errc::invalid_config,
      .message = fmt::format("the Secret {}: {}", name, why),
      .hint = fmt::format("mount it as {}, or put the content of its key {} into a file of that name there",
                          place.string(), kKeys.front())};
}

}  // namespace

Result<std::string> read_pull_secret(const std::filesystem::path& folder, const std::string& name) {
  const auto place = folder / name;
  for (const char* key : kKeys) {
    const auto file = place / key;
    std::error_code error;
    // If the check itself fails, the read below reports the reason.
    if (!std::filesystem::exists(file, error) && !error) continue;
    auto text = read_config_text(file);
    if (!text) return fail(std::move(text).error().during("the Secret " + name));
    if (text->text.find_first_not_of(" \t\r\n") == std::string::npos)
      return fail(not_there(place, name, file.string() + " is empty"));
    return std::move(text->text);
  }
  std::error_code error;
  if (std::filesystem::exists(place, error))
    return fail(
        not_there(place, name, fmt::format("{} has neither {} nor {}", place.string(), kKeys[0], kKeys[1])));
  return fail(not_there(place, name, place.string() + " is not there"));
}

namespace {

Result<std::string> text_of(const HostFs& host, const std::optional<std::filesystem::path>& path) {
  if (!path) return std::string();
  return host.read_file(path->relative_path());
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
  if (file.pull.certificates && authorities->find("-----BEGIN CERTIFICATE-----") == std::string::npos)
    return fail(Errc::invalid_config,
                fmt::format("{} has no certificate in PEM", file.pull.certificates->string()),
                "name the registry's authority with `pull: {certificates: FILE}`");
  return FetchRequest{.name = kata.name,
                      .url = kata.artifacts.url,
                      .artifacts_dir = file.artifacts_dir,
                      .configuration = kata.artifacts.configuration,
                      .docker_config = std::move(*docker),
                      .authorities = std::move(*authorities),
                      .registries = file.pull.mirrors,
                      .proxy = file.pull.proxy,
                      .no_proxy = file.pull.no_proxy,
                      .allow_setuid = kata.artifacts.allow_setuid};
}

Error explained(Error error, const KataClass& kata, const FetchRequest& request) {
  error = std::move(error).during(kata.place + ": " + kata.name);
  if (!kata.artifacts.pull_secret.empty() && request.docker_config.empty())
    error.hint = fmt::format(
        "the Secret {0} was not given: name a folder that has {0}/.dockerconfigjson with --pull-secrets, or "
        "a file of credentials with --docker-config",
        kata.artifacts.pull_secret);
  return error;
}

}  // namespace ferry::kata
