// SPDX-License-Identifier: Apache-2.0
// The objects of one kind as the API server has them, kept up to date by a watch.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "common/pinned.h"
#include "common/result.h"
#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/field_filter.h"
#include "kube/paged_list.h"
#include "kube/timers.h"

namespace ferry::kube {

/// A line of a watch's stream.
struct WatchEvent {
  enum class Kind { added, modified, deleted, bookmark, error };
  Kind kind = Kind::error;
  nlohmann::json object = {};  ///< an error's: the Status
  std::string key = {};        ///< object_key(); empty for bookmarks and errors
  std::string version = {};    ///< resourceVersion; empty only for errors
};

/// Errc::malformed_host: not such a line; `asked` names the watch.
Result<WatchEvent> parse_watch_event(std::string_view line, const Asked& asked);

/// "namespace/name", or "name" without a namespace; empty: not an object.
std::string object_key(const nlohmann::json& object);
/// The resourceVersion; empty: none.
std::string version_of(const nlohmann::json& object);

/// True: `version` is later than `than`, both resourceVersions of one server. They are numbers, and the
/// greater is later (KEP-5504; they always were). Versions that are no numbers count as later unless equal.
bool is_later(std::string_view version, std::string_view than);

/// Lists once, then watches: one open request, and no timer while nothing happens. A watch that ends is
/// resumed from its resourceVersion. If the server no longer knows that version, and after trouble, all is
/// listed anew, so that deleted objects go. A busy server (429) is asked for the watch alone while the list
/// is less than a minute old. The watch never gives up.
///
/// The server's resourceVersions give the order, not its clock. An event that comes twice or late changes
/// nothing.
///
/// Lists come in pages; a list that the server has forgotten before its last page (410) begins anew. Memory
/// follows the parts that are kept, whatever else the objects hold. If these parts exceed the limit, the
/// trouble is ApiErrc::too_large, and objects() keeps its earlier content.
///
/// Only one thread may use it. The listener is never called within a call of this object, and must not
/// destroy it.
class ObjectWatch : Pinned {
 public:
  /// Objects by "namespace/name" or "name", with the chosen fields.
  using Objects = std::map<std::string, nlohmann::json>;

  struct Listener {
    /// Runs after the first list, even an empty one, and then whenever objects() has changed; once for all
    /// changes that came together.
    std::function<void()> changed;
    /// The server failed to answer twice, or answered wrongly: objects() may be old. Runs once, and again for
    /// another kind of error; the next try comes by itself.
    std::function<void(const Error&)> trouble;
    /// Trouble is over: objects() is up to date again.
    std::function<void()> well;
    /// A watch is requested anew: after each list, and when the server has ended the last watch. The server
    /// may have been replaced by one of another version meanwhile.
    std::function<void()> opened = {};
  };

  /// The parts of objects to keep.
  struct Kept {
    /// Must include name, namespace and resourceVersion in `metadata`.
    FieldChoice fields = whole_object();
    /// Takes the part of these fields that is kept; null: the object is not kept. Absent: all of them.
    TakeOfObject take = {};
    std::size_t most = kMostKept;  ///< bytes of all objects together, and of one answer or event
    /// Objects of one page of a list. A page of the default comes within the deadline, even if each object is
    /// as large as etcd takes it.
    unsigned page = 50;
  };

  /// Transport and timers must outlive this.
  ObjectWatch(ApiTransport& transport, Timers& timers, Random random, Selection selection, Listener listener,
              Kept kept);
  ObjectWatch(ApiTransport& transport, Timers& timers, Random random, Selection selection, Listener listener,
              FieldChoice fields = whole_object());
  ~ObjectWatch();

  /// Errc::usage: the selection has a name that no object can have.
  Result<> begin();

  const Objects& objects() const { return objects_; }
  /// False: objects() has never been the server's state; it is empty and says nothing.
  bool listed() const { return listed_; }
  /// The resourceVersion up to which objects() is complete; empty: nothing has been listed. It may rise
  /// without a call of Listener::changed.
  const std::string& version() const { return version_; }

 private:
  enum class Request { list, watch };

  Asked asked(std::string_view verb) const;
  void list();
  void list_page();
  void page_ended(Result<ApiReply> reply);
  void list_ended();
  Result<> read_page();
  /// Bytes of the next page. What `take` leaves out of a page makes room again.
  std::size_t room_of_page() const { return kept_.take ? kept_.most : kept_.most - size_so_far_; }
  Error too_large(std::string_view verb) const;
  void cancel();
  nlohmann::json kept(nlohmann::json object) const;
  void watch();
  void received(std::string_view bytes);
  Result<> take_line(const std::string& line, bool& changed);
  Result<> take(WatchEvent event, bool& changed);
  void watch_ended(Result<ApiReply> reply);
  void refused(const Error& error, std::optional<std::chrono::seconds> retry_after);
  void failed(Request which, const Error& error, std::optional<std::chrono::seconds> retry_after,
              bool answered = false);
  void works();
  void is_well();
  void later(Backoff::Pause pause, void (ObjectWatch::*job)());

  ApiTransport& transport_;
  Timers& timers_;
  const Random random_;
  const Selection selection_;
  const Listener listener_;
  const Kept kept_;
  std::string path_;

  Objects objects_;
  std::size_t size_ = 0;  ///< objects_ as JSON, in bytes
  bool listed_ = false;
  std::string version_;  ///< objects_ is complete up to this version

  // State of the list in progress.
  Objects listed_so_far_;
  std::size_t size_so_far_ = 0;
  std::string list_version_;
  std::string after_;         ///< where the next page continues; empty: the first page
  unsigned list_rounds_ = 0;  ///< restarts in a row, since its continuation was forgotten

  std::optional<ApiTransport::Call> open_;
  std::unique_ptr<FieldFilter> filter_;  ///< the open request's
  OwnedTimer timer_;
  Backoff backoff_;
  std::optional<std::error_code> trouble_;  ///< the reported error
  std::optional<Request> failed_;           ///< the last that failed since all was well
  Timers::Clock::time_point listed_at_;     ///< time of the last complete list
  bool expired_ = false;                    ///< a 410 since the last watch that worked

  // State of the open watch.
  bool moved_ = false;  ///< an event has come
  Timers::Clock::time_point began_;
};

}  // namespace ferry::kube
