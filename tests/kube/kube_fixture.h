// SPDX-License-Identifier: Apache-2.0
// A server in memory, a clock that the test turns, and what most tests say of them.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "kube/api_client.h"
#include "tests/support/api_server.h"
#include "tests/support/virtual_clock.h"

namespace ferry::test {

/// No error: none.
template <typename T>
std::error_code code_of(const Result<T>& result) {
  return result ? std::error_code() : result.error().code;
}
template <typename T>
std::string message_of(const Result<T>& result) {
  return result ? std::string() : result.error().message;
}

inline nlohmann::json node(const std::string& name, nlohmann::json labels = nlohmann::json::object()) {
  return {
      {"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}, {"labels", std::move(labels)}}}};
}
inline nlohmann::json config_map(const std::string& space, const std::string& name,
                                 const std::string& text = "x") {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", name}, {"namespace", space}}},
          {"data", {{"config.yaml", text}}}};
}
inline nlohmann::json pod(const std::string& space, const std::string& name, const std::string& on = "n1") {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", space}}},
          {"spec", {{"nodeName", on}}}};
}
inline nlohmann::json labels(const std::string& key, const nlohmann::json& value) {
  return {{"metadata", {{"labels", {{key, value}}}}}};
}

/// What one call came to; throws when its function is called twice.
template <typename T>
class Answer {
 public:
  std::function<void(Result<T>)> here() {
    return [this](Result<T> result) {
      if (result_) throw std::runtime_error("called twice");
      result_ = std::move(result);
    };
  }
  bool is_there() const { return result_.has_value(); }
  Result<T> get() const { return result_.value_or(fail(Errc::stuck, "no answer has come")); }

 private:
  std::optional<Result<T>> result_;
};

struct KubeFixture {
  explicit KubeFixture(std::uint64_t seed = 1) : server(clock, seed) {}

  /// What comes of a call: begins it, and lets time pass until it is over.
  template <typename T = nlohmann::json>
  Result<T> outcome(const std::function<void(std::function<void(Result<T>)>)>& begin) {
    Answer<T> answer;
    begin(answer.here());
    if (answer.is_there()) throw std::runtime_error("called from within");
    clock.run_until([&] { return answer.is_there(); }, std::chrono::hours(2));
    return answer.get();
  }

  VirtualClock clock;
  ApiServer server;
  kube::ApiClient client{server, clock, [this] { return server.draw(); }};
};

}  // namespace ferry::test
