// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/registry_endpoint.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace ferry::kata {
namespace {

Result<RegistryEndpoint> endpoint_of(std::string_view url, const ImageReference& reference) {
  const auto wrong = [&](std::string_view why) {
    return fail(Errc::usage, fmt::format("endpoint '{}' of registry {} {}", url, reference.registry, why),
                "write https://HOST[:PORT][/PATH], or http:// for one without TLS");
  };
  const auto scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return wrong("has no scheme");
  std::string_view rest = url.substr(scheme_end + 3);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const auto slash = std::min(rest.find('/'), rest.size());
  const std::string_view host = rest.substr(0, slash);
  const std::string_view path = rest.substr(slash);
  if (url.find_first_of("?#@ ") != std::string_view::npos) return wrong("has more than a host and a path");
  auto origin = HttpOrigin::of(std::string(url));
  if (!origin) return wrong("is no URL of http or https");
  return RegistryEndpoint{
      .host = std::string(host),
      .base_url = fmt::format("{}://{}/v2{}/{}", origin->scheme, host, path, reference.repository),
      .origin = std::move(*origin)};
}

std::string own_url(const ImageReference& reference) {
  if (reference.registry == "docker.io") return "https://registry-1.docker.io";
  return (is_loopback(reference.registry) ? "http://" : "https://") + reference.registry;
}

}  // namespace

Result<std::vector<RegistryEndpoint>> registry_endpoints(const ImageReference& reference,
                                                         std::span<const RegistryEndpoints> registries,
                                                         const DockerConfig& credentials) {
  std::vector<std::string> urls;
  std::set<std::string> seen;
  for (const RegistryEndpoints& registry : registries) {
    const std::string name = plain_registry(registry.registry);
    if (!seen.insert(name).second)
      return fail(Errc::usage, fmt::format("registry {} is there twice", registry.registry),
                  "put its endpoints into one list");
    if (name == reference.registry) urls = registry.endpoints;
  }
  std::vector<RegistryEndpoint> endpoints;
  bool itself = false;
  for (const std::string& url : urls) {
    auto endpoint = endpoint_of(url, reference);
    if (!endpoint) return fail(std::move(endpoint).error());
    itself |= plain_registry(endpoint->host) == reference.registry;
    endpoints.push_back(std::move(*endpoint));
  }
  if (!itself) {
    auto endpoint = endpoint_of(own_url(reference), reference);
    if (!endpoint) return fail(std::move(endpoint).error());
    endpoints.push_back(std::move(*endpoint));
  }
  for (RegistryEndpoint& endpoint : endpoints) {
    endpoint.credentials = credentials.credentials(endpoint.host, reference.repository);
    endpoint.token = endpoint.credentials.registry_token;
  }
  return endpoints;
}

}  // namespace ferry::kata
