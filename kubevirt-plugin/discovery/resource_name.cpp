// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/resource_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "common/kubevirt_rules.h"
#include "common/text/text.h"

namespace ferry::plugin {
namespace {

constexpr std::size_t kLongestName = 63;
constexpr std::size_t kLongestDomain = 253;
// sockaddr_un holds 107 bytes. The longer of the kubelet's directories, which cannot be configured, takes 34
// of them: /var/lib/kubelet/plugins_registry/.
constexpr std::size_t kLongestEndpoint = 73;
// NVIDIA's plugin leaves its domain out of the socket's name.
constexpr std::string_view kUnnamedDomain = "nvidia.com/";

// White space of the C locale, whatever the process's locale is.
constexpr bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
std::string with_spaces_joined(std::string_view text) {
  std::string joined;
  joined.reserve(text.size());
  bool in_space = false;
  for (const char c : text) {
    if (!is_space(c)) {
      joined += c;
    } else if (!in_space) {
      joined += '_';
    }
    in_space = is_space(c);
  }
  return joined;
}

// `marks`: the characters that are kept beside letters and digits.
std::string resource_part(std::string_view human_name, std::string_view marks) {
  std::string part = with_spaces_joined(trimmed(human_name, " \t\n\v\f\r"));
  for (char& c : part) {
    if (c == '/' || c == '.') c = '_';
    if (is_lower(c)) c = static_cast<char>(c - 'a' + 'A');
  }
  std::erase_if(
      part, [&](char c) { return !is_upper(c) && !is_digit(c) && marks.find(c) == std::string_view::npos; });
  return part;
}

bool is_dns_subdomain(std::string_view domain) {
  if (domain.size() > kLongestDomain) return false;
  while (true) {
    const auto dot = domain.find('.');
    const auto label = domain.substr(0, dot);
    const bool legal =
        !label.empty() && label.size() <= kLongestName && label.front() != '-' && label.back() != '-' &&
        std::ranges::all_of(label, [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
    if (!legal) return false;
    if (dot == std::string_view::npos) return true;
    domain.remove_prefix(dot + 1);
  }
}

tl::unexpected<Error> refuse(std::string_view text, std::string_view why) {
  return fail(Errc::invalid_config, fmt::format("resource name '{}': {}", text, why));
}

}  // namespace

Result<ResourceName> ResourceName::parse(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return refuse(text, "has no '/'");
  const auto domain = text.substr(0, slash);
  const auto name = text.substr(slash + 1);
  if (text.find("kubernetes.io/") != std::string_view::npos)
    return refuse(text, "names below kubernetes.io are Kubernetes' own");
  // The kubelet puts "requests." in front and checks the result.
  if (domain.starts_with("requests.")) return refuse(text, "begins with 'requests.'");
  if (!is_dns_subdomain(domain)) return refuse(text, "the part before the '/' is no DNS subdomain");
  if (name.empty()) return refuse(text, "nothing follows the '/'");
  if (name.size() > kLongestName)
    return refuse(text,
                  fmt::format("{} characters follow the '/', {} are allowed", name.size(), kLongestName));
  for (const char c : name) {
    if (!is_alphanumeric(c) && c != '-' && c != '_' && c != '.')
      return refuse(text, fmt::format("'{}' is not one of letters, digits, '-', '_' and '.'", c));
  }
  if (!is_alphanumeric(name.front()) || !is_alphanumeric(name.back()))
    return refuse(text, "the part after the '/' must begin and end with a letter or digit");
  return ResourceName(std::string(text));
}

std::string_view ResourceName::name() const {
  return std::string_view(text_).substr(text_.find('/') + 1);
}

std::string pci_resource_part(std::string_view human_name) {
  return resource_part(human_name, "_");
}

std::string vendor_domain(std::string_view vendor_name) {
  const auto open = vendor_name.find('[');
  std::string_view word = open == std::string_view::npos ? vendor_name : vendor_name.substr(open + 1);
  word = word.substr(0, word.find_first_of(open == std::string_view::npos ? " ,/" : "]/"));
  std::string label;
  for (const char c : word) {
    if (is_upper(c)) label += static_cast<char>(c - 'A' + 'a');
    if (is_lower(c) || is_digit(c) || (c == '-' && !label.empty())) label += c;
  }
  while (label.ends_with('-')) label.pop_back();
  return label.empty() ? label : label + ".com";
}

std::string kata_resource_part(std::string_view human_name) {
  if (human_name.empty()) return "UNKNOWN_DEVICE";
  return resource_part(human_name, "_-");
}

std::string mdev_resource_part(std::string_view type_name) {
  while (!type_name.empty() && type_name.back() == '\n') type_name.remove_suffix(1);
  return with_spaces_joined(type_name);
}

std::string env_name(EnvPrefix prefix, const ResourceName& name) {
  if (prefix == EnvPrefix::none) return {};
  return resource_variable(prefix == EnvPrefix::pci_resource ? kPciResource : kMdevResource, name.text());
}

std::string endpoint_name(const ResourceName& name, EnvPrefix prefix) {
  const std::string_view owner = prefix == EnvPrefix::none ? "sandbox" : "kubevirt";
  std::string own = name.text();
  if (own.starts_with(kUnnamedDomain))
    own = name.name();
  else
    std::ranges::replace(own, '/', '+');  // which no name has
  std::string endpoint = fmt::format("{}-{}.sock", owner, own);
  if (endpoint.size() <= kLongestEndpoint) return endpoint;
  const std::string end = fmt::format("-{:08x}.sock", stable_hash_32(name.text()));
  return endpoint.substr(0, kLongestEndpoint - end.size()) + end;
}

}  // namespace ferry::plugin
