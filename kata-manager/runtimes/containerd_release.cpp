// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/containerd_release.h"

#include <charconv>

#include <fmt/format.h>

namespace ferry::kata {
namespace {

void drop(std::string_view& text, std::string_view prefix) {
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
}

}  // namespace

std::optional<std::array<unsigned, 3>> take_release_numbers(std::string_view& text) {
  std::array<unsigned, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && !text.starts_with('.')) return std::nullopt;
    if (i > 0) text.remove_prefix(1);
    const auto [end, problem] = std::from_chars(text.begin(), text.end(), numbers.at(i));
    if (problem != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  }
  return numbers;
}

Result<ContainerdRelease> ContainerdRelease::parse(std::string_view text) {
  std::string_view rest = text;
  drop(rest, "containerd://");
  drop(rest, "v");
  const auto numbers = take_release_numbers(rest);
  if (!numbers || (!rest.empty() && std::string_view("-~+").find(rest.front()) == std::string_view::npos))
    return fail(Errc::malformed_host, fmt::format("'{}' is no release of containerd", text),
                "such as 1.7.24 or 2.2.2-k3s1");
  if (!rest.empty()) rest.remove_prefix(1);
  const bool early = rest.starts_with("alpha") || rest.starts_with("beta") || rest.starts_with("rc");
  const auto [major_number, minor_number, patch] = *numbers;
  const ContainerdRelease out{
      .major_number = major_number, .minor_number = minor_number, .patch = patch, .final_one = !early};
  if (out < ContainerdRelease{1, 6, 0} || out.major_number > 2) {
    return fail(Errc::unsupported,
                fmt::format("containerd {}: how it reads its configuration is not known", text),
                "known are 1.6, 1.7 and 2");
  }
  return out;
}

std::string ContainerdRelease::text() const {
  return fmt::format("{}.{}.{}{}", major_number, minor_number, patch,
                     final_one ? "" : " (before its release)");
}

std::int64_t ContainerdRelease::highest_version() const {
  if (major_number < 2) return 2;
  return migrates_each_file() ? 4 : 3;
}

}  // namespace ferry::kata
