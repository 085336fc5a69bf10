// SPDX-License-Identifier: Apache-2.0
#include "hostfs/earlier_record.h"

#include <array>

#include <fmt/format.h>

namespace ferry {
namespace {

namespace fs = std::filesystem;

struct Kept {
  const char* name;
  bool folder;
  const char* now;
  const char* without;
};
constexpr std::array kKept = {
    Kept{.name = "moves",
         .folder = true,
         .now = "run/ferry/hostd/moves",
         .without = "then the kernel chooses the drivers of its GPUs"},
    Kept{.name = "stopped-services.json",
         .folder = false,
         .now = "run/ferry/hostd",
         .without = "then no service that it names is started again"},
    Kept{.name = "unbind-locks",
         .folder = true,
         .now = "run/ferry/hostd/unbind-locks",
         .without = "then NVIDIA's unbind locks that it names stay taken until the next boot"},
    Kept{.name = "stuck",
         .folder = true,
         .now = "run/ferry/stuck-writes",
         .without = "then Ferry does not spare the devices that hang in the kernel"}};

}  // namespace

Error earlier_record(const fs::path& file, const fs::path& place, std::string_view writer,
                     std::string_view without) {
  const std::string from = "/" + file.string();
  const std::string to = "/" + place.string();
  return {
      .code = Errc::refused,
      .message = fmt::format("{} is of an earlier version of Ferry and is not read: {} could write it", from,
                             writer),
      .hint = fmt::format(
          "if Ferry did not write it, remove it; {}. If its content is right, run `mkdir -p {} && mv {} {}/`",
          without, to, from, to)};
}

std::vector<Error> earlier_records(const HostFs& host) {
  const fs::path before = "run/ferry";
  std::vector<Error> out;
  for (const Kept& kept : kKept) {
    const fs::path file = before / kept.name;
    if (kept.folder) {
      const auto names = host.list(file);
      if (names && !names->empty())
        out.push_back(earlier_record(file / "*", kept.now, "the device plugin", kept.without));
    } else if (host.exists(file)) {
      out.push_back(earlier_record(file, kept.now, "the device plugin", kept.without));
    }
  }
  return out;
}

}  // namespace ferry
