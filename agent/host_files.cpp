// SPDX-License-Identifier: Apache-2.0
#include "agent/host_files.h"

#include <utility>

#include "agent/seen_host.h"
#include "agent/wish_file.h"
#include "common/serving_file.h"
#include "kata-manager/ready_handlers.h"

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
  if (auto list = host.read_file(kReadyHandlersFile)) {
    // A file of another version still lists the ready handlers; the rest of it is ignored.
    const HandlersFile ready{.ready = read_ready_handlers(*list).value_or(std::set<std::string>())};
    out.kata = read_handlers_file(*list).value_or(ready);
  } else if (!is_gone(list.error())) {
    return fail(std::move(list).error());
  }
  if (auto text = host.read_file(kWantedClassesFile)) {
    if (auto wanted = read_wanted_classes(ConfigText{.file = kWantedClassesFile, .text = std::move(*text)}))
      out.kata_written = std::move(*wanted);
  } else if (!is_gone(text.error())) {
    return fail(std::move(text).error());
  }
  return out;
}

Result<> write_wish(HostFs& host, const NodeStep& step) {
  if (step.wish_file) return host.write_file(kWishFile, wish_file_text(*step.wish_file));
  if (step.remove_wish_file) return host.remove_file(kWishFile);
  return {};
}

Result<bool> write_serving(HostFs& host, const NodeStep& step, bool dry_run) {
  if (!step.stand_back) return false;
  const auto now = host.read_file(kServingFile);
  if (!now && !is_gone(now.error())) return fail(Error(now.error()));
  if (now && !is_of_the_agent(*now)) return false;
  const bool removes = step.stand_back->empty();
  const std::string text = removes ? std::string() : serving_file_text(*step.stand_back);
  if (removes ? !now.has_value() : now && *now == text) return false;
  if (dry_run) return true;
  if (auto done = removes ? host.remove_file(kServingFile) : host.write_file(kServingFile, text); !done)
    return fail(std::move(done).error());
  return true;
}

Result<> write_wanted_classes(HostFs& host, const WantedClasses& wanted) {
  return host.write_file(kWantedClassesFile, wanted_classes_text(wanted));
}

}  // namespace ferry
