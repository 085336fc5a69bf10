// SPDX-License-Identifier: Apache-2.0
#include "agent/host_files.h"

#include <filesystem>
#include <utility>

#include "agent/desired_state/written_policy.h"
#include "api/files.h"
#include "api/host_status.h"
#include "api/serving.h"
#include "kata-manager/controller/ready_handlers.h"

namespace ferry::agent {

Result<HostSide> read_host_side(const HostFs& host) {
  HostSide out;
  if (auto desired_state = host.read_file(api::kDesiredFile)) {
    out.written = read_written(std::move(*desired_state));
  } else if (!is_gone(desired_state.error())) {
    return fail(std::move(desired_state).error());
  }
  if (auto state = host.read_file(api::kStatusFile)) {
    auto seen = api::read_host_status(*state);
    if (seen) {
      out.status = std::move(*seen);
    } else {
      out.unreadable = seen.error().message;
    }
  } else if (!is_gone(state.error())) {
    return fail(std::move(state).error());
  }
  if (auto list = host.read_file(api::kReadyHandlersFile)) {
    // A file of another version still lists the ready handlers; the rest of it is ignored.
    const kata::HandlersFile ready{.ready =
                                       kata::read_ready_handlers(*list).value_or(std::set<std::string>())};
    out.kata = kata::read_handlers_file(*list).value_or(ready);
  } else if (!is_gone(list.error())) {
    return fail(std::move(list).error());
  }
  if (auto text = host.read_file(api::kDesiredClassesFile)) {
    if (auto desired = kata::read_desired_classes(
            ConfigText{.file = api::kDesiredClassesFile, .text = std::move(*text)}))
      out.kata_written = std::move(*desired);
  } else if (!is_gone(text.error())) {
    return fail(std::move(text).error());
  }
  return out;
}

Result<> write_desired_file(HostFs& host, const ReconcileResult& result) {
  if (result.desired_file)
    return host.write_file(api::kDesiredFile, api::desired_file_text(*result.desired_file));
  if (result.remove_desired_file) return host.remove_file(api::kDesiredFile);
  return {};
}

Result<bool> write_serving(HostFs& host, const ReconcileResult& result, bool dry_run) {
  if (!result.standby) return false;
  const auto now = host.read_file(api::kServingFile);
  if (!now && !is_gone(now.error())) return fail(now.error());
  if (now && !api::is_of_the_agent(*now)) return false;
  const bool removes = result.standby->empty();
  const std::string text = removes ? std::string() : api::serving_file_text(*result.standby);
  if (removes ? !now.has_value() : now && *now == text) return false;
  if (dry_run) return true;
  if (auto done = removes ? host.remove_file(api::kServingFile) : host.write_file(api::kServingFile, text);
      !done)
    return fail(std::move(done).error());
  return true;
}

Result<> write_desired_classes(HostFs& host, const kata::DesiredClasses& desired) {
  return host.write_file(api::kDesiredClassesFile, kata::desired_classes_text(desired));
}

HostWatch::HostWatch(EventLoop& loop, HostFs& host, EventLoop::Job changed)
    : host_(host), folders_(loop, std::move(changed)) {}

Result<> HostWatch::begin() {
  for (const char* file : {api::kDesiredFile, api::kStatusFile, api::kAdvertisedFile}) {
    const auto folder = std::filesystem::path(file).parent_path();
    const auto make = [this, folder] { return host_.make_directory(folder); };
    if (auto added = folders_.add(host_.root() / folder, make); !added) return added;
  }
  return {};
}

}  // namespace ferry::agent
