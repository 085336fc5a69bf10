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

}  // namespace

template <typename Io, SameAs<ClaimRequest> Value>
void fields(Io& io, Value& request) {
  io.version(kClaimRequestVersion);
  io("action", request.action);
  io("claim", request.claim);
  io.check("claim", is_label(request.claim), "it cannot be a UID of Kubernetes");
  io("namespace", request.space);
  io.check("namespace", is_label(request.space), "it cannot be a namespace");
  io("name", request.name);
  io.check("name", is_object_name(request.name), "it cannot be the name of a ResourceClaim");
  io.or_null("pod_claim", request.pod_claim);
  io.check("pod_claim", request.pod_claim.empty() || is_label(request.pod_claim),
           "it cannot be a pod's name of a claim");
  const auto& devices = request.devices;
  io("devices", request.devices);
  io.check("devices", devices.size() <= kMostDevices,
           "a claim has " + std::to_string(kMostDevices) + " at most");
  io.check("devices", !devices.empty() || request.action == ClaimAction::unprepare, "expected a device");
  io.check("devices", devices.empty() || request.action == ClaimAction::prepare, "expected none");
  for (auto device = devices.begin(); device != devices.end(); ++device) {
    const auto first = std::ranges::find(devices, device->name, &DeviceOfPod::name);
    io.check(("devices[" + std::to_string(device - devices.begin()) + "].name").c_str(), first == device,
             "two devices have it");
  }
}

namespace {

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

/// The devices of the answer, or its error.
Result<std::vector<PreparedDevice>> read_answer(const JsonObject& answer) {
  answer.expect_version(kClaimRequestVersion);
  if (auto error = answer.object_or_none("error", read_error)) return fail(std::move(*error));
  auto devices = answer.list("devices", [](const JsonObject& object) {
    auto device = read_fields<PreparedDevice>(object);
    if (device.mdev_uuid.empty() == !device.function)
      object.blame("function", "expected a function or a mediated device, and not both");
    if (device.nodes.size() > kMostNodes) object.blame("nodes", "there are too many");
    return device;
  });
  if (devices.size() > kMostDevices) answer.blame("devices", "there are too many");
  return devices;
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

}  // namespace

std::string claim_request_text(const ClaimRequest& request) {
  return message_text(written_fields(request));
}

Result<ClaimRequest> read_claim_request(std::string_view text) {
  return read_message(text, "the request", read_fields<ClaimRequest>);
}

std::string claim_answer_text(const Result<std::vector<PreparedDevice>>& answer) {
  Json message = {{"version", kClaimRequestVersion}};
  if (answer) {
    message["devices"] = Json::array();
    for (const PreparedDevice& device : *answer) message["devices"].push_back(written_fields(device));
    return message_text(message);
  }
  const Error& error = answer.error();
  const bool is_errno = error.code.category() == std::generic_category() && error.code.value() > 0;
  const bool is_ours = error.code.category() == ferry_category();
  const std::string_view word =
      is_ours ? word_for(kErrcWords, static_cast<Errc>(error.code.value()), "failed") : "failed";
  message["error"]["code"] = is_errno ? "errno" : word;
  if (is_errno) message["error"]["errno"] = error.code.value();
  message["error"]["message"] = cut(error.message, kLongestErrorText);
  message["error"]["hint"] = or_null(cut(error.hint, kLongestHint));
  return message_text(message);
}

Result<std::vector<PreparedDevice>> read_claim_answer(std::string_view text) {
  auto answer = read_message(text, "the answer of hostd", read_answer);
  if (!answer) return fail(std::move(answer).error());
  return std::move(*answer);
}

}  // namespace ferry::api
