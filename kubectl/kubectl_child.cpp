// SPDX-License-Identifier: Apache-2.0
#include "kubectl/kubectl_child.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/process/spawn.h"
#include "common/process/standard_streams.h"
#include "common/text/text.h"
#include "kube/api_error.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

constexpr std::string_view kRefusal = "Error from server (";
constexpr std::string_view kNoLogin = "error: You must be logged in to the server (";

/// Passes on what a child writes to standard error, as the questions of a login, and keeps kubectl's own last
/// words, which become part of the error. The same words may also be a fact: the cluster has no such kind.
class ChildWords {
 public:
  void hear(std::string_view text) {
    line_ += text;
    for (auto end = line_.find('\n'); end != std::string::npos; end = line_.find('\n')) {
      take(line_.substr(0, end + 1));
      line_.erase(0, end + 1);
    }
    // A question has no end of line. A line that may become kubectl's verdict waits for its end.
    if (!line_.empty() && last_.empty() && !may_be_verdict(line_)) take(std::exchange(line_, {}));
  }
  /// kubectl's own last words; empty: it had none.
  std::string last() {
    if (!line_.empty()) take(std::exchange(line_, {}));
    return std::string(trimmed(last_));
  }

 private:
  // Programs of a login say "error: ", too, in front of an address to open.
  static constexpr std::array<std::string_view, 4> kVerdicts = {
      "Error from server", kNoLogin, "Unable to connect to the server", "The connection to the server"};

  static bool may_be_verdict(std::string_view line) {
    return std::ranges::any_of(kVerdicts, [line](std::string_view verdict) {
      return line.starts_with(verdict) || verdict.starts_with(line);
    });
  }
  void take(const std::string& line) {
    constexpr std::size_t kMost = 4096;
    if (last_.empty() && !may_be_verdict(line)) return say_to_stderr(line);
    if (last_.size() < kMost) last_ += line;
  }

  std::string line_;  ///< not ended yet
  std::string last_;
};

/// The status of HTTP behind a reason, of those that callers branch on; 0: another reason.
/// ABI: k8s.io/apimachinery/pkg/apis/meta/v1, StatusReason.
int status_of(std::string_view reason) {
  for (const auto& [name, status] : {std::pair{"Forbidden", 403},
                                     {"Unauthorized", 401},
                                     {"NotFound", 404},
                                     {"Expired", 410},
                                     {"Gone", 410},
                                     {"BadRequest", 400},
                                     {"Invalid", 422},
                                     {"TooManyRequests", 429},
                                     {"InternalError", 500},
                                     {"ServiceUnavailable", 503},
                                     {"Timeout", 504}})
    if (reason == name) return status;
  return 0;
}

/// The error of a kubectl that has ended with `status`.
Error refusal(const kube::Asked& asked, int status, const std::string& words) {
  const auto of_server = [&](int code, const std::string& reason, const std::string& message) {
    return kube::error_of(json{{"code", code}, {"reason", reason}, {"message", message}}, asked);
  };
  if (words.starts_with(kNoLogin)) return of_server(401, "Unauthorized", words);
  const auto end = words.find("): ");
  if (words.starts_with(kRefusal) && end != std::string::npos) {
    const std::string reason = words.substr(kRefusal.size(), end - kRefusal.size());
    Error error = of_server(status_of(reason), reason, words.substr(end + 3));
    if (error.code == kube::ApiErrc::not_found && asked.kind == kube::kNodes)
      error.hint =
          "kubectl 1.33 and older leave the path of the server's address out, such as Rancher's: use a newer "
          "kubectl";
    return error;
  }
  return {.code = make_error_code(Errc::failed),
          .message = fmt::format("{} {}: kubectl has ended with status {}{}", asked.verb, asked.object,
                                 status, words.empty() ? "; its own message is above" : ": " + words),
          .hint = fmt::format("does `kubectl get {}` work?", asked.kind.plural)};
}

/// Runs kubectl for its output. Errors: those of Kubectl.
Result<std::string> ask(const Kubectl& kubectl, const std::string& path, const kube::Asked& asked) {
  std::vector<std::string> words = kubectl.program;
  words.insert(words.end(), {"get", "--raw", path});
  words.insert(words.end(), kubectl.flags.begin(), kubectl.flags.end());
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  ChildWords child;
  auto output =
      run_for_output(words.front(), words, {.in = terminal ? STDIN_FILENO : -1, .err = STDERR_FILENO},
                     {.bytes = Kubectl::kMostBytes, .time = kubectl.limit},
                     [&child](std::string_view text) { child.hear(text); });
  const std::string last = child.last();
  if (output && output->status == 0) return std::move(output->text);
  if (output) return fail(refusal(asked, output->status, last));
  Error error = std::move(output).error();
  if (error.code == std::errc::no_such_file_or_directory)
    return fail(Errc::failed, fmt::format("there is no program '{}'", words.front()),
                "install kubectl, or name it by --kubectl or the variable KUBECTL: oc, or 'k3s kubectl'");
  if (error.code == std::errc::file_too_large) error.code = make_error_code(kube::ApiErrc::too_large);
  if (!last.empty()) error.message += ": " + last;
  return fail(std::move(error).during(fmt::format("{} {}", asked.verb, asked.object)));
}

}  // namespace

std::string_view long_name(const HandedOn& flag) {
  const std::string_view name = flag.name;
  return name.substr(name.find("--"));
}

std::vector<std::string> kubectl_words(const std::string& option, const std::string& variable) {
  for (const std::string* text : {&option, &variable}) {
    auto words = words_between(*text, ' ');
    std::erase(words, "");
    if (!words.empty()) return words;
  }
  return {"kubectl"};
}

Result<json> Kubectl::list(const kube::Selection& selection, const kube::ListRange& range) const {
  const kube::Asked asked{.verb = "list", .kind = selection.kind, .object = selection.text()};
  const auto path = kube::path_of(selection, range);
  if (!path) return fail(path.error());
  const auto answer = ask(*this, *path, asked);
  if (!answer) return fail(answer.error());
  return kube::object_of(*answer, asked);
}

Result<std::string> Kubectl::log(const kube::ObjectRef& pod, const kube::LogEnd& end) const {
  const auto path = kube::log_path(pod, end);
  if (!path) return fail(path.error());
  return ask(*this, *path,
             {.verb = "get",
              .kind = pod.kind,
              .subresource = "log",
              .object = fmt::format("log of {} {}", pod.text(), end.container)});
}

std::string Kubectl::default_namespace() const {
  constexpr std::size_t kLongestName = 253;
  std::vector<std::string> words = program;
  words.insert(words.end(), {"config", "view", "--minify", "--output=jsonpath={..namespace}"});
  words.insert(words.end(), flags.begin(), flags.end());
  const auto output = run_for_output(words.front(), words, {}, {.bytes = kLongestName, .time = limit});
  return output && output->status == 0 && !output->text.empty() ? output->text : "default";
}

}  // namespace ferry::kubectl
