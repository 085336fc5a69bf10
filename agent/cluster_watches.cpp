// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster_watches.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/cluster_objects.h"
#include "kube/api_error.h"

namespace ferry::agent {
namespace {

// A new Role is not in force at once everywhere, nor on an API server that has just started.
constexpr std::chrono::minutes kForbiddenPatience{5};

bool is_denied(const Error& error) {
  return error.code == kube::ApiErrc::forbidden;
}

/// The server has more objects than the agent keeps, so the known ones are out of date.
bool is_too_large(const std::optional<Error>& error) {
  return error && error->code == kube::ApiErrc::too_large;
}

}  // namespace

ClusterWatches::ClusterWatches(kube::ApiTransport& transport, kube::Timers& timers, kube::Random random,
                               const AgentSettings& settings, ReconcileQueue& queue)
    : transport_(transport), timers_(timers), random_(std::move(random)), settings_(settings), queue_(queue) {
  watch(node_, kube::only(kube::node_ref(settings_.node)));
  if (!settings_.operator_space.empty() || settings_.drain_timeout) {
    // The watch is of all namespaces: a device plugin can be installed without the operator, in any
    // namespace.
    kube::Selection pods = kube::pods_of_node(settings_.node);
    if (settings_.among_others) pods.space = settings_.operator_space;
    watch(pods_, std::move(pods), pod_fields());
  }
  if (!settings_.operator_space.empty() && !settings_.among_others)
    watch(daemon_sets_, {.kind = kube::kDaemonSets, .space = settings_.operator_space}, daemon_set_fields());
  if (!settings_.kata_classes.empty())
    watch(kata_, kube::only(kube::config_map_ref(settings_.kata_space, settings_.kata_classes)));
  for (const std::string& name : settings_.config_maps)
    watch(config_maps_.emplace_back(), kube::only(kube::config_map_ref(settings_.space, name)));
}

void ClusterWatches::watch(Watched& watched, kube::Selection selection, kube::FieldChoice fields) {
  const std::string text = selection.text();
  kube::ObjectWatch::Listener listener;
  listener.changed = [this, &watched] {
    if (&watched == &node_) {
      patched_.reset();
      reported_since_patch_ = true;
    }
    queue_.schedule();
  };
  listener.trouble = [this, &watched, text](const Error& error) {
    spdlog::warn("watch {}: {}", text, error.text());
    if (&watched == &node_) {
      node_in_trouble_ = true;
      return;
    }
    const bool same = watched.error && is_denied(*watched.error) == is_denied(error);
    if (!same) watched.error_since = timers_.now();
    watched.error = error;
    queue_.schedule();
  };
  listener.well = [this, &watched, text] {
    spdlog::info("watch {}: the API server answers again", text);
    if (&watched == &node_) {
      node_in_trouble_ = false;
      node_well_since_ = timers_.now();
    }
    watched.error.reset();
    queue_.schedule();
  };
  watched.watch = std::make_unique<kube::ObjectWatch>(transport_, timers_, random_, std::move(selection),
                                                      std::move(listener), std::move(fields));
}

Result<> ClusterWatches::begin() {
  std::vector<kube::ObjectWatch*> watches;
  for (const Watched* watched : {&node_, &pods_, &daemon_sets_, &kata_})
    watches.push_back(watched->watch.get());
  for (const Watched& config_map : config_maps_) watches.push_back(config_map.watch.get());
  for (kube::ObjectWatch* const one : watches) {
    if (one == nullptr) continue;
    if (auto begun = one->begin(); !begun) return begun;
  }
  return {};
}

const nlohmann::json* ClusterWatches::node() const {
  if (patched_) return &*patched_;
  const Objects& nodes = node_.watch->objects();
  const auto found = nodes.find(settings_.node);
  return found == nodes.end() ? nullptr : &found->second;
}

const ClusterWatches::Objects* ClusterWatches::objects(const Watched& watched) const {
  const bool known = watched.watch != nullptr && watched.watch->listed() && !is_too_large(watched.error);
  return known ? &watched.watch->objects() : nullptr;
}

/// Waiting is useless if RBAC forbids the objects, or the server reports the Node and not them.
std::optional<Moment> ClusterWatches::unknown_until(const Watched& watched) const {
  if (watched.watch == nullptr || watched.watch->listed() || is_too_large(watched.error)) return std::nullopt;
  if (!watched.error || (!is_denied(*watched.error) && node_in_trouble_)) return Moment::max();
  const Moment end = end_of_patience(watched);
  return timers_.now() < end ? std::optional(end) : std::nullopt;
}

/// The time in which the server reported nothing at all does not count.
Moment ClusterWatches::end_of_patience(const Watched& watched) const {
  const bool denied = watched.error && is_denied(*watched.error);
  return kForbiddenPatience +
         (denied ? watched.error_since : std::max(watched.error_since, node_well_since_));
}

std::optional<Moment> ClusterWatches::unknown_until() const {
  for (const Watched& config_map : config_maps_)
    if (auto wait = unknown_until(config_map)) return wait;
  for (const Watched* const watched : {&pods_, &daemon_sets_})
    if (auto wait = unknown_until(*watched)) return wait;
  return std::nullopt;
}

void ClusterWatches::add_configurations(NodeSnapshot& snapshot) const {
  for (const Watched* const watched : {&pods_, &daemon_sets_})
    if (is_too_large(watched->error)) snapshot.incomplete = watched->error;
  for (const Watched& config_map : config_maps_) {
    if (config_map.error && objects(config_map) == nullptr) {
      snapshot.unreadable.push_back(*config_map.error);
      continue;
    }
    for (const auto& [name, object] : config_map.watch->objects()) {
      std::ranges::move(configurations_of(object), std::back_inserter(snapshot.configs));
      std::ranges::move(passed_over_of(object), std::back_inserter(snapshot.passed_over));
    }
  }

  if (kata_.watch == nullptr) return;
  KataSource& source = snapshot.kata.emplace().source;
  source.name = fmt::format("ConfigMap {}/{}", settings_.kata_space, settings_.kata_classes);
  source.is_known = !unknown_until(kata_);
  if (source.is_known && kata_.error && objects(kata_) == nullptr) source.trouble = kata_.error->text();
  for (const auto& [name, object] : kata_.watch->objects())
    std::ranges::move(configurations_of(object), std::back_inserter(source.texts));
  if (!kata_.watch->listed() && kata_.error) snapshot.kata_given_up_at = end_of_patience(kata_);
}

}  // namespace ferry::agent
