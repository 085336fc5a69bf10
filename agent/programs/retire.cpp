// SPDX-License-Identifier: Apache-2.0
#include <stop_token>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "agent/programs/programs.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/process/signals.h"
#include "common/process/standard_streams.h"
#include "common/process/this_process.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"

namespace ferry::agent {
namespace {

using nlohmann::json;

/// Helm sets this annotation on an object that it installs; a rendered manifest lacks it.
constexpr const char* kHelmsRelease = "meta.helm.sh/release-name";

}  // namespace

Retirement::Retirement(kube::ApiTransport& transport, kube::ApiClient& client, kube::Timers& timers,
                       kube::Random random, kube::ObjectRef daemon_set, std::chrono::seconds patience,
                       std::function<void(Result<>)> ended)
    : client_(client),
      timers_(timers),
      random_(std::move(random)),
      daemon_set_(std::move(daemon_set)),
      patience_(patience),
      ended_(std::move(ended)),
      watch_(transport, timers, random_, kube::only(daemon_set_),
             {.changed = [this] { look(); },
              .trouble = [](const Error& error) { spdlog::warn("{}", error.message); },
              .well = [] {}}),
      again_(timers),
      deadline_(timers) {}

Retirement::~Retirement() {
  if (call_) client_.cancel(*call_);
}

Result<> Retirement::begin() {
  // An impossible name is an error here: no watch would ever show such an object.
  if (auto named = kube::path_of(daemon_set_); !named) return fail(std::move(named).error());
  if (auto begun = watch_.begin(); !begun) return begun;
  deadline_.set(timers_.now() + patience_, [this] { give_up(); });
  return {};
}

void Retirement::look() {
  if (watch_.objects().empty()) return end({});
  const json& metadata = watch_.objects().begin()->second.at("metadata");
  if (!metadata.value("annotations", json::object()).contains(kHelmsRelease)) {
    spdlog::warn("{} is not Helm's, and stays", daemon_set_.text());
    return end({});
  }
  std::string uid = metadata.value("uid", "");
  if (call_ || uid == removed_) return;
  removed_ = std::move(uid);
  spdlog::info("{} goes, behind its pods", daemon_set_.text());
  remove();
}

void Retirement::remove() {
  call_ = client_.remove(
      daemon_set_, removed_,
      [this](Result<> done) {
        call_.reset();
        if (!done) {
          const bool passes = kube::may_mend(done.error()) || done.error().code == kube::ApiErrc::forbidden ||
                              done.error().code == kube::ApiErrc::unauthorized;
          if (!passes) return end(std::move(done));
          refusal_ = std::move(done).error();
          again_.set(timers_.now() + backoff_.next(random_), [this] { remove(); });
          return;
        }
        refusal_.reset();
        look();  // it may have been created again meanwhile
      },
      /*dependents_first=*/true);
}

void Retirement::give_up() {
  if (refusal_) return end(fail(std::move(*refusal_)));
  end(fail(Errc::stuck,
           fmt::format("{} is still there after {} s: {}", daemon_set_.text(), patience_.count(),
                       watch_.listed() ? "a pod of it has not ended" : "the API server does not show it"),
           fmt::format("`kubectl get pods -n {} -o wide` shows where; the pod of a node that is gone goes "
                       "with its Node object",
                       daemon_set_.space)));
}

void Retirement::end(Result<> how) {
  if (const auto ended = std::exchange(ended_, {})) ended(std::move(how));
}

namespace {

struct Command {
  std::string daemon_set;
  std::string space;
  unsigned seconds = 240;
  kube::AccessChoice access;
};

Result<> retire(const Command& command, const std::stop_token& stop) {
  auto access = kube::cluster_access(command.access, process_environment());
  if (!access) return fail(std::move(access).error());
  std::string space = command.space.empty() ? access->default_namespace : command.space;
  if (space.empty())
    return fail(Errc::usage, "the namespace of the DaemonSet is not known", "name it: --namespace");
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  kube::LoopTimers timers(**loop);
  kube::CurlTransport transport(**loop, std::move(*access));
  const kube::Random random = kube::random_numbers();
  kube::ApiClient client(transport, timers, random);
  std::stop_source over;
  const std::stop_callback on_stop(stop, [&over] { over.request_stop(); });
  Result<> outcome =
      fail(Errc::stuck, "stopped before the agents had ended", "`helm uninstall` can be repeated");
  Retirement retirement(transport, client, timers, random,
                        {.kind = kube::kDaemonSets, .space = std::move(space), .name = command.daemon_set},
                        std::chrono::seconds(command.seconds), [&](Result<> how) {
                          outcome = std::move(how);
                          over.request_stop();
                        });
  if (auto begun = retirement.begin(); !begun) return begun;
  (*loop)->run(over.get_token());
  return outcome;
}

}  // namespace

int retire_program(int argc, char** argv) {
  CLI::App app(
      "Removes the agents' DaemonSet and waits until their pods have ended: each lets come back whom it "
      "keeps away.",
      "ferry-agent retire");
  Command command;
  app.add_option("--daemon-set", command.daemon_set, "the name of the agents' DaemonSet")->required();
  app.add_option("--namespace", command.space,
                 "its namespace; the default is that of the context or the pod");
  app.add_option("--seconds", command.seconds, "how long it waits")
      ->check(CLI::Range(1U, 86'400U))
      ->capture_default_str();
  app.add_option("--kubeconfig", command.access.kubeconfig, "how to reach the API server");
  app.add_option("--context", command.access.context, "the context of that file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    print_to_stderr("ferry-agent retire: {}\n", error.what());
    return static_cast<int>(ExitStatus::usage);
  }
  hide_process();  // it has a token for the API server
  const StopOnSignal stop;
  const auto logs = set_up_log("info", LogFormat::text);
  const auto done = logs ? retire(command, stop.token()) : logs;
  if (done) return static_cast<int>(ExitStatus::done);
  return static_cast<int>(print_error("ferry-agent retire", done.error()));
}

}  // namespace ferry::agent
