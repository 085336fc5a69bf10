// SPDX-License-Identifier: Apache-2.0
// The bytes that every kubelet of today speaks, against our own description of them.
#include <string_view>

#include <gtest/gtest.h>

#include "deviceplugin.pb.h"
#include "pluginregistration.pb.h"
#include "tests/kubevirt-plugin/hex.h"

namespace {

using ferry::test::bytes;

template <typename Message>
void expect_bytes(const Message& message, std::string_view hex) {
  EXPECT_EQ(message.SerializeAsString(), bytes(hex));
  Message read;
  ASSERT_TRUE(read.ParseFromString(bytes(hex)));
  EXPECT_EQ(read.SerializeAsString(), message.SerializeAsString());
}

TEST(WireFormat, RegisterRequest) {
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint("kubevirt-X.sock");
  request.set_resource_name("nvidia.com/X");
  request.mutable_options()->set_get_preferred_allocation_available(true);
  expect_bytes(
      request,
      "0a07 76316265746131 120f 6b756265766972742d582e736f636b 1a0c 6e76696469612e636f6d2f58 2202 1001");
  EXPECT_EQ(request.ByteSizeLong(), 44U);
}

TEST(WireFormat, DeviceOnNumaNodeOne) {
  v1beta1::ListAndWatchResponse list;
  auto* const device = list.add_devices();
  device->set_id("0000:17:00.0");
  device->set_health("Healthy");
  device->mutable_topology()->add_nodes()->set_id(1);
  expect_bytes(list, "0a1d 0a0c 303030303a31373a30302e30 1207 4865616c746879 1a04 0a02 0801");
}

TEST(WireFormat, NumaNodeZeroIsPresentAndEmpty) {
  v1beta1::ListAndWatchResponse list;
  auto* const device = list.add_devices();
  device->set_id("g");
  device->set_health("Healthy");
  device->mutable_topology()->add_nodes()->set_id(0);
  expect_bytes(list, "0a10 0a01 67 1207 4865616c746879 1a02 0a00");
}

TEST(WireFormat, AllocateResponse) {
  v1beta1::AllocateResponse response;
  auto* const container = response.add_container_responses();
  (*container->mutable_envs())["K"] = "V";
  auto* const device = container->add_devices();
  device->set_container_path("/dev/vfio/vfio");
  device->set_host_path("/dev/vfio/vfio");
  device->set_permissions("mrw");
  container->add_cdi_devices()->set_name("nvidia.com/pgpu=8");
  expect_bytes(response,
               "0a44 0a06 0a01 4b 1201 56 1a25 0a0e 2f6465762f7666696f2f7666696f 120e "
               "2f6465762f7666696f2f7666696f 1a03 6d7277 2a13 0a11 6e76696469612e636f6d2f706770753d38");
}

TEST(WireFormat, PluginInfo) {
  pluginregistration::PluginInfo info;
  info.set_type("T");
  info.set_name("N");
  info.set_endpoint("E");
  info.add_supported_versions("v");
  expect_bytes(info, "0a01 54 1201 4e 1a01 45 2201 76");
  pluginregistration::RegistrationStatus status;
  status.set_plugin_registered(true);
  status.set_error("e");
  expect_bytes(status, "0801 1201 65");
}

// The rest of the contract: field numbers by the tag that each one makes.
TEST(WireFormat, FieldNumbers) {
  v1beta1::PreferredAllocationRequest desired_state;
  auto* const container = desired_state.add_container_requests();
  container->add_available_deviceids("a");
  container->add_must_include_deviceids("b");
  container->set_allocation_size(2);
  expect_bytes(desired_state, "0a08 0a01 61 1201 62 1802");

  v1beta1::PreferredAllocationResponse chosen;
  chosen.add_container_responses()->add_deviceids("a");
  expect_bytes(chosen, "0a03 0a01 61");

  v1beta1::AllocateRequest request;
  request.add_container_requests()->add_devices_ids("a");
  expect_bytes(request, "0a03 0a01 61");

  v1beta1::PreStartContainerRequest start;
  start.add_devices_ids("a");
  expect_bytes(start, "0a01 61");

  v1beta1::DevicePluginOptions options;
  options.set_pre_start_required(true);
  options.set_get_preferred_allocation_available(true);
  expect_bytes(options, "0801 1001");

  v1beta1::ContainerAllocateResponse answer;
  auto* const mount = answer.add_mounts();
  mount->set_container_path("c");
  mount->set_host_path("h");
  mount->set_read_only(true);
  (*answer.mutable_annotations())["k"] = "v";
  expect_bytes(answer, "1208 0a01 63 1201 68 1801 2206 0a01 6b 1201 76");
}

}  // namespace
