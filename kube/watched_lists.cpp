// SPDX-License-Identifier: Apache-2.0
#include "kube/watched_lists.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "kube/api_error.h"

namespace ferry::kube {

using nlohmann::json;

struct WatchedLists::Entry {
  explicit Entry(Selection chosen) : selection(std::move(chosen)) {}

  bool answers() const { return error.has_value() || watch->listed(); }

  const Selection selection;
  std::optional<Error> error;  ///< of the watch, until it works again
  std::unique_ptr<ObjectWatch> watch;
};

WatchedLists::WatchedLists(ApiTransport& transport, Timers& timers, const Random& random,
                           const std::vector<WatchedList>& lists, std::function<void()> changed)
    : timers_(timers), changed_(std::move(changed)), timer_(timers) {
  for (const WatchedList& list : lists) {
    Entry& entry = *entries_.emplace_back(std::make_unique<Entry>(list.selection));
    ObjectWatch::Listener listener;
    listener.changed = [this] { schedule(); };
    listener.trouble = [this, &entry](const Error& error) {
      entry.error = error;
      schedule();
    };
    listener.well = [this, &entry] {
      entry.error.reset();
      schedule();
    };
    entry.watch = std::make_unique<ObjectWatch>(transport, timers, random, list.selection,
                                                std::move(listener), list.kept);
  }
}

WatchedLists::~WatchedLists() = default;

Result<> WatchedLists::begin() {
  for (const auto& entry : entries_)
    if (auto begun = entry->watch->begin(); !begun) return begun;
  return {};
}

Result<json> WatchedLists::list(const Selection& selection) const {
  const auto found =
      std::ranges::find_if(entries_, [&](const auto& entry) { return entry->selection == selection; });
  if (found == entries_.end() || !(*found)->answers())
    return fail(Errc::not_found, "list " + selection.text() + ": this list is not watched");
  if (const auto& error = (*found)->error) return fail(*error);
  json items = json::array();
  for (const auto& [name, object] : (*found)->watch->objects()) items.push_back(object);
  return json{{"kind", "List"}, {"metadata", json::object()}, {"items", std::move(items)}};
}

std::optional<Error> WatchedLists::unwatchable() const {
  for (const auto& entry : entries_)
    if (entry->error && (entry->error->code == ApiErrc::forbidden || entry->watch->only_watch_fails()))
      return entry->error;
  return std::nullopt;
}

void WatchedLists::schedule() {
  const bool all = std::ranges::all_of(entries_, [](const auto& entry) { return entry->answers(); });
  if (all && !timer_.is_set()) timer_.set(timers_.now() + kTogether, [this] { changed_(); });
}

}  // namespace ferry::kube
