// SPDX-License-Identifier: Apache-2.0
// The bytes that every kubelet of today speaks, against our own description of them.
#include <string_view>

#include <gtest/gtest.h>

#include "dra.pb.h"
#include "dra_health.pb.h"
#include "tests/kubevirt-plugin/hex.h"

namespace {

namespace wire = ::k8s::io::kubelet::pkg::apis::dra::v1;
using ferry::test::bytes;

template <typename Message>
void expect_bytes(const Message& message, std::string_view hex) {
  EXPECT_EQ(message.SerializeAsString(), bytes(hex));
  Message read;
  ASSERT_TRUE(read.ParseFromString(bytes(hex)));
  EXPECT_EQ(read.SerializeAsString(), message.SerializeAsString());
}

// The UID has number 2, and the name number 3.
TEST(DraWireFormat, Requests) {
  wire::NodePrepareResourcesRequest request;
  wire::Claim& claim = *request.add_claims();
  claim.set_namespace_("n");
  claim.set_uid("u");
  claim.set_name("c");
  expect_bytes(request, "0a09 0a01 6e 1201 75 1a01 63");
  wire::NodeUnprepareResourcesRequest undo;
  *undo.add_claims() = claim;
  expect_bytes(undo, "0a09 0a01 6e 1201 75 1a01 63");
}

TEST(DraWireFormat, Answers) {
  wire::NodePrepareResourcesResponse response;
  wire::NodePrepareResourceResponse& answer = (*response.mutable_claims())["u"];
  wire::Device& device = *answer.add_devices();
  device.add_request_names("r");
  device.set_pool_name("p");
  device.set_device_name("d");
  device.add_cdi_device_ids("c");
  answer.set_error("e");
  expect_bytes(response, "0a16 0a01 75 1211 0a0c 0a01 72 1201 70 1a01 64 2201 63 1201 65");
  device.set_share_id("s");
  expect_bytes(device, "0a01 72 1201 70 1a01 64 2201 63 2a01 73");
  wire::NodeUnprepareResourcesResponse undone;
  (*undone.mutable_claims())["u"].set_error("e");
  expect_bytes(undone, "0a08 0a01 75 1203 0a01 65");
}

TEST(DraWireFormat, Health) {
  ::v1alpha1::NodeWatchResourcesResponse response;
  ::v1alpha1::DeviceHealth& health = *response.add_devices();
  health.mutable_device()->set_pool_name("p");
  health.mutable_device()->set_device_name("d");
  health.set_health(::v1alpha1::UNHEALTHY);
  health.set_last_updated_time(5);
  health.set_health_check_timeout_seconds(6);
  health.set_message("m");
  expect_bytes(response, "0a11 0a06 0a01 70 1201 64 1002 1805 2006 2a01 6d");
  health.set_health(::v1alpha1::HEALTHY);
  expect_bytes(health, "0a06 0a01 70 1201 64 1001 1805 2006 2a01 6d");
}

}  // namespace
