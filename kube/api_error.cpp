// SPDX-License-Identifier: Apache-2.0
#include "kube/api_error.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "common/text/whole_json.h"
#include "common/text/words.h"

namespace ferry::kube {
namespace {

using nlohmann::json;

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "kubernetes"; }
  std::string message(int value) const override {
    constexpr Words<ApiErrc, 11> kWords = {{{"invalid", ApiErrc::invalid},
                                            {"unauthorized", ApiErrc::unauthorized},
                                            {"forbidden", ApiErrc::forbidden},
                                            {"not found", ApiErrc::not_found},
                                            {"already exists", ApiErrc::already_exists},
                                            {"conflict", ApiErrc::conflict},
                                            {"expired", ApiErrc::expired},
                                            {"too many requests", ApiErrc::too_many_requests},
                                            {"the API server's fault", ApiErrc::server_fault},
                                            {"too large", ApiErrc::too_large},
                                            {"unexpected answer", ApiErrc::unexpected}}};
    return std::string(word_for(kWords, static_cast<ApiErrc>(value), "unknown"));
  }
};

// A proxy in between may answer anything: cuts it to one line that a terminal can show. A byte that is not
// UTF-8 would be another one in an annotation of the Node, which the agent would write again and again.
std::string shown(std::string_view text) {
  constexpr std::size_t kEnough = 500;
  std::string out(beginning_of(text, kEnough));
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  out.erase(out.find_last_not_of(' ') + 1);
  return std::string(beginning_of(visible_line(out), kEnough));
}

/// The message of a Status, and those of its causes that it does not repeat, such as a disruption budget.
std::string message_in(const json& status) {
  constexpr std::size_t kMostCauses = 4;
  std::string out = text_at(status, "message");
  const json& causes = json_at(json_at(status, "details"), "causes");
  if (!causes.is_array()) return out;
  for (std::size_t i = 0; i < std::min(causes.size(), kMostCauses); ++i) {
    const std::string cause = text_at(causes[i], "message");
    if (out.find(cause) == std::string::npos) out += (out.empty() ? "" : " ") + cause;
  }
  return out;
}

ApiErrc meaning_of(int status, std::string_view reason) {
  if (status == 409) return reason == "AlreadyExists" ? ApiErrc::already_exists : ApiErrc::conflict;
  switch (status) {
    case 400:
    case 413:
    case 415:
    case 422:
      return ApiErrc::invalid;
    case 401:
      return ApiErrc::unauthorized;
    case 403:
      return ApiErrc::forbidden;
    case 404:
      return ApiErrc::not_found;
    case 410:
      return ApiErrc::expired;
    case 429:
      return ApiErrc::too_many_requests;
    default:
      return status >= 500 && status < 600 ? ApiErrc::server_fault : ApiErrc::unexpected;
  }
}

Error error_of(int status, std::string_view reason, std::string_view said, const Asked& asked) {
  const auto code = meaning_of(status, reason);
  auto message = fmt::format("{} {}: the API server answers {}", asked.verb, asked.object, status);
  if (!reason.empty()) message += " " + shown(reason);
  if (!said.empty()) message += ": " + shown(said);
  std::string hint;
  if (code == ApiErrc::unauthorized)
    hint = "the token or client certificate is not, or no longer, one that this cluster knows";
  if (code == ApiErrc::forbidden) {
    const auto slash = asked.kind.api_version.find('/');
    const auto group = slash == std::string_view::npos ? "" : asked.kind.api_version.substr(0, slash);
    hint = fmt::format("the role bound to our account lacks the verb {} on {}{}{} in the API group \"{}\"",
                       asked.verb, asked.kind.plural, asked.subresource.empty() ? "" : "/", asked.subresource,
                       group);
  }
  return {.code = make_error_code(code), .message = std::move(message), .hint = std::move(hint)};
}

}  // namespace

const std::error_category& api_category() noexcept {
  static const Category category;
  return category;
}

std::error_code make_error_code(ApiErrc code) noexcept {
  return {static_cast<int>(code), api_category()};
}

Error error_of(const ApiReply& reply, const Asked& asked) {
  const auto status = parse_answer_json(reply.body);
  if (!status.is_object()) return error_of(reply.status, "", reply.body, asked);
  return error_of(reply.status, text_at(status, "reason"), message_in(status), asked);
}

Error error_of(const json& status, const Asked& asked) {
  const auto reason = text_at(status, "reason");
  const json& number = json_at(status, "code");
  int code = 0;
  if (number.is_number_integer())
    code = static_cast<int>(std::clamp<std::int64_t>(number.get<std::int64_t>(), 0, 999));
  // Older servers send the reason alone.
  if (code == 0 && (reason == "Expired" || reason == "Gone")) code = 410;
  return error_of(code, reason, message_in(status), asked);
}

Result<json> object_of(std::string_view body, const Asked& asked) {
  auto parsed = parse_answer_json(body);
  if (parsed.is_object()) return parsed;
  return fail(Errc::malformed_host,
              fmt::format("{} {}: the API server's answer is no JSON object", asked.verb, asked.object));
}

bool may_mend(const Error& error) noexcept {
  return error.code == Errc::unreachable || error.code == ApiErrc::too_many_requests ||
         error.code == ApiErrc::server_fault;
}

}  // namespace ferry::kube
