// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/image_reference.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <ranges>

#include <fmt/format.h>

#include "common/text/text.h"

namespace ferry::kata {

Result<Digest> Digest::parse(std::string_view text) {
  constexpr std::string_view kAlgorithm = "sha256:";
  constexpr std::size_t kHexDigits = 64;
  if (!text.starts_with(kAlgorithm))
    return fail(Errc::usage, fmt::format("'{}' is no digest that skopeo checks: sha256:… is", text));
  Digest digest{std::string(text.substr(kAlgorithm.size()))};
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digest.hex.size() != kHexDigits || !std::ranges::all_of(digest.hex, is_hex)) {
    return fail(Errc::usage, fmt::format("'{}' is no digest: sha256 needs {} lower-case hexadecimal digits",
                                         text, kHexDigits));
  }
  return digest;
}

namespace {

// The reason why a text is wrong; empty: it is right.
using Fault = std::string;

Fault fault_of_port(std::string_view port) {
  if (whole_number<std::uint16_t>(port).value_or(0) == 0) return fmt::format("'{}' is no port", port);
  return {};
}

Fault fault_of_registry(std::string_view registry) {
  std::string_view host = registry;
  if (registry.starts_with('[')) {
    const auto end = registry.find(']');
    std::array<char, sizeof(in6_addr)> bytes{};
    if (end == std::string_view::npos ||
        ::inet_pton(AF_INET6, std::string(registry.substr(1, end - 1)).c_str(), bytes.data()) != 1)
      return fmt::format("'{}' is no IPv6 address in brackets", registry);
    const auto rest = registry.substr(end + 1);
    if (rest.empty()) return {};
    return rest.front() == ':' ? fault_of_port(rest.substr(1)) : fmt::format("'{}' is no host", registry);
  }
  if (const auto colon = registry.find(':'); colon != std::string_view::npos) {
    host = registry.substr(0, colon);
    if (auto fault = fault_of_port(registry.substr(colon + 1)); !fault.empty()) return fault;
  }
  if (host.empty()) return "'' is no host";
  for (const auto between : std::views::split(host, '.')) {
    const std::string_view label(between.begin(), between.end());
    const bool plain = std::ranges::all_of(label, [](char c) { return is_alphanumeric(c) || c == '-'; });
    if (label.empty() || !plain || label.front() == '-' || label.back() == '-')
      return fmt::format("'{}' is no host", host);
  }
  return {};
}

// [a-z0-9]+ joined by ".", "_", "__" or dashes.
bool is_component(std::string_view part) {
  const auto is_plain = [](char c) { return is_lower(c) || is_digit(c); };
  if (part.empty() || !is_plain(part.front()) || !is_plain(part.back())) return false;
  for (std::size_t i = 0; i < part.size();) {
    if (is_plain(part[i])) {
      ++i;
      continue;
    }
    const auto end = std::min(part.find_first_of("abcdefghijklmnopqrstuvwxyz0123456789", i), part.size());
    const auto joint = part.substr(i, end - i);
    if (joint != "." && joint != "_" && joint != "__" && joint.find_first_not_of('-') != std::string::npos)
      return false;
    i = end;
  }
  return true;
}

constexpr std::size_t kLongestRepository = 255;

Fault fault_of_repository(std::string_view repository) {
  if (repository.empty()) return "the repository is missing";
  if (std::ranges::any_of(repository, is_upper))
    return fmt::format("repository '{}' has upper case letters", repository);
  for (const auto between : std::views::split(repository, '/')) {
    const std::string_view part(between.begin(), between.end());
    if (!is_component(part)) {
      return fmt::format(
          "'{}' in repository '{}' is not of lower case letters and digits, joined by '.', '_', '__' or "
          "dashes",
          part, repository);
    }
  }
  return {};
}

Fault fault_of_tag(std::string_view tag) {
  constexpr std::size_t kLongest = 128;
  const auto is_word = [](char c) { return is_alphanumeric(c) || c == '_'; };
  const bool good = !tag.empty() && tag.size() <= kLongest && is_word(tag.front()) &&
                    std::ranges::all_of(tag, [&](char c) { return is_word(c) || c == '.' || c == '-'; });
  if (good) return {};
  return fmt::format(
      "'{}' is no tag: 1 to {} letters, digits, '_', '.' and '-', the first of them none of the last two",
      tag, kLongest);
}

}  // namespace

Result<ImageReference> ImageReference::parse(std::string_view text) {
  const auto wrong = [&](const Fault& why, std::string hint = {}) {
    return fail(Errc::usage, fmt::format("image reference '{}': {}", text, why), std::move(hint));
  };
  if (text.empty()) return wrong("it is empty");
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos) {
    return wrong("it begins with a scheme",
                 fmt::format("write {} without {}", text.substr(scheme + 3), text.substr(0, scheme + 3)));
  }
  ImageReference reference;
  std::string_view rest = text;
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    auto digest = Digest::parse(rest.substr(at + 1));
    if (!digest) return wrong(digest.error().message);
    reference.digest = std::move(*digest);
    rest = rest.substr(0, at);
  }
  const auto slash = rest.find('/');
  const std::string_view first = rest.substr(0, slash);
  const bool is_host = first == "localhost" || first.find_first_of(".:[") != std::string_view::npos;
  if (slash != std::string_view::npos && is_host) {
    if (auto fault = fault_of_registry(first); !fault.empty()) return wrong(fault);
    reference.registry = plain_registry(first);
    rest = rest.substr(slash + 1);
  } else {
    reference.registry = "docker.io";
  }
  // A registry's port is cut off already, so a colon begins the tag.
  if (const auto colon = rest.find(':'); colon != std::string_view::npos) {
    reference.tag = std::string(rest.substr(colon + 1));
    if (auto fault = fault_of_tag(reference.tag); !fault.empty()) return wrong(fault);
    rest = rest.substr(0, colon);
  } else if (!reference.digest) {
    reference.tag = "latest";
  }
  if (auto fault = fault_of_repository(rest); !fault.empty()) return wrong(fault);
  reference.repository = std::string(rest);
  if (reference.registry == "docker.io" && rest.find('/') == std::string_view::npos)
    reference.repository.insert(0, "library/");
  if (reference.repository.size() > kLongestRepository)
    return wrong(fmt::format("the repository is longer than {} letters", kLongestRepository));
  return reference;
}

std::string ImageReference::text() const {
  std::string text = registry + "/" + repository;
  if (!tag.empty()) text += ":" + tag;
  if (digest) text += "@" + digest->text();
  return text;
}

std::string plain_registry(std::string_view host) {
  std::string name = lower(host);
  return name == "index.docker.io" || name == "registry-1.docker.io" ? "docker.io" : name;
}

bool is_loopback(std::string_view host_and_port) {
  if (host_and_port == "[::1]" || host_and_port.starts_with("[::1]:")) return true;
  const std::string host(host_and_port.substr(0, host_and_port.find(':')));
  in_addr address{};
  constexpr unsigned kLoopback = 127;
  return host == "localhost" ||
         (::inet_pton(AF_INET, host.c_str(), &address) == 1 && ::ntohl(address.s_addr) >> 24U == kLoopback);
}

}  // namespace ferry::kata
