// SPDX-License-Identifier: Apache-2.0
#include "kube/api_calls.h"

#include <chrono>
#include <optional>
#include <stop_token>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/event_loop.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"
#include "kube/exec_credential.h"

namespace ferry::kube {
namespace {

// A person waits. A server that restarts, or a load balancer that changes over, is back by then.
constexpr std::chrono::milliseconds kPatience{5'000};

}  // namespace

struct ApiCalls::Parts {
  Parts(std::unique_ptr<EventLoop> its_loop, ClusterAccess access,
        std::shared_ptr<ExecAuthenticator> authenticator)
      : space(access.default_namespace),
        how(fmt::format("{}, by {}{}", access.server.text(), access.said_by,
                        access.proxy.empty() ? "" : ", through a proxy")),
        loop(std::move(its_loop)),
        timers(*loop),
        curl(*loop, std::move(access)),
        transport(curl, std::move(authenticator)),
        client(transport, timers, random_numbers(), kPatience) {}

  const std::string space;
  const std::string how;  ///< how the server is reached
  const std::unique_ptr<EventLoop> loop;
  LoopTimers timers;
  CurlTransport curl;
  ExecTransport transport;
  ApiClient client;
};

ApiCalls::ApiCalls(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ApiCalls::~ApiCalls() = default;

Result<std::unique_ptr<ApiCalls>> ApiCalls::reach(const std::filesystem::path& kubeconfig,
                                                  const std::string& context,
                                                  std::optional<std::chrono::milliseconds> login_limit) {
  const Environment environment = process_environment();
  auto access = cluster_access({.kubeconfig = kubeconfig, .context = context, .reader = AccessFor::person},
                               environment);
  if (!access) return fail(std::move(access).error());
  std::shared_ptr<ExecAuthenticator> authenticator;
  if (access->exec) {
    ExecAuthenticator::Settings settings{.environment = environment,
                                         .has_terminal = ::isatty(STDIN_FILENO) == 1};
    if (login_limit) settings.most = *login_limit;
    authenticator =
        std::make_shared<ExecAuthenticator>(*access->exec, access->authorities, std::move(settings));
    authenticator->give_to(*access);
    if (auto permitted = check_plugin_policy(*access->exec, environment); !permitted)
      return fail(std::move(permitted).error());
    if (auto ready = authenticator->prepare(); !ready) return fail(std::move(ready).error());
  }
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  return std::unique_ptr<ApiCalls>(
      new ApiCalls(std::make_unique<Parts>(std::move(*loop), std::move(*access), std::move(authenticator))));
}

template <typename Answer>
Result<Answer> ApiCalls::wait(const std::function<void(std::function<void(Result<Answer>)>)>& begin) {
  std::optional<Result<Answer>> answer;
  std::stop_source stop;
  begin([&](Result<Answer> result) {
    answer = std::move(result);
    stop.request_stop();
  });
  parts_->loop->run(stop.get_token());
  if (!answer) return fail(Errc::failed, "the loop has ended without an answer");
  if (*answer) return std::move(*answer);
  return fail(with_way(std::move(*answer).error()));
}

Error ApiCalls::with_way(Error error) const {
  if (error.code == Errc::unreachable && error.hint.empty())
    error.hint =
        fmt::format("{}: is that the cluster that you mean, and does its API server run?", parts_->how);
  return error;
}

Result<nlohmann::json> ApiCalls::list(const Selection& selection, const ListRange& range) {
  return wait<nlohmann::json>(
      [&](ApiClient::Done done) { parts_->client.list(selection, range, std::move(done)); });
}

Result<std::string> ApiCalls::log(const ObjectRef& pod, const LogEnd& end) {
  return wait<std::string>([&](auto done) { parts_->client.log(pod, end, std::move(done)); });
}

Result<nlohmann::json> ApiCalls::change(const ObjectRef& object, const ApiClient::MakePatch& make,
                                        const nlohmann::json& known) {
  return wait<nlohmann::json>(
      [&](ApiClient::Done done) { parts_->client.change(object, make, std::move(done), &known); });
}

Result<> ApiCalls::follow(const std::vector<WatchedList>& lists,
                          const std::function<bool(const AskForPart&)>& look) {
  std::optional<Error> refused;
  std::stop_source stop;
  std::optional<WatchedLists> watched;
  const AskForPart ask = [&](const Selection& selection,
                             const ListRange& /*range*/) -> Result<nlohmann::json> {
    auto list = watched->list(selection);
    if (!list) return fail(with_way(std::move(list).error()));
    return list;
  };
  watched.emplace(parts_->transport, parts_->timers, random_numbers(), lists, [&] {
    refused = watched->unwatchable();
    if (refused || !look(ask)) stop.request_stop();
  });
  if (auto begun = watched->begin(); !begun) return begun;
  parts_->loop->run(stop.get_token());
  if (refused) return fail(std::move(*refused));
  return {};
}

const std::string& ApiCalls::default_namespace() const {
  return parts_->space;
}

}  // namespace ferry::kube
