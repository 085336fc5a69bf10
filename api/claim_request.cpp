// SPDX-License-Identifier: Apache-2.0
#include "api/claim_request.h"

#include <algorithm>
#include <system_error>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/claim_fields.h"
#include "common/errc_words.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/words.h"

namespace ferry::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostDevices = 32;  // of a ResourceClaim: resource/v1, AllocationResultsMaxSize
constexpr std::size_t kMostNodes = 64;    // far above the functions of an IOMMU group
constexpr int kHighestErrno = 4095;       // MAX_ERRNO of the kernel
// A byte takes six bytes of JSON text at most, so both together stay below kLongestClaimMessage.
constexpr std::size_t kLongestErrorText = 8000;
constexpr std::size_t kLongestHint = 2000;

/// A device with the name by which a pod gets it, as the message has both.
struct DeviceEntry {
  RequestedDevice device = {};
  DeviceOfPod published = {};
};

template <typename Io, SameAs<DeviceEntry> Value>
void fields(Io& io, Value& entry) {
  fields(io, entry.device);
  fields(io, entry.published);
}

struct Request {
  ClaimRequest claim = {};  ///< without its devices
  std::vector<DeviceEntry> devices = {};
};

template <typename Io, SameAs<Request> Value>
void fields(Io& io, Value& request) {
  auto& [claim, devices] = request;
  io.version(kClaimRequestVersion);
  io("action", claim.action);
  io("claim", claim.claim);
  io.check("claim", is_label(claim.claim), "it cannot be a UID of Kubernetes");
  io("namespace", claim.space);
  io.check("namespace", is_label(claim.space), "it cannot be a namespace");
  io("name", claim.name);
  io.check("name", is_object_name(claim.name), "it cannot be the name of a ResourceClaim");
  io.or_null("pod_claim", claim.pod_claim);
  io.check("pod_claim", claim.pod_claim.empty() || is_label(claim.pod_claim),
           "it cannot be a pod's name of a claim");
  io("devices", devices);
  io.check("devices", devices.size() <= kMostDevices,
           "a claim has " + std::to_string(kMostDevices) + " at most");
  io.check("devices", !devices.empty() || claim.action == ClaimAction::unprepare, "expected a device");
  io.check("devices", devices.empty() || claim.action == ClaimAction::prepare, "expected none");
}

ClaimRequest read_request(const JsonObject& object) {
  auto [out, devices] = read_fields<Request>(object);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto& [device, published] = devices[i];
    if (std::ranges::find(out.published, published.name, &DeviceOfPod::name) != out.published.end())
      object.blame("devices[" + std::to_string(i) + "].name", "two devices have it");
    out.devices.push_back(std::move(device));
    out.published.push_back(std::move(published));
  }
  return out;
}

Error read_error(const JsonObject& error) {
  Error out{.code = {}, .message = error.text("message"), .hint = error.text_or_none("hint")};
  if (const auto number = error.number_or_none<int>("errno")) {
    if (*number == 0 || *number > kHighestErrno) error.blame("errno", "expected an errno");
    out.code = std::error_code(*number, std::generic_category());
    return out;
  }
  const auto code = value_for(kErrcWords, error.text("code"));
  if (!code) error.blame("code", "it is none of its words");
  out.code = make_error_code(code.value_or(Errc::failed));
  return out;
}

struct Answer {
  std::optional<Error> error = {};
  std::vector<PreparedDevice> devices = {};
};

Answer read_answer(const JsonObject& answer) {
  answer.expect_version(kClaimRequestVersion);
  Answer out{.error = answer.object_or_none("error", read_error)};
  if (out.error) return out;
  out.devices = answer.list("devices", [](const JsonObject& object) {
    auto device = read_fields<PreparedDevice>(object);
    if (device.mdev_uuid.empty() == !device.function)
      object.blame("function", "expected a function or a mediated device, and not both");
    if (device.nodes.size() > kMostNodes) object.blame("nodes", "there are too many");
    return device;
  });
  if (out.devices.size() > kMostDevices) answer.blame("devices", "there are too many");
  return out;
}

/// The value that `read` makes of a message. Errc::malformed_host: `what` has a fault.
template <typename Read>
auto read_message(std::string_view text, const char* what, Read read)
    -> Result<std::invoke_result_t<Read, const JsonObject&>> {
  return read_document(text, what, "are `ferry dra` and `ferry hostd` of one version?", read,
                       {.bytes = kLongestClaimMessage});
}

// Writing.

std::string message_text(const Json& message) {
  return message.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string cut(const std::string& text, std::size_t longest) {
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

Json json_of(const Error& error) {
  const bool is_errno = error.code.category() == std::generic_category() && error.code.value() > 0;
  const bool is_ours = error.code.category() == ferry_category();
  const std::string_view word =
      is_ours ? word_for(kErrcWords, static_cast<Errc>(error.code.value()), "failed") : "failed";
  Json out = {{"code", is_errno ? "errno" : word}};
  if (is_errno) out["errno"] = error.code.value();
  out["message"] = cut(error.message, kLongestErrorText);
  out["hint"] = or_null(cut(error.hint, kLongestHint));
  return out;
}

}  // namespace

std::string claim_request_text(const ClaimRequest& request) {
  Request message{.claim = request};
  for (std::size_t i = 0; i < request.devices.size(); ++i)
    message.devices.push_back({.device = request.devices[i], .published = request.published.at(i)});
  return message_text(written_fields(message));
}

Result<ClaimRequest> read_claim_request(std::string_view text) {
  return read_message(text, "the request", read_request);
}

std::string claim_answer_text(const Result<std::vector<PreparedDevice>>& answer) {
  if (!answer) return message_text({{"version", kClaimRequestVersion}, {"error", json_of(answer.error())}});
  Json devices = Json::array();
  for (const PreparedDevice& device : *answer) devices.push_back(written_fields(device));
  return message_text({{"version", kClaimRequestVersion}, {"devices", std::move(devices)}});
}

Result<std::vector<PreparedDevice>> read_claim_answer(std::string_view text) {
  auto answer = read_message(text, "the answer of hostd", read_answer);
  if (!answer) return fail(std::move(answer).error());
  if (auto& error = answer->error) return fail(std::move(*error));
  return std::move(answer->devices);
}

}  // namespace ferry::api
