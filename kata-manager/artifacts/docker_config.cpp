// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/docker_config.h"

#include <algorithm>
#include <fnmatch.h>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/encoding.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/artifacts/strict_json.h"

namespace ferry::kata {
namespace {

using nlohmann::json;

Error wrong(const std::string& key, std::string_view why) {
  return {.code = make_error_code(Errc::invalid_config),
          .message = fmt::format("registry credentials: '{}': {}", key, why),
          .hint = "it is the content of a .dockerconfigjson or .dockercfg"};
}

Result<std::string> text_of(const json& entry, const char* name, const std::string& key) {
  const auto found = entry.find(name);
  if (found == entry.end() || found->is_null()) return std::string();
  if (!found->is_string()) return fail(wrong(key, fmt::format("{} is no text", name)));
  return found->get<std::string>();
}

Result<RegistryCredentials> credentials_of(const json& entry, const std::string& key) {
  RegistryCredentials out;
  for (const auto& [name, into] :
       {std::pair{"username", &out.username}, std::pair{"password", &out.password},
        std::pair{"identitytoken", &out.identity_token}, std::pair{"registrytoken", &out.registry_token}}) {
    auto text = text_of(entry, name, key);
    if (!text) return fail(std::move(text).error());
    *into = std::move(*text);
  }
  const auto packed = text_of(entry, "auth", key);
  if (!packed) return fail(packed.error());
  if (packed->empty()) return out;
  auto pair = from_base64(*packed);
  if (!pair) return fail(wrong(key, "auth is no base64"));
  const auto colon = pair->find(':');
  if (colon == std::string::npos) return fail(wrong(key, "auth is not USER:PASSWORD in base64"));
  // `username` and `password` win over `auth`, because people edit them.
  if (out.username.empty()) out.username = pair->substr(0, colon);
  if (out.password.empty()) out.password = pair->substr(colon + 1);
  // Old docker clients pad the pair with zeros.
  out.password.erase(std::min(out.password.find('\0'), out.password.size()));
  return out;
}

std::pair<std::string, std::string> host_and_path(std::string_view key) {
  for (const std::string_view scheme : {"https://", "http://"})
    if (key.starts_with(scheme)) key.remove_prefix(scheme.size());
  while (key.ends_with('/')) key.remove_suffix(1);
  const auto slash = std::min(key.find('/'), key.size());
  std::string_view path = key.substr(std::min(slash + 1, key.size()));
  if (path == "v1" || path == "v2") path = {};
  return {plain_registry(key.substr(0, slash)), std::string(path)};
}

// A '*' stops at a dot, so that *.example.com does not match evil.com.example.com.
bool host_fits(std::string_view pattern, std::string_view host) {
  if (pattern.find('*') == std::string_view::npos) return pattern == host;
  if (std::ranges::count(pattern, '.') != std::ranges::count(host, '.')) return false;
  for (;;) {
    const auto label = pattern.substr(0, pattern.find('.'));
    const auto own = host.substr(0, host.find('.'));
    if (::fnmatch(std::string(label).c_str(), std::string(own).c_str(), 0) != 0) return false;
    if (label.size() == pattern.size()) return true;
    pattern.remove_prefix(label.size() + 1);
    host.remove_prefix(own.size() + 1);
  }
}

}  // namespace

Result<DockerConfig> DockerConfig::parse(std::string_view text) {
  DockerConfig config;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return config;
  const auto parsed = parse_strict_json(text, "registry credentials", Errc::invalid_config);
  if (!parsed) return fail(parsed.error());
  if (!parsed->is_object()) return fail(wrong("{", "it is no JSON object"));
  config.names_helpers_ = parsed->contains("credsStore") || parsed->contains("credHelpers");
  const bool older = !parsed->contains("auths");
  const json& map = older ? *parsed : parsed->at("auths");
  if (!map.is_object()) return fail(wrong("auths", "it is no map from hosts to credentials"));
  for (const auto& [key, value] : map.items()) {
    const bool names_registry = key.find_first_of(".:") != std::string::npos || key == "localhost";
    if (older && !names_registry) {
      // Docker's own file has further keys. Only entries with credentials must name a registry.
      if (value.is_object() && (value.contains("auth") || value.contains("username")))
        return fail(wrong(key, "it names no registry"));
      continue;
    }
    if (!value.is_object()) return fail(wrong(key, "it is no JSON object"));
    auto credentials = credentials_of(value, key);
    if (!credentials) return fail(std::move(credentials).error());
    if (credentials->empty()) continue;  // left empty for a helper
    auto [host, path] = host_and_path(key);
    config.entries_.push_back(
        {.host = std::move(host), .path = std::move(path), .key = key, .credentials = *credentials});
  }
  const auto rank = [](const Entry& entry) {
    return std::tuple(-static_cast<std::ptrdiff_t>(entry.path.size()),
                      entry.host.find('*') != std::string::npos,
                      -static_cast<std::ptrdiff_t>(entry.host.size()), entry.key.size(), entry.key);
  };
  std::ranges::sort(config.entries_, {}, rank);
  return config;
}

RegistryCredentials DockerConfig::credentials(std::string_view registry, std::string_view repository) const {
  const std::string host = plain_registry(registry);
  for (const Entry& entry : entries_) {
    const bool has_path =
        entry.path.empty() || repository == entry.path || repository.starts_with(entry.path + "/");
    if (has_path && host_fits(entry.host, host)) return entry.credentials;
  }
  return {};
}

}  // namespace ferry::kata
