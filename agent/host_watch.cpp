// SPDX-License-Identifier: Apache-2.0
#include "agent/host_watch.h"

#include <filesystem>
#include <utility>

#include "agent/desired_state/wish_file.h"
#include "agent/seen_host.h"
#include "common/plugin_files.h"

namespace ferry::agent {

HostWatch::HostWatch(EventLoop& loop, HostFs& host, EventLoop::Job changed)
    : host_(host), folders_(loop, std::move(changed)) {}

Result<> HostWatch::begin() {
  for (const char* file : {kWishFile, kStateFile, kOfferedFile}) {
    const auto folder = std::filesystem::path(file).parent_path();
    const auto make = [this, folder] { return host_.make_directory(folder); };
    if (auto added = folders_.add(host_.root() / folder, make); !added) return added;
  }
  return {};
}

}  // namespace ferry::agent
