// SPDX-License-Identifier: Apache-2.0
// The objects of one kind as the API server has them, kept up to date by being told.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/field_filter.h"
#include "kube/timers.h"

namespace ferry {

/// Lists once, then watches: one open request and no timer while nothing happens. A watch that ends is taken
/// up where it was; when the server no longer knows that place, and after trouble, all is listed anew, so
/// that what went away meanwhile goes. It never gives up.
///
/// The server's order of things counts, not its clock. What it sends twice or late changes nothing.
///
/// Lists come in pages; one that the server has forgotten before its last page (410) begins anew. Memory
/// follows the fields that are kept, whatever else the objects hold. ApiErrc::too_large is the trouble when
/// these are more than 2 MiB: objects() is what it was before, and not what the server has.
///
/// One thread. The listener is never called from within a call of this; it must not destroy it.
class ObjectWatch {
 public:
  /// By "namespace/name", or "name"; of each the fields that were chosen.
  using Objects = std::map<std::string, nlohmann::json>;

  struct Listener {
    /// Once the first list is there, though it may be empty, and then whenever objects() is another; once for
    /// all that came together.
    std::function<void()> changed;
    /// The server does not answer, twice, or not as it should: objects() may be old. Told once, and again
    /// when the reason is of another kind; the next try comes by itself.
    std::function<void(const Error&)> trouble;
    /// After trouble: objects() is what the server has.
    std::function<void()> well;
  };

  /// Transport and timers must outlive this. `fields` are kept; `metadata` has name, namespace and
  /// resourceVersion among them.
  ObjectWatch(ApiTransport& transport, Timers& timers, Random random, Selection selection, Listener listener,
              FieldChoice fields = whole_object());
  ObjectWatch(const ObjectWatch&) = delete;
  ObjectWatch& operator=(const ObjectWatch&) = delete;
  ObjectWatch(ObjectWatch&&) = delete;
  ObjectWatch& operator=(ObjectWatch&&) = delete;
  ~ObjectWatch();

  /// Errc::usage: the selection names what no object can be called.
  Result<> begin();

  const Objects& objects() const;
  /// Whether objects() has ever been what the server had; until then it is empty and says nothing.
  bool listed() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
