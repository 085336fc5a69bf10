// SPDX-License-Identifier: Apache-2.0
// The JSON form of devices of claims, in messages to hostd and in the records of hostd and `ferry dra`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "api/claim_request.h"
#include "common/text/json_fields.h"

namespace ferry::api {

/// A label of Kubernetes (RFC 1123), which all UIDs are too: "5be0c3aa-6957-56ff-9764-5b85b1d36fab".
bool is_label(std::string_view text);
bool is_object_name(std::string_view text);
/// "card", or "card/small" where the claim lists alternatives
bool is_request(std::string_view text);
bool is_pool(std::string_view text);
/// "type", "resource.kubernetes.io/pciBusID"
bool is_attribute_name(std::string_view text);
/// "nvidia.com/AD102GL_L40S", as far as it matters for a variable's name.
bool is_resource_name(std::string_view text);
/// The ID of a type: a name in sysfs, a number, or the IDs of a virtual function.
bool is_type(std::string_view text);
/// A UUID as the kernel shows it, in lower case.
bool is_uuid(std::string_view text);

inline constexpr std::size_t kLongestAttribute = 64;  // resource/v1, DeviceAttributeMaxValueLength
inline constexpr std::size_t kMostAttributes = 32;
inline constexpr std::size_t kMostResources = 2;  // of a DeviceClass: its own name and the implicit one

/// {"name": "type", "string": "whole"} or {"name": "typeID", "int": 1150}
struct AttributeEntry {
  std::string name = {};
  Attribute value = {};
};

template <typename Io, SameAs<AttributeEntry> Value>
void fields(Io& io, Value& attribute) {
  io("name", attribute.name);
  io.check("name", is_attribute_name(attribute.name), "it cannot be the name of an attribute");
  if constexpr (Io::kReads) {
    std::optional<std::int64_t> number;
    io.or_null("int", number);
    std::string text;
    if (!number) io("string", text);
    io.check("string", text.size() <= kLongestAttribute, "it is too long");
    attribute.value = number ? Attribute(*number) : Attribute(text);
  } else if (const auto* const number = std::get_if<std::int64_t>(&attribute.value)) {
    io("int", *number);
  } else {
    io("string", std::get<std::string>(attribute.value));
  }
}

template <typename Io, SameAs<RequestedDevice> Value>
void fields(Io& io, Value& device) {
  io("gpu", device.gpu);
  io.or_null("type", device.type);
  io.check("type", device.type.empty() || is_type(device.type), "it cannot be the ID of a vGPU type");
  io.or_null("placement", device.placement);
  io.check("placement", !device.type.empty() || !device.placement, "a whole device has none");
}

template <typename Io, SameAs<DeviceOfPod> Value>
void fields(Io& io, Value& device) {
  fields(io, device.device);
  io("request", device.request);
  io.check("request", is_request(device.request), "it cannot be the name of a request");
  io("pool", device.pool);
  io.check("pool", is_pool(device.pool), "it cannot be the name of a pool");
  io("name", device.name);
  io.check("name", is_label(device.name), "it cannot be the name of a device");
  named_entries<AttributeEntry>(io, "attributes", device.attributes);
  io.check("attributes", device.attributes.size() <= kMostAttributes, "there are too many");
  io.or_null("resources", device.resources);
  io.check("resources", device.resources.size() <= kMostResources, "there are too many");
  io.check("resources", std::ranges::all_of(device.resources, is_resource_name),
           "one cannot be the name of a resource");
}

template <typename Io, SameAs<DeviceNode> Value>
void fields(Io& io, Value& node) {
  io("path", node.path);
  io.check("path", node.path.starts_with("/dev/") && node.path.find("..") == std::string::npos,
           "expected a file in /dev");
  io.or_null("mode", node.mode);
  io.check("mode", node.mode.value_or(0) <= 07777U, "expected permission bits");
}

template <typename Io, SameAs<PreparedDevice> Value>
void fields(Io& io, Value& device) {
  io.or_null("mdev_uuid", device.mdev_uuid);
  io.check("mdev_uuid", device.mdev_uuid.empty() || is_uuid(device.mdev_uuid), "expected a UUID");
  io.or_null("function", device.function);
  io("nodes", device.nodes);
}

}  // namespace ferry::api
