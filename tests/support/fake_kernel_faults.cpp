// SPDX-License-Identifier: Apache-2.0
// The faults of the fake kernel: a change that fails, that hangs, or at which the process dies.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/fake_kernel.h"

namespace ferry::test {
namespace fs = std::filesystem;

void FakeKernel::set_fault(std::size_t n, Fault fault) {
  std::erase_if(faults_, [&](const auto& other) { return other.second.kind == fault.kind; });
  faults_[counted_ + n] = fault;
}

void FakeKernel::fail_change(std::size_t n, int error) {
  set_fault(n, {.kind = Fault::Kind::fail, .error = error});
}

void FakeKernel::hang_change(std::size_t n) {
  set_fault(n, {.kind = Fault::Kind::hang});
}

void FakeKernel::hang_write(const HostChange& change) {
  hanging_ = change;
}

void FakeKernel::die_at_change(std::size_t n) {
  set_fault(n, {.kind = Fault::Kind::die});
}

void FakeKernel::release_stuck(Ending ending) {
  stuck_.clear();
  hanging_reads_.clear();
  remove("run/ferry/stuck-writes");
  for (const auto& [address, driver] : std::exchange(hidden_, {})) show_driver(driver, address);
  for (const auto& [address, driver] : std::exchange(shown_, {})) hide_driver(driver, address);
  for (const auto& [path, value] : std::exchange(hung_, {})) {
    if (ending == Ending::without_effect) continue;
    if (path == "module") {
      bring_module(value);
    } else {
      (void)react(path, value);
    }
  }
}

std::vector<HostChange> FakeKernel::changes_since_hang() const {
  if (hung_.empty()) return {};
  return {changes_.begin() + static_cast<std::ptrdiff_t>(hung_since_), changes_.end()};
}

bool FakeKernel::stuck_device(const std::string& path, const std::string& value) const {
  return std::any_of(stuck_.begin(), stuck_.end(), [&](const std::string& device) {
    return value == device || path.find("/" + device + "/") != std::string::npos;
  });
}

int FakeKernel::next_change(const std::string& path, const std::string& value, bool& stuck) {
  ++counted_;
  if (hanging_ == HostChange{.path = path, .value = value}) {
    hanging_.reset();
    faults_[counted_] = {.kind = Fault::Kind::hang};
  }
  if (const auto fault = faults_.extract(counted_)) {
    switch (fault.mapped().kind) {
      case Fault::Kind::die:
        ::_exit(EXIT_SUCCESS);
      case Fault::Kind::fail:
        return fault.mapped().error;
      case Fault::Kind::hang:
        for (const auto& [address, function] : functions_) {
          if (value == address || path.find("/" + address + "/") != std::string::npos) stuck_.insert(address);
        }
        if (path == "module" || path == "unload") stuck_.insert(value);
        stuck = true;
        return 0;
    }
  }
  for (const auto& [change, error] : lasting_) {
    if (path == change.path && (value == change.value || path.starts_with("run/"))) return error;
  }
  stuck = stuck_device(path, value);
  if (!stuck) changes_.push_back({.path = path, .value = value});
  return 0;
}

void FakeKernel::record_stuck(const std::string& what, std::string_view value) {
  const int pid = next_pid_++;
  file(fs::path("proc") / std::to_string(pid) / "stat",
       fmt::format("{} (ferry) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n", pid));
  const nlohmann::json record = {
      {"version", 1},         {"pid", pid},
      {"start_time", "4242"}, {"boot_id", read_attribute("proc/sys/kernel/random/boot_id").value_or("")},
      {"act", what},          {"value", value}};
  file(fs::path("run/ferry/stuck-writes") / (std::to_string(pid) + ".json"), record.dump());
}

}  // namespace ferry::test
