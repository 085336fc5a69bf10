// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/plugin.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "kubevirt-plugin/allocation_core.h"
#include "kubevirt-plugin/directory_watch.h"
#include "kubevirt-plugin/event_loop.h"
#include "kubevirt-plugin/kubelet_transport.h"
#include "kubevirt-plugin/offered_file.h"
#include "kubevirt-plugin/scanner.h"
#include "kubevirt-plugin/uevents.h"

namespace ferry {
namespace {

// Moving one group makes a handful of events; one scan for all of them.
constexpr auto kSettle = std::chrono::milliseconds(50);
// After a scan or a socket that failed, when no news of the host brings the next try sooner.
constexpr auto kAfterFailure = std::chrono::seconds(10);

/// The process: what is scanned goes into the core, and what the core says into the offered file.
class Plugin {
 public:
  Plugin(HostFs& host, const PluginOptions& options, EventLoop& loop)
      : host_(host),
        options_(options),
        loop_(loop),
        names_(host),
        check_(host, options.rules),
        core_(check_, {.changed = [this] { loop_.post([this] { publish_soon(); }); },
                       .doubted = [this] { loop_.post([this] { scan_soon(); }); }}) {}
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  Plugin(Plugin&&) = delete;
  Plugin& operator=(Plugin&&) = delete;
  ~Plugin() = default;

  Result<> run(const std::stop_token& stop) {
    if (auto opened = open_transport(); !opened) return opened;
    watch_host();  // before the scan, so that nothing comes between
    if (auto scanned = scan(); !scanned) return scanned;
    if (auto offered = transport_->offer_resources(); !offered) return offered;
    loop_.run(stop);
    transport_.reset();
    if (auto removed = host_.remove_file(options_.offered_file); !removed && !failure_)
      failure_ = std::move(removed).error();
    if (failure_) return fail(std::move(*failure_));
    return {};
  }

 private:
  Result<> open_transport() {
    const std::string where = (host_.root() / options_.kubelet_directory).string();
    auto directory = host_.open(options_.kubelet_directory, O_RDONLY | O_DIRECTORY);
    if (!directory) {
      if (!is_gone(directory.error())) return fail(std::move(directory).error());
      return fail(Errc::not_found, fmt::format("the kubelet's directory {} does not exist", where),
                  "run this on a node whose kubelet has been started once, or name its directory");
    }
    auto transport = KubeletTransport::open(loop_, core_, std::move(*directory), where,
                                            {.changed = [this] { publish_soon(); },
                                             .failed =
                                                 [this](Error error) {
                                                   failure_ = std::move(error);
                                                   loop_.finish();
                                                 }});
    if (!transport) return fail(std::move(transport).error());
    transport_ = std::move(*transport);
    return {};
  }

  /// Each source of news does without the other; without both, what changed is seen when it is asked for.
  void watch_host() {
    if (auto uevents = Uevents::open()) {
      uevents_.emplace(std::move(*uevents));
      loop_.watch(uevents_->fd(), [this] {
        if (uevents_->take()) scan_soon();
      });
    } else {
      spdlog::warn("{}", uevents.error().message);
    }
    if (auto nodes = DirectoryWatch::open(host_.root() / "dev/vfio")) {
      nodes_.emplace(std::move(*nodes));
      loop_.watch(nodes_->fd(), [this] {
        const auto events = nodes_->read();
        if (std::any_of(events.begin(), events.end(),
                        [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; }))
          loop_.forget(nodes_->fd());
        scan_soon();
      });
    }
  }

  Result<> scan() {
    auto offer = scan_offer(host_, options_.rules, names_);
    if (!offer) return fail(std::move(offer).error());
    for (const auto& warning : offer->warnings)
      if (warned_.insert(warning).second) spdlog::warn("{}", warning);
    for (const auto& device : offer->not_offered)
      if (warned_.insert(device.id + device.reason).second)
        spdlog::warn("{} is not offered: {}", device.id, device.reason);
    if (std::exchange(not_offered_, offer->not_offered) != not_offered_) publish_soon();
    core_.replace(offer->resources);
    return {};
  }

  void scan_soon() {
    if (!std::exchange(scan_waits_, true)) scan_in(kSettle);
  }

  void scan_in(EventLoop::Clock::duration pause) {
    loop_.cancel(scan_timer_);
    scan_timer_ = loop_.at(EventLoop::Clock::now() + pause, [this] {
      scan_waits_ = false;
      auto done = scan();
      if (done) done = transport_->offer_resources();
      if (done) return;
      spdlog::error("{}", done.error().message);
      scan_in(kAfterFailure);
    });
  }

  /// Written once for all that has happened in this round of the loop.
  void publish_soon() {
    if (std::exchange(publish_waits_, true)) return;
    loop_.at(EventLoop::Clock::now(), [this] {
      publish_waits_ = false;
      const auto content = offered_json(*core_.snapshot(), transport_->registered(), not_offered_);
      if (auto written = host_.write_file(options_.offered_file, content); !written)
        spdlog::error("{}", written.error().message);
    });
  }

  HostFs& host_;
  const PluginOptions& options_;
  EventLoop& loop_;
  DeviceNames names_;
  const SysfsCheck check_;
  AllocationCore core_;
  std::vector<NotOffered> not_offered_;
  std::set<std::string> warned_;
  bool scan_waits_ = false;
  EventLoop::Timer scan_timer_;
  bool publish_waits_ = false;
  std::optional<Uevents> uevents_;
  std::optional<DirectoryWatch> nodes_;
  std::unique_ptr<KubeletTransport> transport_;
  std::optional<Error> failure_;
};

}  // namespace

Result<> run_plugin(HostFs& host, const PluginOptions& options, const std::stop_token& stop) {
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  return Plugin(host, options, **loop).run(stop);
}

}  // namespace ferry
