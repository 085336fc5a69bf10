// SPDX-License-Identifier: Apache-2.0
#include "kube/exec_credential.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/config/config_reader.h"
#include "common/config/config_tree.h"
#include "common/process/spawn.h"
#include "common/text/encoding.h"
#include "common/text/text.h"
#include "common/text/whole_json.h"
#include "kube/credential_file.h"

namespace ferry::kube {
namespace {

using nlohmann::json;
using std::chrono::sys_seconds;

constexpr const char* kExecInfo = "KUBERNETES_EXEC_INFO";
constexpr int kUnauthorized = 401;

/// A number of exactly so many digits.
std::optional<int> number_at(std::string_view text, std::size_t at, std::size_t digits) {
  if (at + digits > text.size()) return std::nullopt;
  const std::string_view part = text.substr(at, digits);
  return std::ranges::all_of(part, is_digit) ? whole_number<int>(part) : std::nullopt;
}

/// "Z", "+01:00".
std::optional<std::chrono::minutes> offset_of(std::string_view text) {
  if (text == "Z") return std::chrono::minutes(0);
  if (text.size() != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') return std::nullopt;
  const auto hours = number_at(text, 1, 2);
  const auto minutes = number_at(text, 4, 2);
  if (!hours || !minutes || *hours > 23 || *minutes > 59) return std::nullopt;
  const std::chrono::minutes offset = std::chrono::hours(*hours) + std::chrono::minutes(*minutes);
  return text[0] == '-' ? -offset : offset;
}

/// The value of a key that is a string; empty: absent.
Result<std::string> string_in(const json& status, const char* key) {
  const auto found = status.find(key);
  if (found == status.end() || found->is_null()) return std::string();
  if (!found->is_string())
    return fail(Errc::failed, fmt::format("status.{} is not a string but {}", key, found->type_name()));
  return found->get<std::string>();
}

Result<std::string> pem_in(const json& status, const char* key) {
  auto text = string_in(status, key);
  if (text && !text->empty() && text->find("-----BEGIN ") == std::string::npos)
    return fail(Errc::failed, fmt::format("status.{} is no PEM", key));
  return text;
}

/// Absent, or another one than the key should have: what is said of it.
std::string found_in(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "nothing";
  return found->is_string() ? fmt::format("'{}'", shortened(found->get_ref<const std::string&>()))
                            : std::string(found->type_name());
}

/// The path itself; empty: there is no program.
std::string program_at(const std::filesystem::path& path) {
  struct stat status {};
  const bool is_program =
      ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
  return is_program ? path.string() : std::string();
}

/// The program of that name; empty: there is none. kubectl, too, starts nothing from the folder in which it
/// happens to run.
std::string program_in_path(const std::string& name, const std::string& path) {
  for (const std::string& folder : words_between(path, ':')) {
    if (!folder.starts_with('/')) continue;
    if (std::string program = program_at(folder + "/" + name); !program.empty()) return program;
  }
  return {};
}

/// True: an entry of the list, a name or a path, is the program.
bool is_listed(const std::string& entry, const ExecConfig& config, const std::string& path) {
  const auto found = [&path](const std::string& command) {
    return command.find('/') == std::string::npos ? program_in_path(command, path) : program_at(command);
  };
  const std::string program = config.program.empty()
                                  ? config.command
                                  : std::filesystem::absolute(config.program).lexically_normal().string();
  if (entry.empty()) return false;
  return entry == program || (!found(entry).empty() && found(entry) == found(program));
}

}  // namespace

std::optional<sys_seconds> parse_rfc3339(std::string_view text) {
  constexpr std::size_t kSeconds = 19;  // "2026-11-27T20:05:56"
  const std::string head(text.substr(0, kSeconds));
  std::tm parts{};
  if (::strptime(head.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return std::nullopt;
  const std::time_t seconds = ::timegm(&parts);
  // strptime(3) also takes other forms of a time.
  if (fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::gmtime(seconds)) != head) return std::nullopt;
  std::string_view rest = text.substr(kSeconds);
  if (rest.starts_with('.')) {
    const auto end = rest.find_first_not_of("0123456789", 1);
    if (end == 1 || end == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(end);
  }
  const auto offset = offset_of(rest);
  if (!offset) return std::nullopt;
  return sys_seconds(std::chrono::seconds(seconds)) - *offset;
}

Result<ExecCredential> parse_exec_credential(std::string_view output, const std::string& api_version) {
  const json object = parse_answer_json(output);
  if (!object.is_object()) {
    return fail(Errc::failed, trimmed(output).empty() ? "it is empty" : "it is no JSON object");
  }
  for (const auto& [key, desired] :
       {std::pair<const char*, std::string>{"kind", "ExecCredential"}, {"apiVersion", api_version}}) {
    const auto found = object.find(key);
    if (found == object.end() || *found != json(desired))
      return fail(Errc::failed,
                  fmt::format("{}: expected {}, found {}", key, desired, found_in(object, key)));
  }
  const auto status = object.find("status");
  if (status == object.end() || !status->is_object())
    return fail(Errc::failed,
                fmt::format("status: expected an object, found {}", found_in(object, "status")));

  ExecCredential out;
  auto token = string_in(*status, "token");
  if (!token) return fail(std::move(token).error());
  if (!token->empty()) {
    auto word = token_of(*token);
    if (!word) return fail(Errc::failed, "status.token: " + word.error().message);
    out.token = std::move(*word);
  }
  for (const auto& [key, into] :
       {std::pair{"clientCertificateData", &out.certificate}, std::pair{"clientKeyData", &out.key}}) {
    auto pem = pem_in(*status, key);
    if (!pem) return fail(std::move(pem).error());
    *into = std::move(*pem);
  }
  if (out.certificate.empty() != out.key.empty())
    return fail(Errc::failed, "status has clientCertificateData or clientKeyData without the other");
  if (out.token.empty() && out.certificate.empty())
    return fail(Errc::failed, "status has neither a token nor a certificate");
  const auto time = string_in(*status, "expirationTimestamp");
  if (!time) return fail(time.error());
  if (time->empty()) return out;
  out.expires = parse_rfc3339(*time);
  if (!out.expires)
    return fail(Errc::failed,
                fmt::format("status.expirationTimestamp: '{}' is no time of RFC 3339", shortened(*time)));
  return out;
}

std::string exec_info(const ExecConfig& config, bool interactive, const std::string& authorities) {
  json spec = {{"interactive", interactive}};
  if (!config.cluster.empty()) {
    spec["cluster"] = parse_answer_json(config.cluster);
    if (!authorities.empty()) spec["cluster"]["certificate-authority-data"] = to_base64(authorities);
  }
  const json info = {{"apiVersion", config.api_version}, {"kind", "ExecCredential"}, {"spec", spec}};
  return info.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<> check_plugin_policy(const ExecConfig& config, const Environment& environment) {
  const std::string chosen = value_of(environment, "KUBERC");
  if (chosen == "off" || value_of(environment, "KUBECTL_KUBERC") == "false") return {};
  const std::filesystem::path home = value_of(environment, "HOME");
  const std::filesystem::path file =
      chosen.empty() ? home / ".kube" / "kuberc" : std::filesystem::path(chosen);
  std::error_code ignored;
  if (chosen.empty() && (home.empty() || !std::filesystem::exists(file, ignored))) return {};
  const auto source = read_config_text(file);
  if (!source) return fail(source.error());
  std::vector<std::string> tolerated;  // kubectl, too, reads the first of several documents
  const auto root = parse_config(*source, &tolerated);
  if (!root) return fail(root.error());
  constexpr const char* kPolicy = "credentialPluginPolicy";
  const ConfigReader reader(*source);
  if (root->kind == ConfigNode::Kind::scalar || root->kind == ConfigNode::Kind::list)
    return reader.refuse(*root, "", "expected a map, found " + root->described());
  const ConfigMember* policy = root->find(kPolicy);
  if (policy == nullptr || policy->value.kind == ConfigNode::Kind::null) return {};
  const std::string& name = policy->value.text;
  if (policy->value.kind == ConfigNode::Kind::scalar && (name.empty() || name == "AllowAll")) return {};
  if (name == "Allowlist") {
    const ConfigMember* list = root->find("credentialPluginAllowlist");
    const std::string path = value_of(environment, "PATH");
    for (const ConfigNode& item : list == nullptr ? std::vector<ConfigNode>() : list->value.items) {
      for (const char* key : {"name", "command"}) {
        const ConfigMember* entry = item.find(key);
        if (entry != nullptr && is_listed(entry->value.text, config, path)) return {};
      }
    }
  }
  return reader.refuse(policy->value, kPolicy,
                       fmt::format("{} forbids the program '{}' of {}", policy->value.described(),
                                   config.command, config.place),
                       "kubectl obeys this file too; KUBERC=off leaves it out");
}

ExecAuthenticator::ExecAuthenticator(ExecConfig config, Credential authorities, Settings settings)
    : config_(std::move(config)), authorities_(std::move(authorities)), settings_(std::move(settings)) {}

void ExecAuthenticator::give_to(ClusterAccess& access) const {
  access.token = {.live = token_};
  access.certificate = {.live = certificate_};
  access.key = {.live = key_};
}

tl::unexpected<Error> ExecAuthenticator::failed(const std::string& what, std::string hint) const {
  return fail(Errc::failed, fmt::format("{}: {}", config_.place, what), std::move(hint));
}

Result<ExecCredential> ExecAuthenticator::run() {
  using Mode = ExecConfig::InteractiveMode;
  if (config_.interactive == Mode::always && !settings_.has_terminal)
    return failed(fmt::format("'{}' has to ask a person (interactiveMode: Always), and standard input is no "
                              "terminal",
                              config_.command),
                  "run this in a terminal, with nothing piped into it");
  const bool interactive = config_.interactive != Mode::never && settings_.has_terminal;
  const std::string program = config_.program.empty()
                                  ? program_in_path(config_.command, value_of(settings_.environment, "PATH"))
                                  : program_at(config_.program);
  if (program.empty()) {
    const std::string what = config_.program.empty()
                                 ? fmt::format("there is no program '{}' in PATH", config_.command)
                                 : fmt::format("there is no program {}", config_.program.string());
    return failed(what, config_.install_hint.empty() ? "install it: kubectl needs the same program"
                                                     : config_.install_hint);
  }
  std::string authorities;
  if (!config_.cluster.empty()) {
    CredentialReader reader(authorities_);
    const auto text = reader.now();
    if (!text) return failed(text.error().message);
    authorities = **text;
  }
  Environment variables = settings_.environment;
  for (const auto& [name, value] : config_.variables) variables[name] = value;
  variables[kExecInfo] = exec_info(config_, interactive, authorities);
  std::vector<std::string> words = {config_.command};
  words.insert(words.end(), config_.arguments.begin(), config_.arguments.end());

  constexpr const char* kCompare = "`kubectl get nodes` runs the same program: does that work?";
  OutputLimits limits;
  if (!interactive) limits.time = settings_.most;
  const auto output = run_for_output(
      program, words,
      {.in = interactive ? STDIN_FILENO : -1, .err = STDERR_FILENO, .variables = std::move(variables)},
      limits);
  if (!output) return failed(output.error().message, kCompare);
  if (output->status != 0)
    return failed(fmt::format("'{}' has ended with status {}; its own message is above", config_.command,
                              output->status),
                  kCompare);
  auto credential = parse_exec_credential(output->text, config_.api_version);
  if (!credential)
    return failed(fmt::format("the output of '{}': {}", config_.command, credential.error().message),
                  kCompare);
  return credential;
}

Result<> ExecAuthenticator::prepare() {
  const auto now = settings_.now();
  if (token_->error && now < next_run_) return fail(*token_->error);
  const bool has_expired = expires_ && *expires_ <= std::chrono::floor<std::chrono::seconds>(now);
  if (runs_ > 0 && !token_->error && !refused_ && !has_expired) return {};
  renewed_ = std::exchange(refused_, false);
  ++runs_;
  auto credential = run();
  if (!credential) {
    for (const auto& part : {token_, certificate_, key_}) part->error = credential.error();
    // A run may take minutes, so the pause begins at its end.
    next_run_ = settings_.now() + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return fail(std::move(credential).error());
  }
  for (const auto& part : {token_, certificate_, key_}) part->error.reset();
  pause_ = kFirstPause;
  token_->text = std::move(credential->token);
  certificate_->text = std::move(credential->certificate);
  key_->text = std::move(credential->key);
  // A time that has passed already is a clock that differs: the server decides.
  expires_ = credential->expires;
  if (expires_ && *expires_ <= std::chrono::floor<std::chrono::seconds>(settings_.now())) expires_.reset();
  return {};
}

void ExecAuthenticator::refuse(unsigned run) {
  if (run == runs_ && !renewed_) refused_ = true;
}

void ExecAuthenticator::accept(unsigned run) {
  if (run == runs_) renewed_ = false;
}

ApiTransport::Call ExecTransport::send(ApiRequest request, ApiListener listener) {
  if (authenticator_ == nullptr) return under_.send(std::move(request), std::move(listener));
  // The transport below reports a failure: it finds the error in place of the credentials.
  static_cast<void>(authenticator_->prepare());
  listener.ended = [authenticator = authenticator_, run = authenticator_->runs(),
                    ended = std::move(listener.ended)](Result<ApiReply> reply) {
    if (reply && reply->status == kUnauthorized)
      authenticator->refuse(run);
    else if (reply)
      authenticator->accept(run);
    ended(std::move(reply));
  };
  return under_.send(std::move(request), std::move(listener));
}

}  // namespace ferry::kube
