// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "agent/cluster_objects.h"
#include "agent/host_files.h"
#include "agent/node_step.h"
#include "agent/seen_host.h"
#include "agent/wish_file.h"
#include "kube/api_client.h"
#include "kube/api_error.h"
#include "kube/object_watch.h"

namespace ferry {
namespace {

using nlohmann::json;
using Moment = Timers::Clock::time_point;

std::chrono::seconds since(Moment begin, Moment now) {
  return std::chrono::duration_cast<std::chrono::seconds>(now - begin);
}

}  // namespace

class NodeAgent::Impl {
 public:
  Impl(HostFs& host, ApiTransport& transport, Timers& timers, Random random,
       EventRecorder::WallClock wall_clock, Settings settings)
      : host_(host),
        transport_(transport),
        timers_(timers),
        random_(std::move(random)),
        settings_(std::move(settings)),
        client_(transport, timers, random_),
        events_(client_, timers, random_, std::move(wall_clock), settings_.node),
        host_since_(timers.now()) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() {
    timers_.cancel(soon_);
    timers_.cancel(later_);
  }

  Result<> begin() {
    Selection pods = pods_of_node(settings_.node);
    pods.space = settings_.operator_space;
    node_ = watch(only(node_ref(settings_.node)));
    pods_ = watch(std::move(pods), &pods_hidden_);
    daemon_sets_ = watch({.kind = kDaemonSets, .space = settings_.operator_space}, &daemon_sets_hidden_);
    for (const std::string& name : settings_.config_maps)
      config_maps_.push_back(watch(only(config_map_ref(settings_.space, name))));
    read_host();
    for (const auto& watch : watches()) {
      if (auto begun = watch->begin(); !begun) return begun;
    }
    return {};
  }

  void host_changed() {
    if (read_host()) look_soon();
  }

 private:
  using Watch = std::unique_ptr<ObjectWatch>;

  /// `hidden` is set when our role does not permit to see them.
  Watch watch(Selection selection, bool* hidden = nullptr) {
    const std::string what = selection.text();
    return std::make_unique<ObjectWatch>(
        transport_, timers_, random_, std::move(selection),
        ObjectWatch::Listener{
            .changed =
                [this] {
                  changed_.reset();
                  heard_since_change_ = true;
                  look_soon();
                },
            .trouble =
                [this, what, hidden](const Error& error) {
                  spdlog::warn("watch {}: {}", what, error.message);
                  if (hidden == nullptr || error.code != ApiErrc::forbidden) return;
                  *hidden = true;
                  look_soon();
                },
            .well = [what] { spdlog::info("watch {}: the API server answers again", what); }});
  }

  std::vector<ObjectWatch*> watches() const {
    std::vector<ObjectWatch*> out = {node_.get(), pods_.get(), daemon_sets_.get()};
    for (const Watch& config_map : config_maps_) out.push_back(config_map.get());
    return out;
  }

  /// True: the host says something else than before.
  bool read_host() {
    std::string said;
    for (const char* file : {kWishFile, kStateFile}) said += host_.read_file(file).value_or("") + "\n";
    if (std::exchange(host_said_, said) == said) return false;
    host_since_ = timers_.now();
    auto now = read_host_side(host_);
    if (now) host_side_ = std::move(*now);
    if (!now) spdlog::error("{}", now.error().message);
    return true;
  }

  void look_soon() {
    if (std::exchange(look_waits_, true)) return;
    soon_ = timers_.at(timers_.now(), [this] {
      look_waits_ = false;
      look();
    });
  }

  void look_again_at(Moment when) {
    timers_.cancel(later_);
    later_ = timers_.at(when, [this] { look_soon(); });
  }

  /// Null: there is no such Node, or nobody has said yet.
  const json* node() const {
    if (changed_) return &*changed_;
    const auto& nodes = node_->objects();
    const auto found = nodes.find(settings_.node);
    return found == nodes.end() ? nullptr : &found->second;
  }

  NodeView view_of(const json& node) {
    NodeView view;
    view.node = node_object_of(node);
    view.defaults = settings_.defaults;
    for (const Watch& config_map : config_maps_) {
      for (const auto& [name, object] : config_map->objects())
        std::ranges::move(configurations_of(object), std::back_inserter(view.configs));
    }
    if (pods_->listed()) view.others.pods = pods_of(pods_->objects());
    if (daemon_sets_->listed()) view.others.daemon_sets = names_of(daemon_sets_->objects());
    view.host = host_side_;
    view.host.silent = since(host_since_, timers_.now());
    view.told = told_;
    const bool paused = !resume_operands(view.node.labels).empty();
    if (!paused) paused_since_.reset();
    if (paused && !paused_since_) paused_since_ = timers_.now();
    if (paused_since_) view.paused = since(*paused_since_, timers_.now());
    return view;
  }

  void look() {
    const json* const object = node();
    if (changing_ || object == nullptr) return;
    // Before all is known that may ask for something, what was written down before counts.
    if (!std::ranges::all_of(config_maps_, [](const Watch& one) { return one->listed(); })) return;
    if (!pods_->listed() && !pods_hidden_) return;
    if (!daemon_sets_->listed() && !daemon_sets_hidden_) return;
    const NodeStep step = node_step(view_of(*object));
    // What cannot be written now is tried again; the cluster is told of the node all the same.
    const auto files = write_status_files(host_, step.files);
    if (!files) failed(files.error());
    if (!step.labels.empty() || !step.annotations.empty()) return change_node(*object);
    tell(step);
    if (auto written = write_wish(host_, step); !written) return failed(written.error());
    host_changed();
    if (!files) return;
    backoff_.reset();
    wait_for(step);
  }

  void change_node(const json& object) {
    changing_ = true;
    heard_since_change_ = false;
    client_.change(
        node_ref(settings_.node),
        [this](const json& now) -> Result<json> {
          step_ = node_step(view_of(now));
          return patch_of(step_.labels, step_.annotations);
        },
        [this](Result<json> changed) {
          changing_ = false;
          if (!changed) return failed(changed.error());
          tell(step_);
          // An answer may come later than the watch's word of what others did after it.
          if (!heard_since_change_) changed_ = std::move(*changed);
          look_soon();
        },
        &object);
  }

  void tell(const NodeStep& step) {
    for (const NodeEvent& event : step.events) {
      spdlog::log(event.warning ? spdlog::level::warn : spdlog::level::info, "{}: {}", event.reason,
                  event.message);
      events_.record(event.warning ? EventRecorder::Type::warning : EventRecorder::Type::normal, event.reason,
                     event.message);
    }
    told_ = {step.wish.warnings.begin(), step.wish.warnings.end()};
  }

  /// What nobody will tell: that somebody has been silent for too long.
  void wait_for(const NodeStep& step) {
    constexpr std::chrono::seconds kBeyond{1};
    timers_.cancel(later_);
    if (!step.waits_for.empty() && paused_since_) {
      look_again_at(*paused_since_ + kPausePatience + kBeyond);
    } else if (step.report.condition == NodeCondition::pending ||
               step.report.condition == NodeCondition::withdrawing ||
               step.report.condition == NodeCondition::changing) {
      const auto patience = has_answered(host_side_) ? kChangePatience : kAnswerPatience;
      const Moment end = host_since_ + patience + kBeyond;
      if (end > timers_.now()) look_again_at(end);
    }
  }

  void failed(const Error& error) {
    spdlog::error("{}", error.message);
    look_again_at(timers_.now() + backoff_.next(random_));
  }

  HostFs& host_;
  ApiTransport& transport_;
  Timers& timers_;
  const Random random_;
  const Settings settings_;
  ApiClient client_;
  EventRecorder events_;
  Watch node_;
  Watch pods_;
  Watch daemon_sets_;
  std::vector<Watch> config_maps_;
  bool pods_hidden_ = false;
  bool daemon_sets_hidden_ = false;

  HostSide host_side_;
  std::string host_said_ = "nothing yet";
  Moment host_since_;
  std::optional<Moment> paused_since_;
  std::set<std::string> told_;

  bool look_waits_ = false;
  bool changing_ = false;
  NodeStep step_;                ///< that of the change which is on its way
  std::optional<json> changed_;  ///< the Node as our last change left it, until the watch says anything
  bool heard_since_change_ = false;
  Backoff backoff_;
  Timers::Timer soon_;
  Timers::Timer later_;
};

NodeAgent::NodeAgent(HostFs& host, ApiTransport& transport, Timers& timers, Random random,
                     EventRecorder::WallClock wall_clock, Settings settings)
    : impl_(std::make_unique<Impl>(host, transport, timers, std::move(random), std::move(wall_clock),
                                   std::move(settings))) {}
NodeAgent::~NodeAgent() = default;

Result<> NodeAgent::begin() {
  return impl_->begin();
}

void NodeAgent::host_changed() {
  impl_->host_changed();
}

}  // namespace ferry
