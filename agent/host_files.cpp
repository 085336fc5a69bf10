// SPDX-License-Identifier: Apache-2.0
#include "agent/host_files.h"

#include "agent/seen_host.h"
#include "agent/wish_file.h"

namespace ferry {

Result<HostSide> read_host_side(const HostFs& host) {
  HostSide out;
  if (auto wish = host.read_file(kWishFile)) {
    out.written = read_wish_file(*wish);
  } else if (!is_gone(wish.error())) {
    return fail(std::move(wish).error());
  }
  if (auto state = host.read_file(kStateFile)) {
    auto seen = read_seen_host(*state);
    if (seen) {
      out.seen = std::move(*seen);
    } else {
      out.unreadable = seen.error().message;
    }
  } else if (!is_gone(state.error())) {
    return fail(std::move(state).error());
  }
  return out;
}

Result<> write_wish(HostFs& host, const NodeStep& step) {
  if (step.wish_file) return host.write_file(kWishFile, wish_file_text(*step.wish_file));
  if (step.remove_wish_file) return host.remove_file(kWishFile);
  return {};
}

}  // namespace ferry
