// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/inner_path.h"

#include <algorithm>
#include <climits>
#include <ranges>

#include <fmt/format.h>

namespace ferry::kata {
namespace {

// Each level keeps a folder open while a tree is walked.
constexpr std::size_t kDeepest = 64;

bool is_control(char c) {
  constexpr unsigned char kFirstReadable = 0x20;
  constexpr unsigned char kDelete = 0x7F;
  return static_cast<unsigned char>(c) < kFirstReadable || static_cast<unsigned char>(c) == kDelete;
}

}  // namespace

Result<std::vector<std::string>> inner_path(std::string_view path) {
  const auto refuse = [&](std::string_view why) {
    // A terminal would obey control characters.
    constexpr std::size_t kEnough = 200;
    std::string shown(path.substr(0, kEnough));
    std::ranges::replace_if(shown, is_control, '?');
    return fail(Errc::refused, fmt::format("the path '{}' {}", shown, why));
  };
  if (path.empty()) return refuse("is empty");
  if (path.size() >= PATH_MAX) return refuse("is too long");
  if (path.front() == '/') return refuse("is absolute");
  if (std::ranges::any_of(path, is_control)) return refuse("has control characters");
  std::vector<std::string> parts;
  std::string_view rest = path;
  while (rest.starts_with("./")) rest.remove_prefix(2);
  if (rest == "." || rest.empty()) return parts;
  if (rest.ends_with('/')) rest.remove_suffix(1);
  // A split of an empty text has no parts.
  if (rest.empty()) return refuse("has an empty part or a '.' in it");
  for (const auto between : std::views::split(rest, '/')) {
    const std::string_view part(between.begin(), between.end());
    if (part == "..") return refuse("leads out of its folder");
    if (part.empty() || part == ".") return refuse("has an empty part or a '.' in it");
    if (part.size() > NAME_MAX) return refuse("has a part that is too long");
    if (parts.size() == kDeepest) return refuse("is too deep");
    parts.emplace_back(part);
  }
  return parts;
}

bool link_stays_inside(const std::vector<std::string>& at, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.size() >= PATH_MAX) return false;
  std::size_t up = 0;
  bool down = false;
  for (const auto between : std::views::split(target, '/')) {
    const std::string_view part(between.begin(), between.end());
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (down || ++up > at.size()) return false;
    } else {
      down = true;
    }
  }
  return true;
}

}  // namespace ferry::kata
