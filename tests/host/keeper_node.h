// SPDX-License-Identifier: Apache-2.0
// A node with hostd's rounds: a fake host, and a stand-in for the device plugin that follows its files.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "api/desired_state.h"
#include "api/host_status.h"
#include "host/node_keeper.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/locks.h"
#include "tests/host/three_t4s.h"
#include "tests/support/must.h"
#include "vfio/bind/fence.h"
#include "vfio/quiesce/release.h"

namespace ferry::host {

/// Free, but for what a test says.
class DeviceUsers final : public vfio::UseProbe {
 public:
  std::multimap<std::string, vfio::DeviceUser> held;  ///< by device
  std::function<void()> before_scan;
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    if (before_scan) before_scan();
    vfio::UseReport report;
    for (const vfio::UseQuestion& question : questions)
      for (auto [user, end] = held.equal_range(question.device); user != end; ++user)
        report.users[question.device].push_back(user->second);
    return report;
  }
};

/// Answers as another probe, and reports in addition that it could not see everything.
class Cautious final : public vfio::UseProbe {
 public:
  explicit Cautious(vfio::UseProbe& as) : as_(as) {}
  std::string blind;
  std::vector<std::string> unknown;
  std::optional<Error> error;
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    if (error) return fail(Error(*error));
    auto report = as_.look(questions);
    if (report) report->blind = blind;
    if (report) report->unknown = unknown;
    return report;
  }

 private:
  vfio::UseProbe& as_;
};

/// Records each service that it is asked to start. Every start succeeds unless a test says otherwise.
class Orders final : public vfio::ServiceManager {
 public:
  std::vector<std::string> started;
  bool fails = false;
  Result<> stop(const std::string& /*unit*/) override { return {}; }
  Result<> start(const std::string& unit) override {
    started.push_back(unit);
    return fails ? Result<>(fail(Errc::failed, unit + " does not start")) : Result<>();
  }
};

/// A driver without locks, except for locks that a killed run left.
class Locks final : public vfio::DriverLock {
 public:
  std::vector<std::string> released;
  bool fails = false;
  bool has(const vfio::PciAddress& /*device*/) const override { return false; }
  Result<> take(const vfio::PciAddress& /*device*/) override { return {}; }
  Result<> release(const vfio::PciAddress& device) override {
    released.push_back(device.text());
    return fails ? Result<>(fail(Errc::failed, "the driver says no")) : Result<>();
  }
};

inline vfio::DeviceUser vm(int pid) {
  return {.kind = vfio::DeviceUser::Kind::virtual_machine,
          .name = "tenant",
          .pid = pid,
          .what = "its group",
          .pod_uid = "uid-7"};
}

inline constexpr const char* kAllAway = "  - {devices: all, mode: passthrough}\n";
inline constexpr const char* kAllBack = "  - {devices: all, mode: host}\n";
inline constexpr const char* kFirstBack =
    "  - {devices: all, mode: passthrough}\n  - {devices: [0], mode: host}\n";
inline constexpr const char* kDivided = "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n";

/// The host of a keeper, with a stand-in for the device plugin.
class NodeKeeperTest : public ThreeT4s {
 protected:
  using Clock = NodeKeeper::Clock;
  using News = NodeKeeper::News;
  static constexpr const char* kDesired = "var/lib/ferry/desired.json";
  static constexpr const char* kServing = "var/lib/ferry/serving.json";

  NodeKeeperTest() { kernel_.file("proc/sys/kernel/random/boot_id", "b\n"); }

  NodeContext context(const NodeProbes& uses) {
    const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                       .classes = {vfio::PciClass::display_3d},
                                       .on_request = {vfio::PciClass::bridge_other},
                                       .of_other_vendors = {vfio::PciClass::display_3d}};
    return {.rebind_context = {.host = &kernel_,
                               .writer = &kernel_,
                               .probe = &uses.for_rebinds,
                               .rules = rules,
                               .on_step = {},
                               .driver_lock = &locks_,
                               .service_manager = &services_},
            .vgpu_host = {.host = kernel_,
                          .writer = kernel_,
                          .uses = uses.for_vgpus,
                          .rules = rules,
                          .node = "node-a"},
            .resources = resources_};
  }
  NodeKeeper make_keeper() {
    return {kernel_,
            {.for_rebinds = users_, .for_vgpus = vgpu_users_, .open_nodes = open_users_},
            [this](const NodeProbes& uses) { return context(uses); },
            settings_};
  }
  /// `items`: of the policy's list.
  void want(const std::string& items, std::uint64_t generation = 1) {
    const api::DesiredFile desired{
        .generation = generation,
        .policy = "a",
        .config = ConfigText{.file = {}, .text = "version: v2\n" + keys_ + "policies:\n  a:\n" + items},
        .source = "a test",
        .cc_mode = cc_mode_};
    kernel_.file(kDesired, api::desired_file_text(desired));
  }
  Round round(News news = News::anything) {
    now_ += std::chrono::seconds(1);
    return keeper_.round(news);
  }
  /// Runs rounds as the loop does: the plugin reads the withdrawals and answers, which leads to the next
  /// round.
  Round rounds() {
    auto last = round();
    for (int i = 0; i < 10 && plugin_follows(); ++i) last = round();
    return last;
  }

  api::HostStatus state() const {
    return test::must(api::read_host_status(test::must(kernel_.read_file("run/ferry/status.json"))));
  }
  api::AcceleratorStatus gpu(const std::string& address) const {
    for (const api::AcceleratorStatus& one : state().accelerators)
      if (one.address.text() == address) return one;
    throw std::runtime_error("no " + address + " in status.json");
  }
  std::vector<std::string> unavailable() const {
    std::vector<std::string> ids;
    for (const api::UnavailableDevice& one : state().unavailable) ids.push_back(one.id);
    return ids;
  }
  std::vector<std::string> drivers() const {
    std::vector<std::string> out;
    for (const char* address : kGpus) out.push_back(kernel_.driver_of(address));
    return out;
  }
  std::vector<std::string> host_writes() const {
    std::vector<std::string> out = kernel_.writes();
    std::erase_if(out, [](const std::string& write) { return write.find("run/ferry") != std::string::npos; });
    return out;
  }

  // -- the plugin --
  void start_plugin() {
    liveness_.emplace(test::must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock")));
    plugin_follows();
  }
  /// It runs, and all GPUs go to it.
  void start_plugin_with_all() {
    want(kAllAway);
    start_plugin();
    rounds();
  }
  void kill_plugin() { liveness_.reset(); }
  /// It has read status.json, and lists what is on vfio, and vGPUs, and is not withdrawn; what it has listed
  /// before also without a driver; what is allocated in any case. Whether its file is another now.
  bool plugin_follows() {
    if (!liveness_ || silent_) return false;
    const auto text = kernel_.read_file("run/ferry/status.json");
    const auto orders = text ? test::must(api::read_plugin_orders(*text)) : api::PluginOrders();
    auto devices = nlohmann::json::array();
    const auto add = [&](const std::string& id, unsigned group) {
      const bool allocated = allocated_.contains(id);
      if (!allocated && std::ranges::any_of(orders.unavailable, [&](const api::UnavailableDevice& one) {
            return one.id == id || (kata_ && iommu_group_of(kernel_, one.id) == group);
          })) {
        listed_.erase(id);
        return;
      }
      listed_.insert(id);
      const bool unfit = std::ranges::find(orders.unfit, id, &api::UnfitDevice::id) != orders.unfit.end();
      devices.push_back({{"id", kata_ ? std::to_string(group) : id},
                         {"healthy", !unfit},
                         {"iommu_group", group},
                         {"allocated", allocated}});
      if (const auto used = used_since_.find(id); used != used_since_.end())
        devices.back()["used_since"] = used->second;
    };
    for (const char* address : kGpus) {
      const std::string driver = kernel_.driver_of(address);
      if (driver == "vfio-pci" || (driver.empty() && listed_.contains(address)))
        add(address, *iommu_group_of(kernel_, address));
      if (!driver.empty() && driver != "vfio-pci") listed_.erase(address);
      for (const std::string& vgpu : mdev_.devices_on(address)) add(vgpu.substr(vgpu.find(' ') + 1), 200);
    }
    const nlohmann::json file = {{"version", 2},
                                 {"state_generation", orders.generation + answer_ahead_},
                                 {"resources", {{{"name", "nvidia.com/T4"}, {"devices", devices}}}}};
    const std::string now = file.dump();
    if (now == kernel_.read_file("run/ferry/plugin/advertised.json").value_or("")) return false;
    kernel_.file("run/ferry/plugin/advertised.json", now);
    return true;
  }

  DeviceUsers users_;
  Cautious vgpu_users_{users_};
  Cautious open_users_{users_};
  Orders services_;
  Locks locks_;
  KeeperSettings settings_{.gpus_with_claims = [this]() -> Result<GpusWithClaims> {
                             if (claims_error_) return fail(Error(*claims_error_));
                             if (undone_after_reads_ && (*undone_after_reads_)-- == 0) prepared_.clear();
                             return GpusWithClaims{
                                 .gpus = claimed_,
                                 .missing_functions = missing_functions_,
                                 .made_functions = test::must(load_claim_record(kernel_)).made_functions,
                                 .prepared = prepared_,
                                 .fault = claims_fault_};
                           },
                           .lock_patience = std::chrono::milliseconds(1),
                           .watch_ends = [](const std::set<int>& processes) { return processes.size() <= 2; },
                           .now = [this] { return now_; }};
  NodeKeeper keeper_ = make_keeper();
  Clock::time_point now_ = Clock::time_point() + std::chrono::hours(1);
  std::optional<LivenessLock> liveness_;
  std::set<std::string> allocated_;
  std::map<std::string, std::uint64_t> used_since_;  ///< api::AdvertisedDevice::used_since
  std::string keys_ = "sanitize: off\n";             ///< of the policy, beside the list
  std::optional<vfio::WantedMode> cc_mode_;          ///< of the desired state
  std::set<std::string> listed_;
  std::set<vfio::PciAddress> claimed_;  ///< the GPUs that claims have
  std::vector<MissingFunctions> missing_functions_;
  std::vector<Claim> prepared_;
  policy::ResourceNames resources_;
  std::optional<int> undone_after_reads_;  ///< so many reads of the record later, prepared_ is empty
  std::optional<Error> claims_fault_;
  std::optional<Error> claims_error_;
  bool silent_ = false;
  bool kata_ = false;
  std::uint64_t answer_ahead_ = 0;
};

}  // namespace ferry::host
