// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/stable_uuid.h"

#include <array>

#include <fmt/format.h>
#include <uuid/uuid.h>

namespace ferry::vgpu {
namespace {

// Drawn once for Ferry's vGPUs. Another namespace would change the UUIDs on every node.
constexpr const char* kNamespace = "737869ee-60fc-4d5b-8953-f6a06715e485";

/// Version 5 of "gpu-ferry.io" in the namespace of DNS names. Another namespace would lose the vGPUs of
/// claims whose preparation an update of Ferry interrupts.
constexpr const char* kClaimNamespace = "9caa1be0-df21-5554-842d-2ad9efd38292";

constexpr unsigned kMostNumbers = 256;  // above what any parent carries

mdev::VgpuId uuid_of(const char* space_text, const std::string& name) {
  uuid_t space{};
  ::uuid_parse(space_text, space);
  uuid_t uuid{};
  ::uuid_generate_sha1(uuid, space, name.data(), name.size());
  std::array<char, UUID_STR_LEN> text{};
  ::uuid_unparse_lower(uuid, text.data());
  return {text.data()};
}

}  // namespace

Result<std::string> node_identity(const HostFs& host) {
  constexpr std::size_t kLength = 32;
  auto id = host.read_attribute("etc/machine-id");
  const bool good =
      id && id->size() == kLength && id->find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!good) {
    return fail(Errc::unsupported, id ? "/etc/machine-id holds no machine ID" : std::move(id).error().message,
                "`systemd-machine-id-setup` gives the host one: its vGPUs keep their UUIDs by it");
  }
  return *id;
}

mdev::VgpuId stable_uuid(std::string_view node, const vfio::PciAddress& parent, std::string_view short_name,
                         unsigned number) {
  return uuid_of(kNamespace, fmt::format("{}/{}/{}/{}", node, parent.text(), short_name, number));
}

mdev::VgpuId claim_uuid(std::string_view claim, std::size_t index) {
  return uuid_of(kClaimNamespace, fmt::format("{}/{}", claim, index));
}

std::optional<unsigned> our_number(std::string_view node, const mdev::VgpuDevice& device) {
  if (device.captured_number) return device.captured_number;
  constexpr std::size_t kVersionDigit = 14;
  if (device.id.text.size() <= kVersionDigit || device.id.text[kVersionDigit] != '5') return std::nullopt;
  for (unsigned number = 0; number < kMostNumbers; ++number) {
    if (stable_uuid(node, device.parent, device.short_name, number) == device.id) return number;
  }
  return std::nullopt;
}

bool is_ours(std::string_view node, const mdev::VgpuDevice& device) {
  return our_number(node, device).has_value();
}

}  // namespace ferry::vgpu
