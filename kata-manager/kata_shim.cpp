// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_shim.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry {

Result<std::filesystem::path> find_kata_shim(const HostFs& host, const KataClass& kata) {
  constexpr std::array kPlaces = {
      "/opt/kata/bin/containerd-shim-kata-v2", "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2",
      "/usr/local/bin/containerd-shim-kata-v2", "/usr/bin/containerd-shim-kata-v2"};
  if (kata.shim) {
    if (host.exists(kata.shim->relative_path())) return *kata.shim;
    return fail(Errc::not_found,
                fmt::format("{}: class {}: there is no {}", kata.place, kata.name, kata.shim->string()),
                "correct the class's `shim`, or leave it out to have it looked for");
  }
  for (const std::filesystem::path place : kPlaces) {
    if (host.exists(place.relative_path())) return place;
  }
  return fail(
      Errc::not_found,
      fmt::format("class {}: no shim of Kata's is there: not {}", kata.name, fmt::join(kPlaces, ", ")),
      "install Kata, or say in the class where it is: `shim: /DIR/containerd-shim-kata-v2`");
}

}  // namespace ferry
