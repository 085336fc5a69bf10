// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "kube/api_client.h"
#include "kube/api_path.h"

namespace ferry::kube {

/// Blocking calls of an API server, one after the other, for programs that ask for a moment.
class ApiCalls {
 public:
  /// Finds the server by cluster_access() for a person, with its errors; `kubeconfig` and `context` may be
  /// empty. Runs the credential plugin that the kubeconfig names, with the errors of check_plugin_policy()
  /// and ExecAuthenticator::prepare(). Sends nothing yet.
  static Result<std::unique_ptr<ApiCalls>> reach(const std::filesystem::path& kubeconfig,
                                                 const std::string& context);
  ApiCalls(const ApiCalls&) = delete;
  ApiCalls& operator=(const ApiCalls&) = delete;
  ApiCalls(ApiCalls&&) = delete;
  ApiCalls& operator=(ApiCalls&&) = delete;
  ~ApiCalls();

  // ApiClient's calls; each waits for its result.
  Result<nlohmann::json> list(const Selection& selection, const ListRange& range = {});
  Result<std::string> log(const ObjectRef& pod, const LogEnd& end);
  Result<nlohmann::json> change(const ObjectRef& object, const ApiClient::MakePatch& make,
                                const nlohmann::json& known);

  /// The namespace of the context or the pod; empty: not given.
  const std::string& default_namespace() const;

 private:
  struct Parts;
  explicit ApiCalls(std::unique_ptr<Parts> parts);
  template <typename Answer>
  Result<Answer> wait(const std::function<void(std::function<void(Result<Answer>)>)>& begin);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace ferry::kube
