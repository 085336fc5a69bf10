// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/cri_client.h"

#include <fcntl.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/rpc/client_call.h"
#include "common/rpc/socket_file.h"
#include "common/text/json.h"
#include "cri.pb.h"
#include "introspection.pb.h"

namespace ferry::kata {
namespace {

// The answer may describe hundreds of pods with annotations, or a configuration with hundreds of registries.
constexpr int kLargestAnswer = 16 * 1024 * 1024;

Result<UniqueFd> connect(const HostFs& host, const std::filesystem::path& socket) {
  const auto directory = host.open(socket.parent_path().relative_path(), O_PATH | O_DIRECTORY);
  if (!directory && is_gone(directory.error()))
    return fail(Errc::not_found, fmt::format("there is no {}", socket.string()));
  if (!directory) return fail(directory.error());
  auto connection = connect_to_socket(directory->get(), socket.filename());
  if (connection) return connection;
  if (is_gone(connection.error()))
    return fail(Errc::not_found, fmt::format("there is no {}", socket.string()));
  Error error = std::move(connection).error().during(socket.parent_path().string());
  // The socket is left from a stopped daemon.
  if (error.code == std::errc::connection_refused) error.code = Errc::not_found;
  if (error.code == std::errc::resource_unavailable_try_again) error.code = Errc::unreachable;
  return fail(std::move(error));
}

template <typename Answer>
Result<Answer> ask(const HostFs& host, const std::filesystem::path& socket,
                   std::chrono::milliseconds deadline, const char* method,
                   const google::protobuf::MessageLite& question) {
  auto connection = connect(host, socket);
  if (!connection) return fail(std::move(connection).error());
  Result<Answer> out;
  auto answered = call_and_wait(
      std::move(*connection),
      {.method = method, .message = to_wire(question), .deadline = {}, .largest_answer = kLargestAnswer},
      deadline, [&](const ClientCall& call) {
        if (call.status() != GRPC_STATUS_OK) {
          // A service that still starts answers with an error status, which is an answer too.
          const bool is_unknown = call.status() == GRPC_STATUS_UNIMPLEMENTED;
          out = fail(call.silent() ? Errc::unreachable
                     : is_unknown  ? Errc::unsupported
                                   : Errc::failed,
                     std::string(call.text()));
        } else if (!from_wire(call.answer(), *out)) {
          out = fail(Errc::malformed_host, "its answer cannot be read");
        }
      });
  if (!answered) return fail(std::move(answered).error().during(socket.string()));
  if (!out) return fail(std::move(out).error().during(socket.string()));
  return out;
}

/// Why containerd has not loaded its CRI, in its own words. Empty: it does not say.
std::string why_without_cri(const HostFs& host, const std::filesystem::path& socket,
                            std::chrono::milliseconds deadline) {
  namespace introspection = containerd::services::introspection::v1;
  const auto plugins = ask<introspection::PluginsResponse>(
      host, socket, deadline, "/containerd.services.introspection.v1.Introspection/Plugins",
      introspection::PluginsRequest());
  if (!plugins) return {};
  for (const auto& plugin : plugins->plugins())
    if (plugin.type() == "io.containerd.grpc.v1" && plugin.id() == "cri") return plugin.init_err().message();
  return "its CRI plugin is disabled";
}

/// Absent: no such key. Go writes `null` for an empty list.
std::optional<std::vector<std::string>> texts_at(const nlohmann::json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end()) return std::nullopt;
  std::vector<std::string> out;
  if (!value->is_array()) return out;
  for (const auto& text : *value) out.push_back(text.is_string() ? text.get<std::string>() : "");
  return out;
}

}  // namespace

Result<std::optional<std::vector<KnownRuntime>>> runtimes_of_info(std::string_view config) {
  const auto document = parse_answer_json(config);
  if (document.is_discarded()) return fail(Errc::malformed_host, "its configuration is no JSON");
  const auto& runtimes = json_at(json_at(document, "containerd"), "runtimes");
  if (!runtimes.is_object()) return std::optional<std::vector<KnownRuntime>>();
  std::vector<KnownRuntime> out;
  for (const auto& [name, runtime] : runtimes.items()) {
    if (!runtime.is_object())
      return fail(Errc::malformed_host, fmt::format("its runtime {} is no object", name));
    KnownRuntime& known =
        out.emplace_back(KnownRuntime{.name = name,
                                      .type = text_at(runtime, "runtimeType"),
                                      .shim = text_at(runtime, "runtimePath"),
                                      .configuration = text_at(json_at(runtime, "options"), "ConfigPath")});
    if (runtime.contains("snapshotter")) known.snapshotter = text_at(runtime, "snapshotter");
    known.pod_annotations = texts_at(runtime, "PodAnnotations");
    known.container_annotations = texts_at(runtime, "ContainerAnnotations");
  }
  return std::optional(std::move(out));
}

Result<RuntimeState> CriClient::state() {
  auto version = ask<runtime::v1::VersionResponse>(
      *host_, socket_, deadline_, "/runtime.v1.RuntimeService/Version", runtime::v1::VersionRequest());
  if (!version && version.error().code == make_error_code(Errc::unsupported)) {
    const std::string why = why_without_cri(*host_, socket_, deadline_);
    return fail(Errc::unsupported, fmt::format("{}: it runs without CRI: {}", socket_.string(),
                                               why.empty() ? version.error().message : why));
  }
  if (!version) return fail(std::move(version).error());
  runtime::v1::StatusRequest question;
  question.set_verbose(true);
  auto status = ask<runtime::v1::StatusResponse>(*host_, socket_, deadline_,
                                                 "/runtime.v1.RuntimeService/Status", question);
  if (!status) return fail(std::move(status).error());
  RuntimeState out{
      .name = version->runtime_name(), .version = version->runtime_version(), .handlers = {}, .runtimes = {}};
  if (!status->runtime_handlers().empty()) {
    auto& names = out.handlers.emplace();
    for (const auto& handler : status->runtime_handlers()) names.push_back(handler.name());
  }
  if (const auto config = status->info().find("config"); config != status->info().end()) {
    auto runtimes = runtimes_of_info(config->second);
    if (!runtimes) return fail(std::move(runtimes).error().during(socket_.string()));
    out.runtimes = std::move(*runtimes);
  }
  return out;
}

Result<std::vector<RunningPod>> CriClient::pods() {
  auto answer = ask<runtime::v1::ListPodSandboxResponse>(*host_, socket_, deadline_,
                                                         "/runtime.v1.RuntimeService/ListPodSandbox",
                                                         runtime::v1::ListPodSandboxRequest());
  if (!answer) return fail(std::move(answer).error());
  std::vector<RunningPod> out;
  for (const auto& pod : answer->items()) {
    if (pod.state() != runtime::v1::SANDBOX_READY) continue;
    out.push_back({.name_space = pod.metadata().namespace_(),
                   .name = pod.metadata().name(),
                   .handler = pod.runtime_handler(),
                   .sandbox = pod.id()});
  }
  return out;
}

}  // namespace ferry::kata
