// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <optional>
#include <stop_token>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "agent/programs/programs.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/process/standard_streams.h"
#include "common/process/this_process.h"
#include "common/text/json.h"
#include "common/text/whole_json.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"

namespace ferry::agent {
namespace {

/// The answer to one request without a second try.
Result<kube::ApiReply> ask(const std::string& path, const kube::AccessChoice& choice) {
  auto access = kube::cluster_access(choice, process_environment());
  if (!access) return fail(std::move(access).error());
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  kube::CurlTransport transport(**loop, std::move(*access));
  std::optional<Result<kube::ApiReply>> answer;
  std::stop_source over;
  transport.send({.path = path}, {.ended = [&](Result<kube::ApiReply> reply) {
                   answer = std::move(reply);
                   over.request_stop();
                 }});
  (*loop)->run(over.get_token());
  if (!answer) return fail(Errc::failed, "the loop has ended without an answer");
  return std::move(*answer);
}

/// A refusal in kubectl's words. ABI: k8s.io/kubectl/pkg/cmd/util, StandardErrorMessage.
std::string refusal(const kube::ApiReply& reply) {
  constexpr int kForbidden = 403;
  constexpr int kNotFound = 404;
  const auto status = parse_answer_json(reply.body);
  std::string reason = text_at(status, "reason");
  if (reason.empty() && reply.status == kForbidden) reason = "Forbidden";
  if (reason.empty() && reply.status == kNotFound) reason = "NotFound";
  const std::string message = text_at(status, "message");
  return fmt::format("Error from server ({}): {}\n", reason.empty() ? "Unknown" : reason,
                     message.empty() ? fmt::format("it answers {}", reply.status) : message);
}

}  // namespace

int get_program(int argc, char** argv) {
  CLI::App app("Prints the API server's answer for a path, as `kubectl get --raw` does.", "ferry-agent get");
  std::string path;
  kube::AccessChoice choice;
  app.add_option("--raw", path, "the path with its query")->required();
  app.add_option("--kubeconfig", choice.kubeconfig, "how to reach the API server");
  app.add_option("--context", choice.context, "the context of that file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    print_to_stderr("error: ferry-agent get: {}\n", error.what());
    return static_cast<int>(ExitStatus::usage);
  }
  hide_process();  // it has a token for the API server
  constexpr int kOk = 200;
  const auto reply = ask(path, choice);
  if (!reply) return static_cast<int>(print_error("error", reply.error()));
  if (reply->status != kOk) {
    say_to_stderr(refusal(*reply));
    return static_cast<int>(ExitStatus::failed);
  }
  const bool written = std::fwrite(reply->body.data(), 1, reply->body.size(), stdout) == reply->body.size() &&
                       std::fflush(stdout) == 0;
  return static_cast<int>(written ? ExitStatus::done : ExitStatus::failed);
}

}  // namespace ferry::agent
