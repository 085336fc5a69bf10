// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/pinned.h"
#include "common/result.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/paged_list.h"
#include "kube/watched_lists.h"

namespace ferry::kube {

/// Blocking calls of an API server, one after the other, for programs that ask for a moment.
class ApiCalls : Pinned {
 public:
  /// Finds the server by cluster_access() for a person, with its errors; `kubeconfig` and `context` may be
  /// empty. Runs the credential plugin that the kubeconfig names, with the errors of check_plugin_policy()
  /// and ExecAuthenticator::prepare(). Sends nothing yet. `login_limit` is the time for a plugin that cannot
  /// ask a person here; absent: that of ExecAuthenticator::Settings.
  static Result<std::unique_ptr<ApiCalls>> reach(
      const std::filesystem::path& kubeconfig, const std::string& context,
      std::optional<std::chrono::milliseconds> login_limit = std::nullopt);
  ~ApiCalls();

  // ApiClient's calls; each waits for its result.
  Result<nlohmann::json> list(const Selection& selection, const ListRange& range = {});
  Result<std::string> log(const ObjectRef& pod, const LogEnd& end);
  Result<nlohmann::json> change(const ObjectRef& object, const ApiClient::MakePatch& make,
                                const nlohmann::json& known);

  /// Keeps `lists` up to date by watches, and calls `look` when they are there and after each change, until
  /// it returns false. `look` gets the lists, or the error of a watch, from memory; WatchedLists::list() has
  /// the errors. Errors: those of WatchedLists::begin(), and that of WatchedLists::unwatchable().
  Result<> follow(const std::vector<WatchedList>& lists, const std::function<bool(const AskForPart&)>& look);

  /// The namespace of the context or the pod; empty: not given.
  const std::string& default_namespace() const;

 private:
  struct Parts;
  explicit ApiCalls(std::unique_ptr<Parts> parts);
  template <typename Answer>
  Result<Answer> wait(const std::function<void(std::function<void(Result<Answer>)>)>& begin);
  /// The error, with the way to a server that does not answer as its hint.
  Error with_way(Error error) const;

  const std::unique_ptr<Parts> parts_;
};

}  // namespace ferry::kube
