// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/plugin.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "api/host_status.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/process/this_process.h"
#include "common/rpc/rpc_queue.h"
#include "kubevirt-plugin/advertised_file.h"
#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/cdi/cdi_files.h"
#include "kubevirt-plugin/discovery/background_scan.h"
#include "kubevirt-plugin/discovery/sysfs_check.h"
#include "kubevirt-plugin/server/kubelet_transport.h"
#include "kubevirt-plugin/shared_directory.h"

namespace ferry::plugin {
namespace {

// A bind of one IOMMU group causes several events, and one scan covers all of them.
constexpr auto kSettle = std::chrono::milliseconds(50);
// A pod with many devices, or many pods at once, change the lists several times in a row.
constexpr auto kTogether = std::chrono::milliseconds(20);
// The number of failed first scans after which the process ends.
constexpr int kFirstTries = 6;
// The pause after which startup work is over and its memory can be returned.
constexpr auto kCalm = std::chrono::milliseconds(300);

/// The plugin process: passes scans to AllocationCore, and its snapshots to advertised.json.
class Plugin : Pinned {
 public:
  Plugin(HostFs& host, const PluginOptions& options, EventLoop& loop)
      : host_(host),
        options_(options),
        loop_(loop),
        scan_(host, options.rules, options.read_vgpus, loop, [this](auto scan) { scanned(std::move(scan)); }),
        check_(host, options.rules),
        core_(check_,
              {.changed = [this] { loop_.post([this] { snapshot_changed(); }); },
               .doubted =
                   [this] {
                     loop_.post([this] {
                       scan_.doubt();
                       scan_soon();
                     });
                   }},
              options.vgpu_placement),
        monitor_(
            host, loop, queue_, core_, gate_,
            [this] {
              drop_released();
              publish_soon();
            },
            monitor_settings(options)),
        host_watch_(host, loop, options.rules.kata,
                    {.changed = [this] { scan_soon(); },
                     .node_gone = [this](const std::string& node) { core_.node_gone(node); }}),
        shared_(host, loop, options,
                {.claimed = [this] { serve(); },
                 .changed = [this] { follow_orders(); },
                 .restored =
                     [this] {
                       published_.clear();  // advertised.json was removed with its directory
                       follow_orders();
                       publish_soon();
                     },
                 .lost = [this](Error error) { end_by(std::move(error)); }}) {
    // The callback runs on the queue's thread.
    gate_.on_hold([this](EventLoop::Clock::time_point until) {
      loop_.post([this, until] { loop_.at(until, [this, until] { gate_.refuse_held(until); }); });
    });
  }

  Result<> run(const std::stop_token& stop) {
    auto transport = open_transport();
    if (!transport) return fail(std::move(transport).error());
    transport_ = std::move(*transport);
    shared_.claim();
    loop_.run(stop);
    host_watch_.leave();
    shared_.leave();
    gate_.close({.code = Errc::unreachable, .message = "the plugin is ending"});
    const auto registered = transport_ ? transport_->registered() : std::set<std::string>();
    transport_.reset();
    // advertised.json stays: hostd and the next process use its allocations until the kubelet lists the pods.
    // It is written only if an allocation was made since: with a newer time, all pods would seem too new for
    // the kubelet to list. The end of the liveness lock shows that no plugin serves.
    if (advertised_) {
      if (auto written = write_advertised(registered); !written && !failure_)
        failure_ = std::move(written).error();
    }
    if (failure_) return fail(std::move(*failure_));
    return {};
  }

 private:
  void serve() {
    const auto before = read_former(host_, options_.advertised_file);
    cdi_.begin(kata_resources_of(before));
    core_.remember_used(used_by(before));
    scan_.remember(before.fatal_errors);
    for (const auto& resource : before.resources) names_.insert(resource.name);
    host_watch_.begin();  // before the scan, so that no event is missed
    shared_.watch();
    scan_.begin();
  }

  /// Serves or goes on standby, according to hostd's last order.
  Result<> serve_or_stand_by() {
    if (!shared_.orders().standby.empty()) return standby_ ? Result<>() : standby();
    if (std::exchange(standby_, false)) {
      spdlog::info("the node is ours to serve again");
      monitor_.begin_anew();  // the other plugin's allocations must be learnt first
      publish_soon();
    }
    return serve_names();
  }

  /// The names that the kubelet knows or has to know: of resources with a device, of pods' devices, and all
  /// that were served before. A name that never had a device to give stays free for a DeviceClass.
  std::set<std::string> names_to_serve() const {
    std::set<std::string> names = names_;
    const auto snapshot = core_.snapshot();
    for (const auto& resource : snapshot->resources)
      if (!resource->devices.empty()) names.insert(resource->name.text());
    for (const auto& device : snapshot->unlisted) names.insert(device.resource);
    return names;
  }

  Result<> serve_names() {
    names_ = names_to_serve();
    return transport_->advertise_resources(names_);
  }

  /// Ends every stream and removes every socket, as at the end, so that each name has one owner at the
  /// kubelet. The known allocations and the lists stay.
  Result<> standby() {
    auto idle = open_transport();
    if (!idle) return fail(std::move(idle).error());
    standby_ = true;
    spdlog::warn(
        "standby: {}; nothing is advertised to the kubelet until that ends: hostd says so in /{} as "
        "long as the host's /{} does",
        shared_.orders().standby, api::kStatusFile, api::kServingFile);
    // No call may wait at the gate when a server ends. It opens after standby, once allocations are known.
    gate_.close({.code = Errc::refused, .message = "the plugin is on standby: " + shared_.orders().standby});
    transport_ = std::move(*idle);
    registrations_changed();
    return {};
  }

  /// The plugin watcher's directory has no kubelet socket.
  static PodResourcesMonitor::Settings monitor_settings(const PluginOptions& options) {
    auto settings = options.pod_resources;
    settings.kubelet_socket =
        options.plugin_watcher ? std::filesystem::path() : options.kubelet_directory / "kubelet.sock";
    return settings;
  }

  Result<std::unique_ptr<KubeletTransport>> open_transport() {
    const std::string where = (host_.root() / options_.kubelet_directory).string();
    auto directory = host_.open(options_.kubelet_directory, O_RDONLY | O_DIRECTORY);
    if (!directory) {
      if (!is_gone(directory.error())) return fail(std::move(directory).error());
      return fail(Errc::not_found, fmt::format("the kubelet's directory {} does not exist", where),
                  "run this on a node whose kubelet has been started once, or name its directory");
    }
    return KubeletTransport::open(
        {.loop = loop_, .queue = queue_, .core = core_, .gate = gate_, .options = options_},
        std::move(*directory), where,
        {.changed = [this] { registrations_changed(); },
         .failed = [this](Error error) { end_by(std::move(error)); }});
  }

  void follow_orders() {
    shared_.read_orders();
    // A change of standby is followed at once, without a scan.
    if (advertised_ && standby_ == shared_.orders().standby.empty())
      if (auto done = serve_or_stand_by(); !done) failed_to_advertise(std::move(done).error());

    // The comparison is with AllocationCore's state, since the scan in between may have failed.
    const api::PluginOrders& orders = shared_.orders();
    if (orders.unavailable != applied_orders_.unavailable || orders.unfit != applied_orders_.unfit)
      return scan_soon();  // which follows all orders together
    follow_sanitizing();
    if (std::exchange(applied_orders_.generation, orders.generation) != orders.generation) publish_soon();
  }

  /// Also tries calls again that wait for hostd.
  void follow_sanitizing() {
    const auto& orders = shared_.orders().sanitized;
    if (orders == applied_orders_.sanitized) return;
    applied_orders_.sanitized = orders;
    core_.follow(orders);
    gate_.retry_held();
  }

  /// Applies hostd's orders to the scan. Unavailable devices leave it, as if they had another purpose: they
  /// leave the lists, or stay until their pods end. An unavailable GPU also stands for its vGPUs: a claim may
  /// make one that hostd has not listed yet. Returns the devices that the scan would have advertised.
  std::vector<NotAdvertised> apply_orders(ResourceSet& scan) {
    std::vector<NotAdvertised> withheld;
    for (const auto& unavailable : shared_.orders().unavailable) {
      const auto is_it = [&](const auto& device) { return device.id == unavailable.id; };
      for (auto* const lost : {&scan.not_advertised, &scan.driverless}) std::erase_if(*lost, is_it);
      std::erase_if(scan.vanished, is_it);  // hostd made it unavailable, which explains its absence
      const NotAdvertised reason{.id = unavailable.id, .reason = "unavailable: " + unavailable.reason};
      for (auto& resource : scan.resources) {
        for (const ScannedDevice& device : resource.devices)
          if (device.gpu == unavailable.id && device.host_name() != unavailable.id) {
            withheld.push_back({.id = device.id, .reason = reason.reason});
            scan.left_to_host.push_back(withheld.back());
          }
        std::erase_if(resource.devices,
                      [&](const ScannedDevice& device) { return device.gpu == unavailable.id; });
        const auto matches = [&](const ScannedDevice& device) {
          return device.id == unavailable.id || device.host_name() == unavailable.id;
        };
        if (std::erase_if(resource.devices, matches) > 0) withheld.push_back(reason);
      }
      scan.left_to_host.push_back(reason);
    }

    // Functions that hostd has found unfit, by a fact that this process may not see, are listed as Unhealthy.
    for (const api::UnfitDevice& unfit : shared_.orders().unfit)
      for (auto& resource : scan.resources)
        for (ScannedDevice& device : resource.devices)
          if (device.host_name() == unfit.id && device.driver == unfit.driver && device.problem.empty())
            device.problem = unfit.reason;
    return withheld;
  }

  void scanned(Result<ResourceSet> scan) {
    if (!scan) {
      // A host without a PCI bus is a wrong mount, which no retry repairs. A plugin that cannot begin for
      // long ends, so that its supervisor notices.
      const bool goes_on = advertised_ || (!is_gone(scan.error()) && ++failed_before_first_ < kFirstTries);
      return goes_on ? try_again(scan.error()) : end_by(std::move(scan).error());
    }
    if (advertised_) {
      use_scan(std::move(*scan));
      if (auto done = serve_or_stand_by(); !done) failed_to_advertise(std::move(done).error());
      return;
    }

    // The plugin begins to serve with the first scan; until then the earlier process's file stands.
    const auto before = allocated_by(read_former(host_, options_.advertised_file));
    use_scan(std::move(*scan));
    if (failure_) return;
    advertised_ = true;
    // The kubelet may list those pods only in a moment. Allocations that are over are released as usual.
    core_.reconcile(before, {});
    publish_soon();  // even if there is nothing to list
    auto serves = serve_or_stand_by();
    monitor_.begin();  // after the registration, which does not wait for it: calls wait at the gate
    if (serves) return;
    transport_->serves_any() ? failed_to_advertise(std::move(serves).error())
                             : end_by(std::move(serves).error());
  }

  /// A kubelet's directory that is removed stays removed for a process that has it open, and a new one is not
  /// noticed. While nothing is served, no other event would show it.
  void failed_to_advertise(Error error) {
    if (error.code == Errc::not_found) return end_by(std::move(error));
    try_again(error);
  }

  void try_again(const Error& error) {
    spdlog::error("{}", error.message);
    scan_in(options_.after_failure);
  }

  void end_by(Error error) {
    failure_ = std::move(error);
    loop_.finish();
  }

  void use_scan(ResourceSet scan) {
    if (nodes_folder_was_removed(host_)) {
      // The result of a scan without any visible node is not published.
      return end_by(
          {.code = Errc::not_found,
           .message = "/dev/vfio was removed, and this container has the removed folder: no node of vfio "
                      "can be seen",
           .hint =
               "start the container again, which mounts the folder that is there now; a kubelet does so"});
    }
    const auto found = options_.rules.kata ? scan.resources : std::vector<Resource>();
    shared_.read_orders();  // after the scan, since hostd announces new devices before it creates them
    auto not_advertised = apply_orders(scan);
    not_advertised.insert(not_advertised.begin(), scan.not_advertised.begin(), scan.not_advertised.end());
    for (const auto& warning : scan.warnings)
      if (warned_.insert(warning).second) spdlog::warn("{}", warning);
    for (const auto& device : scan.not_advertised)
      if (warned_.insert(device.id + device.reason).second)
        spdlog::log(device.by_kind ? spdlog::level::info : spdlog::level::warn, "{} is not advertised: {}",
                    device.id, device.reason);
    for (const auto& device : scan.vanished) spdlog::warn("{}: {}", device.id, device.reason);
    if (std::exchange(not_advertised_, not_advertised) != not_advertised_) publish_soon();
    fatal_errors_ = std::move(scan.fatal_errors);
    auto lost = std::move(scan.not_advertised);
    // A device whose kind has changed is well, and no longer the device that was advertised.
    const auto others = std::ranges::partition(lost, [](const auto& device) { return !device.by_kind; });
    std::ranges::move(others, std::back_inserter(scan.left_to_host));
    lost.erase(others.begin(), others.end());
    std::ranges::move(scan.driverless, std::back_inserter(lost));
    bool written = true;
    if (options_.rules.kata)  // before the kubelet learns of the devices
      written = cdi_.replace(found, scan.resources, monitor_.known());
    core_.replace(scan.resources, lost, scan.left_to_host);
    follow_sanitizing();
    written = cdi_.drop_released(monitor_.known()) && written;  // after they can no longer be allocated
    if (std::exchange(applied_orders_, shared_.orders()) != shared_.orders()) publish_soon();
    drop_memory_soon();
    if (host_watch_.watch_nodes()) scan_soon();  // nodes that came before the watch raised no event
    const bool settled = written && !scan.unsettled;
    scan_in(settled ? options_.rescan : options_.after_failure);
  }

  void drop_released() {
    if (!cdi_.drop_released(monitor_.known())) scan_in(options_.after_failure);
  }

  /// Scans after an event.
  void scan_soon() {
    if (!std::exchange(scan_waits_, true)) set_scan(kSettle);
  }
  /// Scans after `pause` even without an event; a scan that is due comes sooner.
  void scan_in(EventLoop::Clock::duration pause) {
    if (!scan_waits_) set_scan(pause);
  }
  void set_scan(EventLoop::Clock::duration pause) {
    loop_.cancel(scan_timer_);
    scan_timer_ = loop_.at(EventLoop::Clock::now() + pause, [this] {
      scan_waits_ = false;
      scan_.begin();
    });
  }

  /// Drops the memory of the start after a quiet moment.
  void drop_memory_soon() {
    loop_.cancel(memory_timer_);
    memory_timer_ = loop_.at(EventLoop::Clock::now() + kCalm, drop_startup_memory);
  }

  void snapshot_changed() {
    drop_memory_soon();
    monitor_.snapshot_changed();
    if (advertised_ && !standby_ && names_to_serve() != names_)  // a pod has a device of another name
      if (auto done = serve_names(); !done) failed_to_advertise(std::move(done).error());
    drop_released();
    publish_soon(kTogether);  // after the Allocate that changed it, not beside it
  }

  void registrations_changed() {
    const bool there = !transport_->registered().empty();
    if (std::exchange(kubelet_reads_, there) != there)
      there ? monitor_.kubelet_is_there() : monitor_.kubelet_is_gone();
    publish_soon();
  }

  /// Publishes after that pause, and once for all changes within kTogether.
  void publish_soon(EventLoop::Clock::duration pause = {}) {
    if (!advertised_ || std::exchange(publish_waits_, true)) return;
    loop_.at(std::max(EventLoop::Clock::now() + pause, published_at_ + kTogether), [this] {
      publish_waits_ = false;
      drop_memory_soon();
      auto written = write_advertised(transport_->registered());
      if (written) return;
      spdlog::error("{}", written.error().message);
      loop_.cancel(publish_again_);
      publish_again_ = loop_.at(EventLoop::Clock::now() + options_.after_failure, [this] { publish_soon(); });
    });
  }

  Result<> write_advertised(const std::set<std::string>& registered) {
    // Until the allocations are known, an unavailable device that is not listed may be a pod's.
    auto advertised = advertised_resources(*core_.snapshot(), registered, not_advertised_,
                                           monitor_.known() ? applied_orders_.generation : 0, fatal_errors_,
                                           standby_ ? shared_.orders().standby : std::string());
    const auto names = names_to_serve();
    std::erase_if(advertised.resources, [&](const auto& resource) { return !names.contains(resource.name); });
    const auto content = api::advertised_resources_text(advertised);
    if (content == published_) return {};
    if (auto written = host_.write_file(options_.advertised_file, content); !written) return written;
    published_ = content;
    published_at_ = EventLoop::Clock::now();
    return {};
  }

  HostFs& host_;
  const PluginOptions& options_;
  EventLoop& loop_;
  BackgroundScan scan_;
  RpcQueue queue_;  // outlives all calls and servers, and the threads that answer in place of its own
  const SysfsCheck check_;
  AllocationCore core_;
  CdiPublisher cdi_{host_, kCdiDirectory, core_};
  AllocateGate gate_{options_.sanitize_patience};
  PodResourcesMonitor monitor_;
  bool kubelet_reads_ = false;
  bool standby_ = false;         // on standby: the transport serves nothing
  std::set<std::string> names_;  // of resources that are served or were by the earlier process
  std::vector<NotAdvertised> not_advertised_;
  std::vector<api::FatalErrorsOf> fatal_errors_;
  std::set<std::string> warned_;
  bool scan_waits_ = false;
  EventLoop::Timer scan_timer_;
  bool publish_waits_ = false;
  std::string published_;
  EventLoop::Clock::time_point published_at_;
  EventLoop::Timer publish_again_;  // after a failure
  EventLoop::Timer memory_timer_;
  HostWatch host_watch_;
  SharedDirectory shared_;
  bool advertised_ = false;
  int failed_before_first_ = 0;       // scans
  api::PluginOrders applied_orders_;  // AllocationCore has these unavailable devices
  std::unique_ptr<KubeletTransport> transport_;
  std::optional<Error> failure_;
};

}  // namespace

Result<> run_plugin(HostFs& host, const PluginOptions& options, const std::stop_token& stop) {
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  return Plugin(host, options, **loop).run(stop);
}

}  // namespace ferry::plugin
