// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/plugin.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fcntl.h>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "api/host_status.h"
#include "common/event_loop.h"
#include "common/process/this_process.h"
#include "hostfs/directory_watch.h"
#include "hostfs/locks.h"
#include "kubevirt-plugin/advertised_file.h"
#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/cdi/cdi_files.h"
#include "kubevirt-plugin/discovery/background_scan.h"
#include "kubevirt-plugin/discovery/sysfs_check.h"
#include "kubevirt-plugin/server/kubelet_transport.h"
#include "kubevirt-plugin/server/rpc_queue.h"
#include "vfio/pci/uevents.h"

namespace ferry::plugin {
namespace {

// A move of one IOMMU group causes several events, and one scan covers all of them.
constexpr auto kSettle = std::chrono::milliseconds(50);
// A pod with many devices, or many pods at once, change the lists several times in a row.
constexpr auto kTogether = std::chrono::milliseconds(20);
// The number of failed first scans after which the process ends.
constexpr int kFirstTries = 6;
// The pause after which startup work is over and its memory can be returned.
constexpr auto kCalm = std::chrono::milliseconds(300);

/// The plugin process: passes scans to AllocationCore, and its snapshots to the offered file.
class Plugin {
 public:
  Plugin(HostFs& host, const PluginOptions& options, EventLoop& loop)
      : host_(host),
        options_(options),
        loop_(loop),
        scan_(host, options.rules, options.read_vgpus, loop,
              [this](auto offer) { scanned(std::move(offer)); }),
        check_(host, options.rules),
        core_(check_,
              {.changed = [this] { loop_.post([this] { snapshot_changed(); }); },
               .doubted = [this] { loop_.post([this] { scan_soon(); }); }},
              options.vgpu_placement),
        holders_(
            host, loop, queue_, core_, gate_, [this] { holders_known(); }, holder_settings(options)) {}
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  Plugin(Plugin&&) = delete;
  Plugin& operator=(Plugin&&) = delete;
  ~Plugin() = default;

  Result<> run(const std::stop_token& stop) {
    auto transport = open_transport();
    if (!transport) return fail(std::move(transport).error());
    transport_ = std::move(*transport);
    show_liveness();
    claim_service() ? serve() : wait_for_predecessor();
    loop_.run(stop);
    for (auto& folder : node_folders_) leave(folder.watch);
    leave(state_);
    gate_.close({.code = make_error_code(Errc::unreachable), .message = "the plugin is ending", .hint = {}});
    const auto registered = transport_ ? transport_->registered() : std::set<std::string>();
    transport_.reset();
    // The file stays, with the last that was given out: hostd and a successor go by it until the kubelet
    // lists its pod. It is written only if something was given out since: a new time on it would make all
    // pods too new to be listed. That nobody serves any more is for liveness_ to tell.
    if (advertised_) {
      if (auto written = write_advertised(registered); !written && !failure_)
        failure_ = std::move(written).error();
    }
    if (failure_) return fail(std::move(*failure_));
    return {};
  }

 private:
  /// If two plugins run, as in a rolling update, only one serves and writes, so that its answer to hostd is
  /// not taken for both. False: another one serves. If the lock cannot be read, this one serves, since no
  /// offered file can be written there either.
  bool claim_service() {
    auto claimed = InstanceLock::claim(host_, service_lock());
    if (claimed) {
      only_.emplace(std::move(*claimed));
    } else if (claimed.error().code == Errc::refused) {
      return false;
    } else {
      spdlog::error("{}", claimed.error().message);
    }
    return true;
  }

  void wait_for_predecessor() {
    spdlog::info("another ferry plugin serves this node: waiting for its end");
    turn_.emplace(loop_, host_, service_lock(), [this](InstanceLock only) {
      only_.emplace(std::move(only));
      turn_.reset();
      show_liveness();  // the file may have been replaced meanwhile
      serve();
    });
  }

  /// The lock that the writer of the offered file holds.
  std::filesystem::path service_lock() const {
    return std::filesystem::path(options_.advertised_file).replace_extension("lock");
  }

  void serve() {
    former_ = former_resources();
    core_.came_before(former_);
    scan_.remember(read_advertised(host_, options_.advertised_file).fatal_errors);
    watch_host();  // before the scan, so that no event is missed
    watch_state();
    scan_.begin();
  }

  /// Begins to serve with the first scan; until then the earlier process's file stands.
  Result<> begin_to_offer(ResourceSet offer) {
    const auto before = allocated_by(read_advertised(host_, options_.advertised_file));
    take_in(std::move(offer));
    advertised_ = true;
    // The kubelet may list those pods only in a moment. Allocations that are over are released as usual.
    core_.reconcile(before, {});
    publish_soon();  // even if there is nothing to list
    holders_.begin();
    return serve_or_stand_by();
  }

  /// Serves or goes on standby, according to hostd's last order.
  Result<> serve_or_stand_by() {
    if (!withdrawals_.standby.empty()) return standby_ ? Result<>() : standby();
    if (std::exchange(standby_, false)) {
      spdlog::info("the node is ours to serve again");
      holders_.begin_anew();  // the other plugin's allocations must be learnt first
      publish_soon();
    }
    return transport_->advertise_resources();
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
        withdrawals_.standby, options_.status_file.string(), api::kServingFile);
    // No call may wait at the gate when a server ends. It opens after standby, once allocations are known.
    gate_.close({.code = make_error_code(Errc::refused),
                 .message = "the plugin is on standby: " + withdrawals_.standby,
                 .hint = {}});
    transport_ = std::move(*idle);
    registrations_changed();
    return {};
  }

  /// Follows a change of standby at once, without a scan.
  void follow_stand_back() {
    if (!advertised_ || standby_ != withdrawals_.standby.empty()) return;
    if (auto done = serve_or_stand_by(); !done) not_done(std::move(done).error());
  }

  /// The plugin watcher's directory has no kubelet socket.
  static PodResourcesMonitor::Settings holder_settings(const PluginOptions& options) {
    auto settings = options.users;
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
    return KubeletTransport::open({.loop = loop_,
                                   .queue = queue_,
                                   .core = core_,
                                   .gate = gate_,
                                   .cdi_names = options_.cdi_names,
                                   .found_by_kubelet = options_.plugin_watcher,
                                   .unanswered = options_.unanswered,
                                   .unread = options_.unread},
                                  std::move(*directory), where,
                                  {.changed = [this] { registrations_changed(); },
                                   .failed = [this](Error error) { end_by(std::move(error)); }});
  }

  /// Kata's resources of an earlier process, perhaps under other names, from its file and its CDI
  /// specifications.
  std::set<std::string> former_resources() const {
    auto names = kata_resources_of(read_advertised(host_, options_.advertised_file));
    names.merge(cdi_files_.resources());
    return names;
  }

  /// Either source of events suffices. Without both, changes are seen when a device is asked about.
  void watch_host() {
    if (auto uevents = vfio::Uevents::open()) {
      uevents_.emplace(std::move(*uevents));
      loop_.watch(uevents_->fd(), [this] {
        if (uevents_->take()) scan_soon();
      });
    } else {
      spdlog::warn("{}", uevents.error().message);
    }
    (void)watch_nodes();
  }

  void leave(const std::optional<DirectoryWatch>& watch) {
    if (!watch) return;
    loop_.forget(watch->fd());
    watch->leave();
  }

  /// Gives whether one is new. /dev/vfio is not there before the first module of VFIO, and its folder
  /// `devices` not before the first device that has a node there.
  bool watch_nodes() {
    bool anew = false;
    for (NodeFolder& folder : node_folders_) anew = watch_nodes(folder) || anew;
    return anew;
  }

  struct NodeFolder {
    const char* path = nullptr;
    std::optional<DirectoryWatch> watch = {};
  };

  bool watch_nodes(NodeFolder& folder) {
    if (folder.watch) return false;
    // udev sets the mode of a node a moment after the kernel has made the node, and a CDI file says the mode.
    auto watch = DirectoryWatch::open(host_.root() / folder.path, options_.rules.kata
                                                                      ? DirectoryWatch::Contents::attributes
                                                                      : DirectoryWatch::Contents::untold);
    if (!watch) return false;
    folder.watch.emplace(std::move(*watch));
    loop_.watch(folder.watch->fd(), [this, &folder] {
      const auto events = folder.watch->read();
      // A loss is listed at once. Only gains wait for a scan.
      for (const DirectoryEvent& event : events)
        if (event.kind == DirectoryEvent::Kind::vanished)
          core_.node_gone(fmt::format("/{}/{}", folder.path, event.name));
      if (std::ranges::find(events, DirectoryEvent::Kind::gone, &DirectoryEvent::kind) != events.end()) {
        loop_.forget(folder.watch->fd());
        folder.watch.reset();
      }
      scan_soon();
    });
    return true;
  }

  /// The kernel removes a folder of /dev with its last node, and creates another for the next node. A
  /// container with the folder mounted keeps the removed one and sees no node any more.
  bool nodes_folder_was_removed() const {
    const auto folder = host_.open("dev/vfio", O_PATH | O_DIRECTORY);
    struct stat status {};
    return folder && ::fstat(folder->get(), &status) == 0 && status.st_nlink == 0;
  }

  /// From now on hostd waits for withdrawals before it moves devices. Without the presence file it does not
  /// wait; it still checks which processes have the devices open.
  void show_liveness() {
    auto shown = LivenessLock::announce(host_, options_.liveness_file);
    if (!shown) return spdlog::error("{}", shown.error().message);
    liveness_.emplace(std::move(*shown));
  }

  /// The shared directory was removed, so other processes do not see the plugin or its lists.
  void meet_again() {
    state_.reset();
    show_liveness();
    if (only_) {
      only_.reset();
      if (!claim_service()) {
        return end_by({.code = make_error_code(Errc::refused),
                       .message = "another ferry plugin has begun to serve this node",
                       .hint = "start one of them alone"});
      }
    }
    if (!watch_state()) loop_.at(EventLoop::Clock::now() + options_.after_failure, [this] { meet_again(); });
    published_.clear();
    state_changed();
    publish_soon();
  }

  bool watch_state() {
    auto watch = DirectoryWatch::open(host_, options_.status_file.parent_path());
    if (!watch) {
      if (warned_.insert(watch.error().message).second) spdlog::warn("{}", watch.error().message);
      return false;
    }
    state_.emplace(std::move(*watch));
    loop_.watch(state_->fd(), [this] {
      const auto events = state_->read();
      // The directory's own removal raises no event while a lock in it, or below it, is open.
      const auto locks = options_.liveness_file.lexically_relative(options_.status_file.parent_path());
      const auto lost = [&](const DirectoryEvent& event) {
        using Kind = DirectoryEvent::Kind;
        return event.kind == Kind::gone || (event.kind == Kind::vanished && event.name == *locks.begin());
      };
      if (std::ranges::any_of(events, lost)) {
        loop_.forget(state_->fd());
        loop_.at(EventLoop::Clock::now() + kSettle, [this] { meet_again(); });  // after the removal
        return;
      }
      const auto ours = [this](const DirectoryEvent& event) {
        return event.name.empty() || event.name == options_.status_file.filename();
      };
      if (std::ranges::any_of(events, ours)) state_changed();
    });
    return true;
  }

  /// An unreadable file leaves the withdrawals as they were.
  void read_state() {
    const auto text = host_.read_file(options_.status_file);
    if (!text && is_gone(text.error())) {
      withdrawals_ = {};
      return;
    }
    auto read = text ? api::read_withdrawals(*text) : Result<api::HostStatus>(fail(Error(text.error())));
    if (read) {
      withdrawals_ = std::move(*read);
    } else if (warned_.insert(read.error().message).second) {
      spdlog::warn("{}", read.error().message);
    }
  }

  void state_changed() {
    read_state();
    follow_stand_back();
    // The comparison is with AllocationCore's state, since the scan in between may have failed.
    if (withdrawals_.withdraw != followed_.withdraw) return scan_soon();
    if (std::exchange(followed_.generation, withdrawals_.generation) != withdrawals_.generation)
      publish_soon();
  }

  /// Removes withdrawn devices from the scan, as if they had another purpose: they leave the lists, or stay
  /// until their pods end. Returns those that the scan would have advertised.
  std::vector<NotAdvertised> withdraw(ResourceSet& offer) {
    std::vector<NotAdvertised> withheld;
    for (const auto& withdrawn : withdrawals_.withdraw) {
      const auto is_it = [&](const auto& device) { return device.id == withdrawn.id; };
      for (auto* const lost : {&offer.not_advertised, &offer.driverless}) std::erase_if(*lost, is_it);
      std::erase_if(offer.vanished, is_it);  // the withdrawal explains its absence
      const NotAdvertised reason{.id = withdrawn.id, .reason = "withdrawn: " + withdrawn.reason};
      for (auto& resource : offer.resources) {
        const auto matches = [&](const AdvertisedDevice& device) {
          return device.id == withdrawn.id || device.host_name() == withdrawn.id;
        };
        if (std::erase_if(resource.devices, matches) > 0) withheld.push_back(reason);
      }
      offer.left_to_host.push_back(reason);
    }
    return withheld;
  }

  void scanned(Result<ResourceSet> offer) {
    if (!offer) return scan_failed(std::move(offer).error());
    if (!advertised_) {
      auto begun = begin_to_offer(std::move(*offer));
      if (begun) return;
      if (transport_->serves_any()) return not_done(std::move(begun).error());
      return end_by(std::move(begun).error());
    }
    take_in(std::move(*offer));
    if (auto done = serve_or_stand_by(); !done) not_done(std::move(done).error());
  }

  /// A kubelet's directory that is removed stays removed for a process that has it open, and a new one is not
  /// noticed. While nothing is served, no other event would show it.
  void not_done(Error error) {
    if (error.code == Errc::not_found) return end_by(std::move(error));
    try_again(error);
  }

  /// A host without a PCI bus is a wrong mount, which no retry repairs. A plugin that cannot begin for long
  /// ends, so that its supervisor notices.
  void scan_failed(Error error) {
    if (advertised_ || (!is_gone(error) && ++failed_before_first_ < kFirstTries)) return try_again(error);
    end_by(std::move(error));
  }

  void try_again(const Error& error) {
    spdlog::error("{}", error.message);
    scan_in(options_.after_failure);
  }

  void end_by(Error error) {
    failure_ = std::move(error);
    loop_.finish();
  }

  void take_in(ResourceSet offer) {
    if (nodes_folder_was_removed()) {
      // The result of a scan without any visible node is not published.
      return end_by(
          {.code = make_error_code(Errc::not_found),
           .message = "/dev/vfio was removed, and this container has the removed folder: no node of vfio "
                      "can be seen",
           .hint =
               "start the container again, which mounts the folder that is there now; a kubelet does so"});
    }
    const auto found = options_.rules.kata ? offer.resources : std::vector<Resource>();
    read_state();  // after the scan, since hostd announces new devices before it creates them
    auto not_advertised = withdraw(offer);
    not_advertised.insert(not_advertised.begin(), offer.not_advertised.begin(), offer.not_advertised.end());
    for (const auto& warning : offer.warnings)
      if (warned_.insert(warning).second) spdlog::warn("{}", warning);
    for (const auto& device : offer.not_advertised)
      if (warned_.insert(device.id + device.reason).second)
        spdlog::log(device.by_kind ? spdlog::level::info : spdlog::level::warn, "{} is not advertised: {}",
                    device.id, device.reason);
    for (const auto& device : offer.vanished) spdlog::warn("{}: {}", device.id, device.reason);
    if (std::exchange(not_advertised_, not_advertised) != not_advertised_) publish_soon();
    fatal_errors_ = std::move(offer.fatal_errors);
    auto lost = std::move(offer.not_advertised);
    // A device whose kind has changed is well, and no longer the device that was advertised.
    const auto others = std::ranges::partition(lost, [](const auto& device) { return !device.by_kind; });
    std::ranges::move(others, std::back_inserter(offer.left_to_host));
    lost.erase(others.begin(), others.end());
    std::ranges::move(offer.driverless, std::back_inserter(lost));
    if (options_.rules.kata) cdi_entries_.replace(found, offer.resources);
    bool written = write_cdi_files(offer.resources);  // before the kubelet learns of the devices
    core_.replace(offer.resources, lost, offer.left_to_host);
    written = drop_cdi_entries() && written;  // after they can no longer be allocated
    if (std::exchange(followed_, withdrawals_) != withdrawals_) publish_soon();
    drop_memory_soon();
    if (watch_nodes()) scan_soon();  // nodes that came before the watch raised no event
    const bool settled = written && !offer.unsettled;
    scan_in(settled ? options_.rescan : options_.after_failure);
  }

  /// False: not all files could be written. The devices that Kata would not find are then Unhealthy.
  bool write_cdi_files(std::vector<Resource>& resources) {
    if (!options_.rules.kata) return true;
    const auto failures = cdi_files_.update(cdi_entries_.resources(), held_by_former_names());
    for (const auto& [failed, error] : failures) {
      spdlog::error("{}", error.message);
      for (auto& resource : resources) {
        if (resource.name.text() != failed) continue;
        for (auto& device : resource.devices)
          device.problem = "Kata would not find it, without its CDI specification: " + error.message;
      }
    }
    look_at_cdi_files();
    return failures.empty();
  }

  void look_at_cdi_files() {
    auto faults = cdi_watch_.look();
    if (!faults) return;
    for (const CdiFault& fault : *faults) {
      if (std::ranges::find(cdi_faults_, fault) != cdi_faults_.end()) continue;
      spdlog::warn("{}: {}: Kata reads no CDI file while this one is wrong, and its pods get no device",
                   fault.file.string(), fault.what);
    }
    if (faults->empty() && !cdi_faults_.empty()) spdlog::info("Kata can read all CDI files again");
    cdi_faults_ = std::move(*faults);
  }

  /// Resources of an earlier process of which pods have devices, or may have.
  std::set<std::string> held_by_former_names() const {
    auto held = former_;
    if (holders_.known())
      std::erase_if(held, [this](const std::string& name) { return !core_.is_claimed(name); });
    return held;
  }

  /// Drops the CDI entries of devices that are neither advertised nor allocated, also those of an earlier
  /// process. A pod that has a device may need its entry again. False: that failed, and is tried again.
  bool drop_cdi_entries() {
    if (!holders_.known()) return true;
    const bool dropped = cdi_entries_.drop_released(*core_.snapshot());
    const auto held = held_by_former_names();
    if (!dropped && held == former_) return true;
    const auto failures = cdi_files_.update(cdi_entries_.resources(), held);
    for (const auto& failure : failures) spdlog::error("{}", failure.error.message);
    if (failures.empty()) former_ = held;  // the dropped resources do not come back
    return failures.empty();
  }

  void holders_known() {
    if (!drop_cdi_entries()) scan_in(options_.after_failure);
    publish_soon();
  }

  /// After an event.
  void scan_soon() {
    if (!std::exchange(scan_waits_, true)) set_scan(kSettle);
  }
  /// Without an event; a scan that is due comes sooner.
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

  /// After a quiet moment.
  void drop_memory_soon() {
    loop_.cancel(memory_timer_);
    memory_timer_ = loop_.at(EventLoop::Clock::now() + kCalm, drop_startup_memory);
  }

  void snapshot_changed() {
    drop_memory_soon();
    holders_.snapshot_changed();
    if (!drop_cdi_entries()) scan_in(options_.after_failure);
    publish_soon(kTogether);  // after the Allocate that changed it, not beside it
  }

  void registrations_changed() {
    const bool there = !transport_->registered().empty();
    if (std::exchange(kubelet_is_there_, there) != there)
      there ? holders_.kubelet_is_there() : holders_.kubelet_is_gone();
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
    // Until the allocations are known, a device that is withdrawn and not listed may be a pod's.
    const auto content = api::advertised_resources_text(advertised_resources(
        *core_.snapshot(), registered, not_advertised_, holders_.known() ? followed_.generation : 0,
        fatal_errors_, standby_ ? withdrawals_.standby : std::string()));
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
  CdiFiles cdi_files_{host_, options_.cdi_directory};
  CdiEntries cdi_entries_;
  CdiWatch cdi_watch_{host_, options_.cdi_directory};
  std::vector<CdiFault> cdi_faults_;
  std::set<std::string> former_;  // an earlier process's resources for Kata, as long as they matter
  RpcQueue queue_;  // outlives all calls and servers, and the threads that answer in place of its own
  const SysfsCheck check_;
  AllocationCore core_;
  AllocateGate gate_;
  PodResourcesMonitor holders_;
  bool kubelet_is_there_ = false;
  bool standby_ = false;  // on standby: the transport serves nothing
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
  std::optional<vfio::Uevents> uevents_;
  std::array<NodeFolder, 2> node_folders_ = {NodeFolder{.path = "dev/vfio"},
                                             NodeFolder{.path = "dev/vfio/devices"}};
  std::optional<LivenessLock> liveness_;
  std::optional<InstanceLock> only_;
  std::optional<InstanceLockQueue> turn_;
  bool advertised_ = false;
  int failed_before_first_ = 0;  // scans
  std::optional<DirectoryWatch> state_;
  api::HostStatus withdrawals_;  // by read_withdrawals()
  api::HostStatus followed_;     // those that AllocationCore has
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
