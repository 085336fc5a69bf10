// SPDX-License-Identifier: Apache-2.0
#include "api/claim_request.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/errc_words.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/words.h"

namespace ferry::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostDevices = 32;  // of a ResourceClaim: resource/v1, AllocationResultsMaxSize
constexpr std::size_t kMostNodes = 64;    // far above the functions of an IOMMU group
constexpr std::size_t kLongestLabel = 63;
constexpr std::size_t kLongestName = 253;
constexpr std::size_t kLongestType = 64;
constexpr std::size_t kLongestAttribute = 64;               // resource/v1, DeviceAttributeMaxValueLength
constexpr std::size_t kLongestAttributeName = 63 + 1 + 32;  // a domain and a name
constexpr std::size_t kMostAttributes = 32;
constexpr std::size_t kUuid = 36;
constexpr int kHighestErrno = 4095;  // MAX_ERRNO of the kernel
// A byte takes six bytes of JSON text at most, so both together stay below kLongestClaimMessage.
constexpr std::size_t kLongestErrorText = 8000;
constexpr std::size_t kLongestHint = 2000;

constexpr Words<ClaimAction, 2> kActions = {
    {{"prepare", ClaimAction::prepare}, {"unprepare", ClaimAction::unprepare}}};

std::optional<ClaimAction> parse_action(std::string_view word) {
  return value_for(kActions, word);
}

std::optional<Errc> parse_code(std::string_view word) {
  return value_for(kErrcWords, word);
}

bool is_label_char(char c) {
  return is_lower(c) || is_digit(c) || c == '-';
}

/// A label of Kubernetes (RFC 1123), which all UIDs are too: "5be0c3aa-6957-56ff-9764-5b85b1d36fab".
bool is_label(std::string_view text) {
  return !text.empty() && text.size() <= kLongestLabel && text.front() != '-' && text.back() != '-' &&
         std::ranges::all_of(text, is_label_char);
}

bool is_object_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName || text.ends_with('.')) return false;
  return std::ranges::all_of(words_between(text, '.'), [](const std::string& part) {
    return !part.empty() && part.front() != '-' && part.back() != '-' &&
           std::ranges::all_of(part, is_label_char);
  });
}

/// The ID of a type: a name in sysfs, a number, or the IDs of a virtual function.
bool is_type(std::string_view text) {
  return text.size() <= kLongestType && is_alphanumeric(text.front()) &&
         std::ranges::all_of(
             text, [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == ':'; });
}

/// A UUID as the kernel shows it, in lower case.
bool is_uuid(std::string_view text) {
  constexpr std::array<std::size_t, 4> kDashes = {8, 13, 18, 23};
  if (text.size() != kUuid) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_dash = std::ranges::find(kDashes, i) != kDashes.end();
    const char c = text[i];
    if (is_dash ? c != '-' : !is_digit(c) && (c < 'a' || c > 'f')) return false;
  }
  return true;
}

// Reading.

std::string read_name(const JsonObject& object, const char* key, bool (*is_one)(std::string_view),
                      const char* what) {
  std::string text = object.text(key);
  if (!is_one(text)) object.blame(key, std::string("it cannot be ") + what);
  return text;
}

vfio::PciAddress parse_address(const JsonObject& object, const char* key, const std::string& text) {
  const auto address = vfio::PciAddress::parse(text);
  if (!address) object.blame(key, "it is not a PCI address");
  return address.value_or(vfio::PciAddress());
}

bool is_request(std::string_view text) {
  const auto parts = words_between(text, '/');
  return !text.empty() && parts.size() <= 2 && !text.ends_with('/') && std::ranges::all_of(parts, is_label);
}

bool is_pool(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && !text.ends_with('/') &&
         std::ranges::all_of(words_between(text, '/'), is_object_name);
}

/// "type", "resource.kubernetes.io/pciBusID".
bool is_attribute_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestAttributeName && std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

std::pair<std::string, Attribute> read_attribute(const JsonObject& attribute) {
  std::string name = read_name(attribute, "name", is_attribute_name, "the name of an attribute");
  if (const auto number = attribute.number_or_none<std::int64_t>("int"))
    return {std::move(name), Attribute(*number)};
  std::string text = attribute.text("string");
  if (text.size() > kLongestAttribute) attribute.blame("string", "it is too long");
  return {std::move(name), Attribute(std::move(text))};
}

DeviceOfPod read_published(const JsonObject& device) {
  DeviceOfPod out{.request = read_name(device, "request", is_request, "the name of a request"),
                  .pool = read_name(device, "pool", is_pool, "the name of a pool"),
                  .name = read_name(device, "name", is_label, "the name of a device")};
  auto attributes = device.list("attributes", read_attribute);
  if (attributes.size() > kMostAttributes) device.blame("attributes", "there are too many");
  out.attributes.insert(std::make_move_iterator(attributes.begin()),
                        std::make_move_iterator(attributes.end()));
  return out;
}

RequestedDevice read_requested(const JsonObject& device) {
  RequestedDevice out{.gpu = parse_address(device, "gpu", device.text("gpu")),
                      .type = device.text_or_none("type"),
                      .placement = device.number_or_none<std::uint32_t>("placement")};
  if (!out.type.empty() && !is_type(out.type)) device.blame("type", "it cannot be the ID of a vGPU type");
  if (out.type.empty() && out.placement) device.blame("placement", "a whole device has none");
  return out;
}

DeviceNode read_node(const JsonObject& node) {
  DeviceNode out{.path = node.text("path"), .mode = node.number_or_none<std::uint32_t>("mode")};
  if (!out.path.starts_with("/dev/") || out.path.find("..") != std::string::npos)
    node.blame("path", "expected a file in /dev");
  if (out.mode.value_or(0) > 07777U) node.blame("mode", "expected permission bits");
  return out;
}

PreparedDevice read_prepared(const JsonObject& device) {
  PreparedDevice out{.mdev_uuid = device.text_or_none("mdev_uuid")};
  if (!out.mdev_uuid.empty() && !is_uuid(out.mdev_uuid)) device.blame("mdev_uuid", "expected a UUID");
  if (const std::string function = device.text_or_none("function"); !function.empty())
    out.function = parse_address(device, "function", function);
  if (out.mdev_uuid.empty() == !out.function)
    device.blame("function", "expected a function or a mediated device, and not both");
  out.nodes = device.list("nodes", read_node);
  if (out.nodes.size() > kMostNodes) device.blame("nodes", "there are too many");
  return out;
}

ClaimRequest read_request(const JsonObject& request) {
  request.expect_version(kClaimRequestVersion);
  ClaimRequest out{.action = request.word("action", parse_action, ClaimAction::prepare),
                   .claim = read_name(request, "claim", is_label, "a UID of Kubernetes"),
                   .space = read_name(request, "namespace", is_label, "a namespace"),
                   .name = read_name(request, "name", is_object_name, "the name of a ResourceClaim"),
                   .pod_claim = request.text_or_none("pod_claim")};
  if (!out.pod_claim.empty() && !is_label(out.pod_claim))
    request.blame("pod_claim", "it cannot be a pod's name of a claim");
  out.devices = request.list("devices", [&out](const JsonObject& device) {
    out.published.push_back(read_published(device));
    if (std::ranges::count(out.published, out.published.back().name, &DeviceOfPod::name) > 1)
      device.blame("name", "two devices have it");
    return read_requested(device);
  });
  if (out.devices.size() > kMostDevices)
    request.blame("devices", "a claim has " + std::to_string(kMostDevices) + " at most");
  if (out.devices.empty() == (out.action == ClaimAction::prepare))
    request.blame("devices", out.devices.empty() ? "expected a device" : "expected none");
  return out;
}

Error read_error(const JsonObject& error) {
  Error out{.code = {}, .message = error.text("message"), .hint = error.text_or_none("hint")};
  if (const auto number = error.number_or_none<int>("errno")) {
    if (*number == 0 || *number > kHighestErrno) error.blame("errno", "expected an errno");
    out.code = std::error_code(*number, std::generic_category());
  } else {
    out.code = make_error_code(error.word("code", parse_code, Errc::failed));
  }
  return out;
}

struct Answer {
  std::optional<Error> error;
  std::vector<PreparedDevice> devices;
};

Answer read_answer(const JsonObject& answer) {
  answer.expect_version(kClaimRequestVersion);
  Answer out;
  out.error = answer.object_or_none("error", read_error);
  if (out.error) return out;
  out.devices = answer.list("devices", read_prepared);
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

Json json_of(const RequestedDevice& device, const DeviceOfPod& published) {
  Json attributes = Json::array();
  for (const auto& [name, value] : published.attributes) {
    if (const auto* const number = std::get_if<std::int64_t>(&value))
      attributes.push_back({{"name", name}, {"int", *number}});
    else
      attributes.push_back({{"name", name}, {"string", std::get<std::string>(value)}});
  }
  return {{"gpu", device.gpu.text()},
          {"type", or_null(device.type)},
          {"placement", or_null(device.placement)},
          {"request", published.request},
          {"pool", published.pool},
          {"name", published.name},
          {"attributes", std::move(attributes)}};
}

Json json_of(const PreparedDevice& device) {
  Json nodes = Json::array();
  for (const DeviceNode& node : device.nodes)
    nodes.push_back({{"path", node.path}, {"mode", or_null(node.mode)}});
  return {{"mdev_uuid", or_null(device.mdev_uuid)},
          {"function", device.function ? Json(device.function->text()) : Json()},
          {"nodes", std::move(nodes)}};
}

}  // namespace

std::string claim_request_text(const ClaimRequest& request) {
  Json devices = Json::array();
  for (std::size_t i = 0; i < request.devices.size(); ++i)
    devices.push_back(json_of(request.devices[i], request.published.at(i)));
  return message_text({{"version", kClaimRequestVersion},
                       {"action", word_for(kActions, request.action)},
                       {"claim", request.claim},
                       {"namespace", request.space},
                       {"name", request.name},
                       {"pod_claim", or_null(request.pod_claim)},
                       {"devices", std::move(devices)}});
}

Result<ClaimRequest> read_claim_request(std::string_view text) {
  return read_message(text, "the request", read_request);
}

std::string claim_answer_text(const Result<std::vector<PreparedDevice>>& answer) {
  if (!answer) return message_text({{"version", kClaimRequestVersion}, {"error", json_of(answer.error())}});
  Json devices = Json::array();
  for (const PreparedDevice& device : *answer) devices.push_back(json_of(device));
  return message_text({{"version", kClaimRequestVersion}, {"devices", std::move(devices)}});
}

Result<std::vector<PreparedDevice>> read_claim_answer(std::string_view text) {
  auto answer = read_message(text, "the answer of hostd", read_answer);
  if (!answer) return fail(std::move(answer).error());
  if (auto& error = answer->error) return fail(std::move(*error));
  return std::move(answer->devices);
}

}  // namespace ferry::api
